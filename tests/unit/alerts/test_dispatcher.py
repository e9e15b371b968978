"""Delivery from the outbox to a real receiver."""

import random
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

import httpx
import pytest

from specpilot.alerts import Backoff, Channel, ChannelKind, Dispatched, Dispatcher, sending
from specpilot.alerts.addresses import Resolve, system_resolver
from specpilot.store import Delivery, OutboxState, Store
from tests.unit.alerts.conftest import ManualClock
from tests.unit.alerts.receiver import Answer, Receiver

EXACT = Backoff(attempts=3, first=timedelta(seconds=10), factor=3, jitter=0)

Make = Callable[..., Dispatcher]


@pytest.fixture
def dispatcher(store: Store, client: httpx.Client, clock: ManualClock, receiver: Receiver) -> Make:
    def make(
        *channels: Channel,
        backoff: Backoff = EXACT,
        using: Mapping[str, Channel] | None = None,
        resolve: Resolve = system_resolver,
    ) -> Dispatcher:
        given = channels or (oncall(receiver),)
        return Dispatcher(
            store=store,
            channels={c.name: c for c in given} if using is None else using,
            client=client,
            clock=clock,
            backoff=backoff,
            rng=random.Random(1),
            resolve=resolve,
        )

    return make


def oncall(receiver: Receiver, **values: object) -> Channel:
    base: dict[str, object] = {
        "name": "oncall",
        "kind": ChannelKind.WEBHOOK,
        "url": receiver.url,
        "secret": "a raw secret",
        "allow_private": True,
    }
    return Channel(**{**base, **values})


def enqueue(store: Store, clock: ManualClock, *keys: str, channel: str = "oncall") -> None:
    with store.begin() as unit:
        for key in keys:
            unit.outbox.enqueue(
                dedupe_key=key,
                channel=channel,
                event="Flipped",
                payload={"message": key, "evidence": []},
                at=clock.now(),
            )


def last(store: Store) -> Delivery:
    with store.read() as unit:
        return unit.outbox.deliveries()[0]


def counts(store: Store) -> dict[OutboxState, int]:
    with store.read() as unit:
        return {state: n for state, n in unit.outbox.counts().items() if n}


def test_an_alert_arrives_signed_and_once(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    enqueue(store, clock, "a")
    sender = dispatcher(oncall(receiver, headers={"Authorization": "Bearer x", "HOST": "evil"}))
    assert sender.deliver_due() == Dispatched(delivered=1)
    assert sender.deliver_due() == Dispatched()
    (got,) = receiver.received
    assert got.path == "/hook"
    assert got.json == {"message": "a", "evidence": []}
    assert got.signed_with(b"a raw secret")
    assert got.headers["webhook-timestamp"] == str(int(clock.now().timestamp()))
    assert got.headers["content-type"] == "application/json"
    assert got.headers["authorization"] == "Bearer x"
    assert got.headers["host"] == receiver.host
    log = last(store)
    assert (log.attempt, log.status, log.answer, log.error) == (1, 200, "ok", "")
    assert log.latency_s > 0


def test_without_a_secret_there_is_an_id_and_no_signature(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    enqueue(store, clock, "a")
    dispatcher(oncall(receiver, secret="")).deliver_due()
    assert "webhook-signature" not in receiver.received[0].headers
    assert receiver.ids[0].startswith("msg_")


def test_a_failure_is_retried_with_the_same_id_and_growing_waits(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    receiver.answers.extend([Answer(500, b"boom"), Answer(503)])
    enqueue(store, clock, "a")
    sender = dispatcher()
    assert sender.deliver_due() == Dispatched(failed=1)
    assert (last(store).status, last(store).answer) == (500, "boom")
    clock.advance(seconds=9)
    assert sender.deliver_due() == Dispatched(), "the first wait is 10 s"
    clock.advance(seconds=1)
    assert sender.deliver_due() == Dispatched(failed=1)
    clock.advance(seconds=29)
    assert sender.deliver_due() == Dispatched(), "the second wait is 30 s"
    clock.advance(seconds=1)
    assert sender.deliver_due() == Dispatched(delivered=1)
    assert len(receiver.received) == 3
    assert len(set(receiver.ids)) == 1
    assert len({r.headers["webhook-timestamp"] for r in receiver.received}) == 3
    assert all(r.signed_with(b"a raw secret") for r in receiver.received)


def test_after_the_last_attempt_it_is_dead(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    receiver.answers.extend([Answer(500)] * 9)
    enqueue(store, clock, "a")
    sender = dispatcher()
    results = []
    for _ in range(5):
        results.append(sender.deliver_due())
        clock.advance(hours=2)
    assert results == [
        Dispatched(failed=1),
        Dispatched(failed=1),
        Dispatched(dead=1),
        Dispatched(),
        Dispatched(),
    ]
    assert counts(store) == {OutboxState.DEAD: 1}


@pytest.mark.parametrize(
    ("status", "expected", "reason"),
    [
        (400, Dispatched(dead=1), "the message is wrong and stays so"),
        (401, Dispatched(dead=1), "so are the credentials"),
        (404, Dispatched(dead=1), "so is the URL"),
        (410, Dispatched(dead=1), "the receiver has gone for good"),
        (408, Dispatched(failed=1), "the receiver was slow"),
        (429, Dispatched(failed=1), "the receiver is busy"),
        (500, Dispatched(failed=1), "the receiver is ill"),
        (204, Dispatched(delivered=1), "any 2xx is a yes"),
    ],
)
def test_the_status_decides(
    store: Store,
    clock: ManualClock,
    receiver: Receiver,
    dispatcher: Make,
    *,
    status: int,
    expected: Dispatched,
    reason: str,
) -> None:
    receiver.answers.append(Answer(status, b""))
    enqueue(store, clock, "a")
    assert dispatcher().deliver_due() == expected, reason


@pytest.mark.parametrize(
    ("header", "wait_s", "reason"),
    [
        ("120", 120, "seconds"),
        ("Wed, 04 Mar 2026 05:08:07 GMT", 120, "a date"),
        ("1", 10, "never sooner than our own wait"),
        ("31536000", 6 * 3600, "a year is not respected: six hours at most"),
        ("soon", 10, "nonsense is ignored"),
    ],
)
def test_retry_after_is_respected(
    store: Store,
    clock: ManualClock,
    receiver: Receiver,
    dispatcher: Make,
    *,
    header: str,
    wait_s: int,
    reason: str,
) -> None:
    receiver.answers.append(Answer(429, headers={"Retry-After": header}))
    enqueue(store, clock, "a")
    sender = dispatcher()
    sender.deliver_due()
    clock.advance(seconds=wait_s - 1)
    assert sender.deliver_due() == Dispatched(), reason
    clock.advance(seconds=1)
    assert sender.deliver_due() == Dispatched(delivered=1), reason


def test_redirects_are_not_followed(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    receiver.answers.append(Answer(307, headers={"Location": f"{receiver.url}/elsewhere"}))
    enqueue(store, clock, "a")
    assert dispatcher().deliver_due() == Dispatched(dead=1)
    assert len(receiver.received) == 1
    assert "redirects are not followed" in last(store).error


def test_a_slow_receiver_is_given_up_and_tried_again(
    store: Store,
    clock: ManualClock,
    receiver: Receiver,
    dispatcher: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "TIMEOUT_S", 0.3)
    release = threading.Event()
    receiver.answers.append(Answer(before=lambda: release.wait(20)))
    enqueue(store, clock, "a", "b")
    sender = dispatcher()
    assert sender.deliver_due() == Dispatched(failed=1), "b was spared the same wait"
    release.set()
    assert "no answer within 0.3 s" in last(store).error
    clock.advance(seconds=10)
    assert sender.deliver_due() == Dispatched(delivered=2)


def test_a_silent_channel_does_not_hold_up_the_others(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    enqueue(store, clock, *[f"x{n}" for n in range(30)], channel="gone")
    clock.advance(seconds=1)
    enqueue(store, clock, "a", "b")
    gone = oncall(receiver, name="gone", url="http://127.0.0.1:1/")
    sender = dispatcher(oncall(receiver), gone)
    assert sender.deliver_due(limit=10) == Dispatched(delivered=2, failed=1)
    with store.read() as unit:
        assert len(unit.outbox.deliveries(channel="gone")) == 1


def test_the_limit_holds(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    enqueue(store, clock, *"abcde")
    sender = dispatcher()
    assert sender.deliver_due(limit=3) == Dispatched(delivered=3)
    assert sender.deliver_due(limit=3) == Dispatched(delivered=2)


def test_a_crash_after_sending_sends_again_with_the_same_id(
    store: Store,
    clock: ManualClock,
    receiver: Receiver,
    dispatcher: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enqueue(store, clock, "a")
    sender = dispatcher()

    def crash(*_: object) -> str:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(sender, "_write_down", crash)
        with pytest.raises(SystemExit):
            sender.deliver_due()
    assert sender.deliver_due() == Dispatched(delivered=1)
    assert len(receiver.received) == 2
    assert len(set(receiver.ids)) == 1


def test_no_transaction_is_open_while_sending(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    receiver.answers.append(Answer(before=lambda: enqueue(store, clock, "b")))
    enqueue(store, clock, "a")
    assert dispatcher().deliver_due() == Dispatched(delivered=2), "b was written while a was sent"


def test_a_channel_that_is_not_there_yet_is_waited_for(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    channels: dict[str, Channel] = {}
    enqueue(store, clock, "a")
    sender = dispatcher(using=channels)
    assert sender.deliver_due() == Dispatched(failed=1)
    assert "there is no channel oncall" in last(store).error
    channels["oncall"] = oncall(receiver)
    clock.advance(seconds=10)
    assert sender.deliver_due() == Dispatched(delivered=1)


def test_only_the_beginning_of_an_answer_is_kept(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    receiver.answers.append(Answer(400, b"\xff" + b"x" * 100_000))
    enqueue(store, clock, "a")
    dispatcher().deliver_due()
    assert last(store).answer == "\ufffd" + "x" * 1023


def test_a_private_address_is_refused_unless_meant(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    enqueue(store, clock, "a")
    assert dispatcher(oncall(receiver, allow_private=False)).deliver_due() == Dispatched(dead=1)
    assert receiver.received == []
    assert "127.0.0.1 is private" in last(store).error


def test_the_address_that_was_checked_is_the_one_connected_to(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    """A name that resolves differently the second time gains nothing: there is no second time."""
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["169.254.169.254", "127.0.0.1"]

    port = receiver.host.rpartition(":")[2]
    channel = oncall(receiver, url=f"http://hooks.example:{port}/hook")
    enqueue(store, clock, "a")
    assert dispatcher(channel, resolve=resolve).deliver_due() == Dispatched(delivered=1)
    assert asked == ["hooks.example"]
    assert receiver.received[0].headers["host"] == f"hooks.example:{port}"


def test_another_address_is_tried_after_one_that_does_not_answer(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    enqueue(store, clock, "a")
    sender = dispatcher(resolve=lambda _host, _port: ["127.0.0.9", "127.0.0.1"])
    assert sender.deliver_due() == Dispatched(failed=1)
    clock.advance(seconds=10)
    assert sender.deliver_due() == Dispatched(delivered=1)


def test_a_name_that_does_not_resolve_is_tried_again(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    def resolve(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    enqueue(store, clock, "a")
    assert dispatcher(resolve=resolve).deliver_due() == Dispatched(failed=1)
    assert "Name or service not known" in last(store).error


def test_a_slack_channel_gets_slack_form(
    store: Store, clock: ManualClock, receiver: Receiver, dispatcher: Make
) -> None:
    from specpilot.alerts import compose
    from specpilot.domain.policy import Event

    message = compose(Event.SIGNALS_LOST, {"message": "no data"}, at=clock.now())
    with store.begin() as unit:
        unit.outbox.enqueue(
            dedupe_key="a",
            channel="team",
            event="SignalsLost",
            payload=message.payload,
            at=clock.now(),
        )
    team = oncall(receiver, name="team", kind=ChannelKind.SLACK, secret="unused")
    assert dispatcher(team).deliver_due() == Dispatched(delivered=1)
    (got,) = receiver.received
    assert got.json["blocks"][0]["type"] == "header"
    assert "webhook-signature" not in got.headers


def test_waits_are_jittered_within_bounds() -> None:
    backoff, rng = Backoff(jitter=0.25), random.Random(7)
    waits = [backoff.wait(attempt=2, retry_after=None, rng=rng).total_seconds() for _ in range(200)]
    assert 22.5 <= min(waits) < 24
    assert 36 < max(waits) <= 37.5
    far = backoff.wait(attempt=500, retry_after=None, rng=rng)
    assert far <= timedelta(hours=1.25), "the growth has an end, and does not overflow"
