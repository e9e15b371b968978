"""An alert channel's status: usable, not usable and why, and what became of the last alert."""

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from specpilot.controller.cluster_channels import CHECK_EVERY, ClusterChannels
from specpilot.fleets.kubernetes import ALERT_CHANNELS, ApiError
from specpilot.fleets.kubernetes.request import Request
from specpilot.fleets.kubernetes.store import Store as Objects
from specpilot.store import Store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = base64.b64encode(b"whsec_" + base64.b64encode(b"k" * 32)).decode()
CHANNEL = {
    "apiVersion": "specpilot.io/v1alpha1",
    "kind": "AlertChannel",
    "metadata": {
        "namespace": "serving",
        "name": "oncall",
        "uid": "u",
        "generation": 1,
        "resourceVersion": "1",
    },
    "spec": {
        "type": "webhook",
        "url": "https://example.com/alerts",
        "secretFrom": {"secretKeyRef": {"name": "alert-webhook", "key": "key"}},
    },
}


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time


class Watched:
    """What the watches know: the one channel."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.objects.put(CHANNEL)

    def store(self, resource: object) -> Objects:
        assert resource == ALERT_CHANNELS
        return self.objects


class Server:
    """Answers for the Secret, and keeps the status that is written."""

    def __init__(self) -> None:
        self.secret: dict[str, str] | ApiError = {"key": KEY}
        self.status: dict[str, Any] = {}
        self.asked = 0

    def send(self, request: Request) -> dict[str, Any]:
        assert request.path == "/api/v1/namespaces/serving/secrets/alert-webhook"
        self.asked += 1
        if isinstance(self.secret, ApiError):
            raise self.secret
        return {"data": self.secret}

    def apply(self, _: object, body: Mapping[str, Any], *, subresource: str) -> None:
        assert subresource == "status"
        self.status = dict(body["status"])

    @property
    def ready(self) -> tuple[str, str, str]:
        [condition] = self.status["conditions"]
        return condition["status"], condition["reason"], condition["message"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(f"sqlite:///{tmp_path / 'x.sqlite'}")) as opened:
        yield opened


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def channels(server: Server, store: Store, clock: Clock) -> ClusterChannels:
    return ClusterChannels(
        api=server,  # type: ignore[arg-type] # the two methods that are used
        watches=Watched(),  # type: ignore[arg-type] # as above
        store=store,
        clock=clock,
    )


def test_a_usable_one(channels: ClusterChannels, server: Server) -> None:
    channels.report()
    assert server.ready == ("True", "Usable", "")
    assert server.status["observedGeneration"] == 1
    assert channels["serving/oncall"].url == "https://example.com/alerts"
    assert list(channels) == ["serving/oncall"]


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        (ApiError("x", status=404), "there is no such Secret in this namespace; create it"),
        (ApiError("x", status=403), "add alert-webhook to alerts.secretNames of the chart"),
        (ApiError("no answer", status=0), "no answer"),
        ({"other": KEY}, "the Secret has no key key"),
    ],
)
def test_one_that_cannot_be_used(
    channels: ClusterChannels, server: Server, secret: Any, says: str
) -> None:
    server.secret = secret
    channels.report()
    status, reason, message = server.ready
    assert (status, reason) == ("False", "Unusable")
    assert says in message
    assert KEY not in message
    assert "serving/oncall" not in {k for k in channels if channels.get(k)}


def test_the_secret_is_looked_up_anew_only_from_time_to_time(
    channels: ClusterChannels, server: Server, clock: Clock
) -> None:
    server.secret = ApiError("x", status=404)
    channels.report()
    server.secret = {"key": KEY}
    channels.report()
    assert (server.asked, server.ready[1]) == (1, "Unusable")
    clock.time += CHECK_EVERY
    channels.report()
    assert (server.asked, server.ready[1]) == (2, "Usable")


Told = Callable[[Any, str], object]


def delivered(outbox: Any, item: str) -> object:
    return outbox.delivered(item, at=NOW, status=200, answer="ok", latency_s=0.1)


def failed(outbox: Any, item: str) -> object:
    return outbox.failed(
        item,
        at=NOW,
        next_at=NOW + timedelta(minutes=1),
        status=503,
        answer="",
        error="the receiver answered 503",
        latency_s=0.1,
    )


@pytest.mark.parametrize(
    ("told", "ready", "last"),
    [
        (delivered, ("True", "Delivered", ""), "2026-03-01T12:00:00Z"),
        (failed, ("False", "NotDelivered", "the receiver answered 503"), None),
    ],
)
def test_what_became_of_the_last_alert(  # noqa: PLR0917 - pytest passes by name
    channels: ClusterChannels,
    server: Server,
    store: Store,
    told: Told,
    ready: tuple[str, str, str],
    last: str | None,
) -> None:
    with store.begin() as unit:
        unit.outbox.enqueue(
            dedupe_key="a", channel="serving/oncall", event="Flipped", payload={}, at=NOW
        )
    with store.read() as unit:
        [item] = unit.outbox.due(now=NOW, limit=1)
    with store.begin() as unit:
        told(unit.outbox, item.id)
    channels.report()
    assert server.ready == ready
    assert server.status.get("lastDelivery") == last
