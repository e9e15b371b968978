"""A flag change is shown beside the work: nobody waits for the API server to take it."""

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from specpilot.controller.cluster_registry import CHANGES_EVERY, ClusterRegistry
from specpilot.controller.publisher import Publisher
from specpilot.domain.changes import Phase
from specpilot.fleets.kubernetes import FLAG_CHANGES, POLICIES, ApiError
from specpilot.fleets.kubernetes.store import Store as Objects
from specpilot.store import Store
from tests.cluster.waiting import wait_for
from tests.unit.controller.world import WorldClock
from tests.unit.domain.builders import change

LONG_S = 30.0


class Cluster:
    """A policy, and an API server that answers when it may."""

    def __init__(self) -> None:
        self.objects = {POLICIES: Objects(), FLAG_CHANGES: Objects()}
        meta = {"namespace": "local", "name": "chat", "uid": "u1", "resourceVersion": "1"}
        self.objects[POLICIES].put({"metadata": meta})
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.refuses = False
        self.begun = 0
        self.phases: list[str] = []

    def store(self, resource: Any) -> Objects:
        return self.objects[resource]

    def apply(
        self, resource: object, body: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        assert resource == FLAG_CHANGES
        self.begun += 1
        assert self.may_answer.wait(LONG_S)
        if self.refuses:
            raise ApiError("busy", status=429)
        if subresource:
            self.phases.append(body["status"]["phase"])
        return dict(body)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock() -> WorldClock:
    return WorldClock()


@pytest.fixture
def changes() -> Iterator[Publisher]:
    with Publisher() as running:
        yield running


@pytest.fixture
def registry(
    cluster: Cluster, clock: WorldClock, changes: Publisher, tmp_path: Path
) -> Iterator[ClusterRegistry]:
    stands_in: Any = cluster  # has the methods that are used
    with closing(Store.open(f"sqlite:///{tmp_path / 'x.sqlite'}")) as store:
        yield ClusterRegistry(
            api=stands_in,
            watches=stands_in,
            store=store,
            clock=clock,
            publisher=Publisher(),
            changes=changes,
        )


def test_nobody_waits_and_no_write_is_doubled(
    registry: ClusterRegistry, cluster: Cluster, changes: Publisher
) -> None:
    cluster.may_answer.clear()
    registry.publish_change(change(), waiting_for="the canary")
    wait_for(lambda: cluster.begun == 1, deadline=LONG_S, describe="it is being written")
    for _ in range(3):  # as each look at an open change does
        registry.publish_change(change(), waiting_for="the canary")
    cluster.may_answer.set()
    assert changes.wait_idle(timeout_s=LONG_S)
    assert cluster.phases == ["Canary"]


def test_steps_are_shown_in_order_and_the_newest_stays(
    registry: ClusterRegistry, cluster: Cluster, changes: Publisher
) -> None:
    cluster.may_answer.clear()
    registry.publish_change(change(), waiting_for="")
    wait_for(lambda: cluster.begun == 1, deadline=LONG_S, describe="it is being written")
    for step, phase in enumerate((Phase.ANALYSING, Phase.PROMOTING, Phase.SUCCEEDED), 1):
        registry.publish_change(change(phase, step=step), waiting_for="")
    cluster.may_answer.set()
    assert changes.wait_idle(timeout_s=LONG_S)
    assert cluster.phases == ["Canary", "Succeeded"]


def test_what_was_refused_is_tried_again_at_the_next_look(
    registry: ClusterRegistry, cluster: Cluster, changes: Publisher
) -> None:
    cluster.refuses = True
    registry.publish_change(change(), waiting_for="")
    assert changes.wait_idle(timeout_s=LONG_S)
    assert cluster.phases == []
    cluster.refuses = False
    registry.publish_change(change(), waiting_for="")
    assert changes.wait_idle(timeout_s=LONG_S)
    assert cluster.phases == ["Canary"]


def test_what_may_never_be_taken_does_not_go_before_what_is_new(
    registry: ClusterRegistry,
    cluster: Cluster,
    changes: Publisher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put, urgent = changes.put, []

    def noted(key: Hashable, write: Callable[[], object], *, first: bool = False) -> None:
        urgent.append((key, first))
        put(key, write, first=first)

    monkeypatch.setattr(changes, "put", noted)
    cluster.refuses = True
    for each in (change(), change(), change(id="new"), change(Phase.ABORTED)):
        registry.publish_change(each, waiting_for="")
        assert changes.wait_idle(timeout_s=LONG_S)
    refused = change().id
    assert urgent == [(refused, True), (refused, False), ("new", True), (refused, False)]
    assert refused not in registry._shown, "nobody shows what has ended again"


def test_numbers_within_the_words_are_shown_now_and_then(
    registry: ClusterRegistry, cluster: Cluster, changes: Publisher, clock: WorldClock
) -> None:
    for seconds in (0, 10, 10, 10, 10):
        clock.at += timedelta(seconds=seconds)
        registry.publish_change(change(), waiting_for=f"{clock.at:%H:%M:%S}")
        assert changes.wait_idle(timeout_s=LONG_S)
    assert timedelta(seconds=30) == CHANGES_EVERY
    assert cluster.phases == ["Canary"] * 2


def test_nothing_is_shown_of_a_policy_that_is_gone(
    registry: ClusterRegistry, cluster: Cluster, changes: Publisher
) -> None:
    gone = replace(change(), policy=replace(change().policy, uid="another one of that name"))
    registry.publish_change(gone, waiting_for="")
    assert changes.wait_idle(timeout_s=LONG_S)
    assert cluster.begun == 0
