"""The outbox: once in, at least once out, with a log of every attempt."""

import hashlib

from specpilot.store import OutboxState, Store, UnitOfWork
from tests.unit.store.examples import MINUTE, T0


def enqueue(unit: UnitOfWork, key: str, *, channel: str = "oncall", minute: int = 0) -> bool:
    return unit.outbox.enqueue(
        dedupe_key=key,
        channel=channel,
        event="Flipped",
        payload={"message": key},
        at=T0 + minute * MINUTE,
    )


def due(unit: UnitOfWork, *, minute: int = 0, limit: int = 10) -> list[str]:
    found = unit.outbox.due(now=T0 + minute * MINUTE, limit=limit)
    return [str(item.payload["message"]) for item in found]


def test_the_second_time_is_nothing(store: Store) -> None:
    """argo-rollouts#1667, #2556: one message for each replica of the controller."""
    with store.begin() as unit:
        assert enqueue(unit, "a")
        assert not enqueue(unit, "a", minute=1)
        assert enqueue(unit, "a", channel="team"), "another channel has not had it"
        assert unit.outbox.counts()[OutboxState.WAITING] == 2


def test_the_id_is_stable_and_differs_by_channel_and_key(store: Store) -> None:
    with store.begin() as unit:
        for key in ("a", "b"):
            for channel in ("oncall", "team"):
                enqueue(unit, key, channel=channel)
        ids = [i.id for i in unit.outbox.due(now=T0, limit=9)]
    assert len(set(ids)) == 4
    assert f"msg_{hashlib.sha256(b'oncall' + bytes(1) + b'a').hexdigest()[:32]}" in ids


def test_due_is_in_order_and_not_early(store: Store) -> None:
    with store.begin() as unit:
        enqueue(unit, "later", minute=2)
        enqueue(unit, "sooner", minute=1)
        assert due(unit, minute=0) == []
        assert due(unit, minute=1) == ["sooner"]
        assert due(unit, minute=9) == ["sooner", "later"]
        assert due(unit, minute=9, limit=1) == ["sooner"]
        skipped = unit.outbox.due(now=T0 + 9 * MINUTE, limit=9, except_channels={"oncall"})
        assert skipped == []


def test_an_attempt_that_failed_comes_back_later(store: Store) -> None:
    with store.begin() as unit:
        enqueue(unit, "a")
        (item,) = unit.outbox.due(now=T0, limit=1)
        unit.outbox.failed(
            item.id,
            at=T0,
            next_at=T0 + 3 * MINUTE,
            status=500,
            answer="sorry \0",
            error="status 500",
            latency_s=0.25,
        )
        assert due(unit, minute=2) == []
        (again,) = unit.outbox.due(now=T0 + 3 * MINUTE, limit=1)
        assert (again.id, again.attempts) == (item.id, 1)
        unit.outbox.delivered(item.id, at=T0 + 3 * MINUTE, status=200, answer="ok", latency_s=0.1)
        assert due(unit, minute=99) == []
        log = unit.outbox.deliveries()
        assert [(d.attempt, d.status, d.error) for d in log] == [
            (2, 200, ""),
            (1, 500, "status 500"),
        ]
        assert log[1].answer == "sorry \ufffd"
        assert log[1].latency_s == 0.25
        assert unit.outbox.deliveries(channel="team") == []


def test_what_is_dead_stays_dead(store: Store) -> None:
    with store.begin() as unit:
        enqueue(unit, "a")
        (item,) = unit.outbox.due(now=T0, limit=1)
        unit.outbox.dead(item.id, at=T0, status=404, answer="", error="gone", latency_s=0.1)
        assert due(unit, minute=99) == []
        assert unit.outbox.counts() == {
            OutboxState.WAITING: 0,
            OutboxState.DELIVERED: 0,
            OutboxState.DEAD: 1,
        }
        assert not enqueue(unit, "a"), "still known, so not sent again"


def test_prune_takes_the_log_along_and_spares_what_waits(store: Store) -> None:
    with store.begin() as unit:
        enqueue(unit, "done")
        (item,) = unit.outbox.due(now=T0, limit=1)
        unit.outbox.delivered(item.id, at=T0, status=200, answer="", latency_s=0.0)
        enqueue(unit, "waiting")
        assert unit.outbox.prune(finished_before=T0) == 0
        assert unit.outbox.prune(finished_before=T0 + MINUTE) == 1
        assert unit.outbox.deliveries() == []
        assert due(unit) == ["waiting"]
