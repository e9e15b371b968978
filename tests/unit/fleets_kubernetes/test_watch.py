"""A watch through every way a connection can fail."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from specpilot.fleets.kubernetes import Pace
from specpilot.fleets.kubernetes.request import POLICIES, Resource
from specpilot.fleets.kubernetes.store import Store
from specpilot.fleets.kubernetes.watch import Watch
from tests.cluster.waiting import wait_for
from tests.unit.fleets_kubernetes.fakes import FakeServer, FixedClock, Object, Reply, Seen, serve

QUICK = Pace(server_timeout_s=30, grace_s=1, first_delay_s=0.01, longest_delay_s=0.05)


def obj(name: str, version: int) -> Object:
    return {"metadata": {"namespace": "a", "name": name, "resourceVersion": str(version)}}


class Script:
    """Lists from `objects`; each watch request gets the next step, the last one hangs."""

    def __init__(
        self, *steps: Callable[[Reply], None], objects: list[Object] | None = None
    ) -> None:
        self.steps = list(steps)
        self.objects = objects or []
        self.version = 10
        self.lists = 0
        self.resumed: list[str] = []
        self.lock = threading.Lock()

    def __call__(self, seen: Seen, reply: Reply) -> None:
        if "watch" not in seen.query:
            self.lists += 1
            metadata = {"resourceVersion": str(self.version)}
            reply.json({"metadata": metadata, "items": self.objects})
            return
        with self.lock:
            self.resumed.append(seen.query["resourceVersion"])
            step = self.steps.pop(0) if self.steps else None
        if step is None:
            reply.open_stream()
            reply.hang()
        else:
            step(reply)


class Followed:
    def __init__(self, server: FakeServer, pace: Pace) -> None:
        self.store = Store()
        self.told: list[str] = []
        self.watch = Watch(
            api=server.api(),
            resource=POLICIES,
            namespace="",
            store=self.store,
            keep=lambda o: o,
            notify=self._notify,
            clock=FixedClock(),
            pace=pace,
        )

    def _notify(self, _: Resource, found: Object) -> None:
        name = found["metadata"]["name"]
        self.told.append(name)
        if name == "poison":
            raise RuntimeError("a listener's fault")

    def names(self) -> set[str]:
        return {o["metadata"]["name"] for o in self.store.all()}


@contextlib.contextmanager
def follow(script: Script, pace: Pace = QUICK) -> Iterator[Followed]:
    with serve(script) as server:
        followed = Followed(server, pace)
        followed.watch.start()
        try:
            yield followed
        finally:
            followed.watch.stop(timeout_s=5)


def events(*said: tuple[str, Any], end: str = "close") -> Callable[[Reply], None]:
    def step(reply: Reply) -> None:
        reply.open_stream()
        for kind, body in said:
            reply.event(kind, body)
        if end == "close":
            reply.end_stream()
        elif end == "cut":
            reply.cut()
        else:
            reply.hang()

    return step


def bookmark(version: int) -> tuple[str, Object]:
    return ("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def test_list_then_watch_from_there() -> None:
    script = Script(
        events(
            ("ADDED", obj("b", 11)),
            ("MODIFIED", obj("a", 12)),
            ("DELETED", obj("b", 13)),
            end="hang",
        ),
        objects=[obj("a", 5)],
    )
    with follow(script) as followed:
        assert followed.watch.wait_synced(5)
        wait_for(lambda: followed.told == ["a", "b", "a", "b"], describe=lambda: str(followed.told))
        assert followed.names() == {"a"}
        assert script.resumed == ["10"]
        assert followed.watch.state.broken_since is None


def test_an_ended_stream_is_resumed_from_the_latest_version_without_a_list() -> None:
    script = Script(events(("ADDED", obj("b", 11)), bookmark(40)), objects=[obj("a", 5)])
    with follow(script) as followed:
        wait_for(lambda: len(script.resumed) == 2, describe="resumed")
        assert script.resumed == ["10", "40"], "the bookmark moved it on"
        assert script.lists == 1
        assert followed.names() == {"a", "b"}


def test_a_cut_connection_is_resumed() -> None:
    script = Script(events(("ADDED", obj("b", 11)), end="cut"))
    with follow(script) as followed:
        wait_for(lambda: len(script.resumed) == 2, describe="resumed")
        assert script.resumed == ["10", "11"]
        assert script.lists == 1
        wait_for(lambda: followed.watch.state.error == "", describe="and well")


def test_silence_beyond_the_servers_own_limit_is_a_dead_connection() -> None:
    pace = Pace(server_timeout_s=0.1, grace_s=0.2, first_delay_s=0.01, longest_delay_s=0.05)
    script = Script(events(("ADDED", obj("b", 11)), end="hang"))
    with follow(script, pace) as followed:
        wait_for(lambda: len(script.resumed) >= 2, describe="noticed without a word from TCP")
        assert followed.names() == {"b"}


@pytest.mark.parametrize("way", ["status", "event"])
def test_a_forgotten_version_means_listing_again(way: str) -> None:
    """410 comes as the answer or within the stream (kubernetes-client/python #728, #2223)."""
    gone = {"code": 410, "reason": "Expired", "message": "too old resource version"}

    def refuse(reply: Reply) -> None:
        reply.failure(410, "Expired", "too old resource version")

    step = refuse if way == "status" else events(("ERROR", gone))
    script = Script(step, objects=[obj("a", 5), obj("b", 6)])
    with follow(script) as followed:
        followed.watch.wait_synced(5)
        script.objects = [obj("b", 6), obj("c", 20)]
        script.version = 20
        wait_for(lambda: len(script.resumed) == 2, describe="watching again")
        assert script.lists == 2
        assert script.resumed[1] == "20"
        assert followed.names() in ({"b", "c"}, {"a", "b"})


def test_what_vanished_between_two_lists_is_reported() -> None:
    gone = {"code": 410, "reason": "Expired", "message": ""}
    script = Script(objects=[obj("a", 5), obj("b", 6)])
    waiting = threading.Event()

    def step(reply: Reply) -> None:
        reply.open_stream()
        waiting.wait(5)
        reply.event("ERROR", gone)
        reply.end_stream()

    script.steps.append(step)
    with follow(script) as followed:
        assert followed.watch.wait_synced(5)
        script.objects = [obj("b", 6), obj("c", 20)]
        waiting.set()
        wait_for(lambda: script.lists == 2, describe="listed again")
        wait_for(lambda: followed.names() == {"b", "c"}, describe="the list is the truth")
        wait_for(lambda: sorted(followed.told) == ["a", "a", "b", "c"], describe="b is no news")


def test_a_server_that_ends_every_watch_at_once_is_not_hammered() -> None:
    """It ends with 200 and nothing said; that must not become a busy loop."""
    pace = Pace(server_timeout_s=30, grace_s=1, first_delay_s=0.2, longest_delay_s=0.2)
    script = Script(*[events() for _ in range(1000)])
    with follow(script, pace):
        threading.Event().wait(1.0)  # the time itself is what is measured
        assert 2 <= len(script.resumed) <= 15


def test_a_refusal_is_tried_again_and_told() -> None:
    def refuse(reply: Reply) -> None:
        reply.failure(403, "Forbidden", "speculationpolicies is forbidden")

    script = Script(*[refuse] * 5)
    with follow(script) as followed:
        wait_for(
            lambda: "is forbidden" in followed.watch.state.error,
            describe="it says why",
            every=0.001,
        )
        assert followed.watch.state.broken_since is not None
        wait_for(lambda: followed.watch.state.error == "", describe="and recovers")


def test_a_listeners_fault_costs_nothing() -> None:
    script = Script(
        events(("ADDED", obj("poison", 11)), ("ADDED", obj("b", 12)), end="hang"),
    )
    with follow(script) as followed:
        wait_for(lambda: followed.told == ["poison", "b"], describe="the next one is told")
        assert followed.names() == {"poison", "b"}
        assert len(script.resumed) == 1


def test_an_answer_that_makes_no_sense_does_not_end_the_thread() -> None:
    script = Script(events(("ADDED", {"metadata": {}})))
    with follow(script) as followed:
        wait_for(lambda: script.lists == 2, describe="started anew")
        wait_for(lambda: followed.watch.state.error == "", describe="and well")
