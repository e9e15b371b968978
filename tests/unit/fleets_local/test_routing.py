"""The choice of a replica, and the counts that draining rests on."""

from collections import Counter

from specpilot.fleets.local.routing import Router


def router(*keys):
    made = Router()
    for key in keys:
        made.offer(key, host="h", port=1)
    return made


def test_the_fewest_outstanding_requests_win():
    made = router("a", "b")
    first, second = made.acquire(), made.acquire()
    assert {first.key, second.key} == {"a", "b"}
    freed = first.key
    first.release()
    assert made.acquire().key == freed
    assert made.outstanding(second.key) == 1


def test_a_quiet_group_shares_its_load_and_a_newcomer_is_not_flooded():
    made = router("a", "b")
    for _ in range(100):
        made.acquire().release()
    made.offer("c", host="h", port=1)
    chosen = Counter()
    for _ in range(30):
        lease = made.acquire()
        chosen[lease.key] += 1
        lease.release()
    assert chosen == {"a": 10, "b": 10, "c": 10}


def test_a_withdrawn_replica_gets_nothing_and_keeps_what_it_has():
    made = router("a")
    lease = made.acquire()
    made.withdraw("a")
    assert made.acquire() is None
    assert made.outstanding("a") == 1
    lease.release()
    lease.release()
    assert made.outstanding("a") == 0
    made.offer("a", host="h", port=1)
    assert made.acquire().key == "a"


def test_those_to_avoid_are_not_chosen():
    made = router("a", "b")
    assert {made.acquire(avoid=["a"]).key for _ in range(5)} == {"b"}
    assert made.acquire(avoid=["a", "b"]) is None


def test_a_forgotten_replica_may_still_be_released():
    made = router("a")
    lease = made.acquire()
    made.forget("a")
    lease.release()
    assert made.outstanding("a") == 0
    assert made.acquire() is None
