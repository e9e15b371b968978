"""The elector's rules, each on clocks that a test moves."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.fleets.kubernetes import ApiError, Elector, Terms, Token
from specpilot.fleets.kubernetes.request import Request
from tests.unit.fleets_kubernetes.fakes import FixedClock

TERMS = Terms(duration_s=30, renew_deadline_s=20, retry_s=5)


class LeaseServer:
    """One lease with optimistic locking; can be unreachable, or lose its answers."""

    field_manager = "specpilot"

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.down = False
        self.lose_answers = False
        self.timeouts: set[float | None] = set()

    def send(self, request: Request, *, timeout_s: float | None = None) -> dict[str, Any]:
        self.timeouts.add(timeout_s)
        if self.down:
            raise ApiError("connection refused", status=0)
        answer = self._answer(request)
        if self.lose_answers and request.method != "GET":
            raise ApiError("timed out", status=0)
        return answer

    def _answer(self, request: Request) -> dict[str, Any]:
        if request.method == "GET":
            if self.lease is None:
                raise ApiError("not found", status=404)
            return copy.deepcopy(self.lease)
        body = copy.deepcopy(dict(request.body or {}))
        stale = self.lease is not None and (
            request.method == "POST" or body["metadata"].get("resourceVersion") != str(self.version)
        )
        if stale:
            raise ApiError("the object has been modified", status=409, reason="Conflict")
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return copy.deepcopy(body)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec


class World:
    def __init__(self) -> None:
        self.server = LeaseServer()
        self.now = 100.0

    def candidate(self, identity: str) -> "Candidate":
        return Candidate(self, identity)


class Candidate:
    def __init__(self, world: World, identity: str) -> None:
        self.elected: list[Token] = []
        self.lost: list[str] = []
        self.elector = Elector(
            api=world.server,  # type: ignore[arg-type]  # speaks all of it that an elector uses
            namespace="specpilot",
            name="specpilot",
            identity=identity,
            on_elected=self.elected.append,
            on_lost=self.lost.append,
            clock=FixedClock(),
            terms=TERMS,
            monotonic=lambda: world.now,
            chance=lambda: 0.5,
        )

    @property
    def token(self) -> Token | None:
        return self.elector.token

    def step(self) -> str:
        return self.elector.step()


@pytest.fixture
def world() -> World:
    return World()


def test_the_first_one_leads_and_requests_are_bounded(world: World) -> None:
    a = world.candidate("a")
    assert a.step() == ""
    assert a.token == Token(holder="a", transitions=0)
    assert a.elected == [a.token]
    assert world.server.spec["leaseDurationSeconds"] == 30
    assert world.server.spec["renewTime"] == "2026-11-29T12:00:00.000000Z"
    assert world.server.timeouts == {2.5}, "half of the retry period"


def test_a_live_leader_is_left_alone_whatever_its_wall_clock_says(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    a.step()
    world.server.spec["renewTime"] = "1999-01-01T00:00:00.000000Z"
    for _ in range(5):
        b.step()
        world.now += 5
    assert b.token is None


def test_a_dead_leader_is_replaced_after_its_duration_as_seen_here(world: World) -> None:
    """keda#1030: an evicted pod kept the leader's lock."""
    a, b = world.candidate("a"), world.candidate("b")
    a.step()
    b.step()
    world.now += 29.9
    b.step()
    assert b.token is None
    world.now += 0.2
    b.step()
    assert b.token == Token(holder="b", transitions=1)
    assert a.token is None, "which had stopped long before"
    assert world.server.spec["acquireTime"]


def test_each_renewal_starts_the_wait_anew(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    for second in range(0, 100, 5):
        a.elector._clock = FixedClock()
        a.step()
        world.server.spec["renewTime"] = f"t{second}"
        b.step()
        world.now += 5
    assert a.token
    assert b.token is None


def test_the_holders_own_duration_counts(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    a.step()
    world.server.spec["leaseDurationSeconds"] = 60
    b.step()
    world.now += 45
    b.step()
    assert b.token is None
    world.now += 15
    b.step()
    assert b.token


def test_a_leader_that_cannot_renew_fences_itself_before_anybody_may_take_over(
    world: World,
) -> None:
    a = world.candidate("a")
    a.step()
    world.server.down = True
    world.now += 19.9
    assert a.step() == ""
    assert a.token
    world.now += 0.1
    assert a.token is None, "even if its thread hangs"
    assert "could not be renewed for 20 s" in a.step()


def test_an_answer_that_is_lost_is_no_leadership_and_no_loss(world: World) -> None:
    a = world.candidate("a")
    world.server.lose_answers = True
    assert a.step() == ""
    assert a.token is None, "not sure"
    world.server.lose_answers = False
    world.now += 5
    a.step()
    assert a.token == Token(holder="a", transitions=0), "the lease says it is ours"
    world.server.lose_answers = True
    world.now += 5
    assert a.step() == ""
    world.server.lose_answers = False
    world.now += 5
    assert a.step() == ""
    assert a.token


def test_a_usurped_lease_is_lost_at_once(world: World) -> None:
    a = world.candidate("a")
    a.step()
    world.server.spec["holderIdentity"] = "c"
    assert "another process" in a.step()


def test_the_time_of_a_renewal_is_when_it_was_asked_for(world: World) -> None:
    a = world.candidate("a")
    send = world.server.send

    def slow(request: Request, *, timeout_s: float | None = None) -> dict[str, Any]:
        world.now += 2
        return send(request, timeout_s=timeout_s)

    world.server.send = slow  # type: ignore[method-assign]
    a.step()  # two requests: four seconds
    world.now += 15.9
    assert a.token
    world.now += 0.1
    assert a.token is None


def test_a_free_lease_is_taken_and_a_given_up_one_is_free(world: World) -> None:
    """kubernetes-client/python#1669: a lease was never given up."""
    a, b = world.candidate("a"), world.candidate("b")
    a.step()
    a.elector._release()
    assert a.token is None
    assert world.server.spec["holderIdentity"] == ""
    b.step()
    assert b.token == Token(holder="b", transitions=1)
    a.elector._release()
    assert world.server.spec["holderIdentity"] == "b", "nobody gives up another's"


def test_a_fault_in_the_work_counts_as_lost(world: World) -> None:
    a = world.candidate("a")

    def broken(_: Token) -> None:
        raise RuntimeError("work did not start")

    a.elector._on_elected = broken
    a.elector.run()
    assert a.lost == ["the elector failed"]


def test_the_holder_keeps_its_beat_and_the_others_spread_out(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    a.step()
    assert a.elector._until_next() == 5
    assert b.elector._until_next() == 5.5
    world.now += 18
    assert a.elector._until_next() == 2


@pytest.mark.parametrize("times", [(30, 30, 5), (30, 20, 20), (30, 20, 0), (10, 20, 5)])
def test_times_must_leave_room(times: tuple[float, float, float]) -> None:
    duration, deadline, retry = times
    with pytest.raises(ValueError, match="must rise"):
        Terms(duration_s=duration, renew_deadline_s=deadline, retry_s=retry)


moves = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("down"), st.booleans()),
        st.tuples(st.just("lose"), st.booleans()),
    ),
    max_size=80,
)


@given(moves)
def test_never_two_leaders(moves: list[tuple[str, Any]]) -> None:
    """Whatever the order of steps, outages and lost answers; a loser never comes back.

    kubeai#67: two replicas both acted, and the target flapped.
    """
    world = World()
    candidates = [world.candidate(name) for name in "abc"]
    over: set[int] = set()
    tokens: list[Token] = []
    for move, value in moves:
        if move == "wait":
            world.now += value
        elif move == "down":
            world.server.down = value
        elif move == "lose":
            world.server.lose_answers = value
        elif value not in over and candidates[value].step():
            over.add(value)
            candidates[value].elector._token = None
        leading = [c.token for c in candidates if c.token]
        assert len(leading) <= 1
        tokens += leading
    transitions = [t.transitions for t in tokens]
    assert transitions == sorted(transitions), "a later leader has a higher number"
    assert all(len({t.holder for t in tokens if t.transitions == n}) == 1 for n in transitions)
