"""A flip on groups of pods. The controller is a stand-in, written after the documented behaviour.

LeaderWorkerSet's own module is not at hand where this is built. What the stand-in leaves to the
real control plane: StatefulSets, their partition, ownership, and the garbage collector.
"""

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

import tests.cluster.api
from specpilot.domain.changes import Extent
from specpilot.domain.targets import TargetProblem
from tests.cluster.cluster import Cluster
from tests.cluster.conditions import is_ready
from tests.cluster.manifests import container, template
from tests.cluster.waiting import wait_for
from tests.integration.kubernetes.conftest import (
    NEVER_OURS,
    NGRAM,
    MakeTarget,
    Manifest,
    Target,
    all_run,
    engine,
    held,
)

pytestmark = pytest.mark.cluster

CRD = Path(__file__).parents[2] / "data" / "crds" / "leaderworkersets.yaml"
NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP = "leaderworkerset.sigs.k8s.io/group-index"
API = "leaderworkerset.x-k8s.io/v1"


def lws(name: str, *containers: Manifest, replicas: int = 2, **rest: Any) -> Manifest:
    worker = rest.pop("worker", None) or container(name="vllm")
    return {
        "apiVersion": API,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": 2,
                "leaderTemplate": template(*containers),
                "workerTemplate": template(worker),
            },
            **rest,
        },
    }


class StandIn:
    """Keeps a StatefulSet of leaders, one StatefulSet of workers per leader, and the status."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._api = cluster.api
        self._cluster = cluster
        self._namespace = namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lws")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            for root in self._api.list(API, "LeaderWorkerSet", namespace=self._namespace):
                try:
                    self._sync(root)
                except tests.cluster.api.ApiError:
                    continue  # changed or gone in between: the next round looks again

    def _sync(self, root: Manifest) -> None:
        spec = root["spec"]
        config = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
        leaders = self._apply(
            root["metadata"]["name"],
            template=spec["leaderWorkerTemplate"]["leaderTemplate"],
            replicas=spec["replicas"],
            labels={NAME: root["metadata"]["name"], "role": "leader"},
            owner=root,
            partition=config.get("partition", 0),
        )
        pods = self._cluster.pods(self._namespace)
        ready = 0
        for leader in (p for p in pods if _owned_by(p, leaders)):
            if "deletionTimestamp" in leader["metadata"]:
                continue
            workers = self._apply(
                leader["metadata"]["name"],
                template=spec["leaderWorkerTemplate"]["workerTemplate"],
                replicas=spec["leaderWorkerTemplate"]["size"] - 1,
                labels={NAME: root["metadata"]["name"], GROUP: leader["metadata"]["name"]},
                owner=leader,
                partition=0,
            )
            mine = [p for p in pods if _owned_by(p, workers)]
            ready += bool(mine) and all(is_ready(p) for p in (leader, *mine))
        status = leaders.get("status") or {}
        self._api.patch(
            API,
            "LeaderWorkerSet",
            name=root["metadata"]["name"],
            namespace=self._namespace,
            subresource="status",
            patch={
                "status": {
                    "replicas": status.get("replicas", 0),
                    "updatedReplicas": status.get("updatedReplicas", 0),
                    "readyReplicas": ready,
                    "observedGeneration": root["metadata"]["generation"],
                }
            },
        )

    def _apply(
        self,
        name: str,
        *,
        template: Manifest,
        replicas: int,
        labels: dict[str, str],
        owner: Manifest,
        partition: int,
    ) -> Manifest:
        body = copy.deepcopy(template)
        body.setdefault("metadata", {})["labels"] = labels
        metadata = owner["metadata"]
        return self._api.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "ownerReferences": [
                        {
                            "apiVersion": owner.get("apiVersion", "v1"),
                            "kind": owner.get("kind", "Pod"),
                            "name": metadata["name"],
                            "uid": metadata["uid"],
                            "controller": True,
                            "blockOwnerDeletion": True,
                        }
                    ],
                },
                "spec": {
                    "replicas": replicas,
                    "serviceName": name,
                    "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": labels},
                    "template": body,
                    "updateStrategy": {"rollingUpdate": {"partition": partition}},
                },
            },
            namespace=self._namespace,
            manager="lws",
        )


def _owned_by(obj: Manifest, owner: Manifest) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return any(r["uid"] == owner["metadata"]["uid"] for r in references)


@pytest.fixture(scope="module", autouse=True)
def crd(cluster: Cluster) -> None:
    cluster.api.apply(yaml.safe_load(CRD.read_text()))

    def served() -> bool:
        try:
            cluster.api.request("GET", f"/apis/{API}/leaderworkersets")
        except tests.cluster.api.ApiError:
            return False
        return True

    wait_for(served, describe="the API server serves LeaderWorkerSets")


@pytest.fixture(autouse=True)
def controller(cluster: Cluster, namespace: str) -> Iterator[None]:
    with StandIn(cluster, namespace):
        yield


@pytest.fixture
def make_lws(make_target: MakeTarget) -> MakeTarget:
    def make(**options: Any) -> Target:
        target = make_target(kind=lws, standing=False, **{"replicas": 2, **options})
        target.until(
            lambda s: not s.rolling and sum(r.ready for r in s.live()) == s.desired_replicas,
            deadline=60,
        )
        return target

    return make


def partition(target: Target) -> int | None:
    strategy = target.object()["spec"].get("rolloutStrategy") or {}
    found: int | None = (strategy.get("rollingUpdateConfiguration") or {}).get("partition")
    return found


def test_the_last_group_tries_it_then_all(make_lws: MakeTarget) -> None:
    target = make_lws()
    rest = target.observe()
    assert rest.problem is None
    assert [r.id for r in rest.replicas] == ["chat-0", "chat-1"], "a group is one replica"
    assert rest.all_run(NEVER_OURS)

    state = target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    assert [r.id for r in state.arm(NGRAM)] == ["chat-1"]
    assert partition(target) == 1
    templates = target.object()["spec"]["leaderWorkerTemplate"]
    for name in ("leaderTemplate", "workerTemplate"):
        noted = templates[name]["metadata"]["annotations"]
        assert noted["specpilot.io/change-id"] == NGRAM.change_id

    done = target.reconcile(NGRAM, Extent.ALL, all_run(NGRAM), deadline=90)
    assert not done.halted


def test_undoing_leaves_the_object_as_it_was(make_lws: MakeTarget) -> None:
    configuration = {"partition": 0, "maxUnavailable": 1, "maxSurge": 0}
    strategy = {"type": "RollingUpdate", "rollingUpdateConfiguration": configuration}
    target = make_lws(rolloutStrategy=strategy)
    before = target.object()["spec"]
    target.reconcile(NGRAM, Extent.CANARY, held(NGRAM), deadline=60)
    target.reconcile(NEVER_OURS, Extent.ALL, all_run(NEVER_OURS), deadline=90)
    assert target.object()["spec"] == before


def test_headless_workers_must_be_wired(make_lws: MakeTarget) -> None:
    headless = engine("--headless", wired=False)
    headless["command"] = [*headless["command"], "vllm"]
    target = make_lws(worker=headless)
    problem = target.observe().problem
    assert problem is not None
    assert problem.reason is TargetProblem.NOT_WIRED


def test_its_stateful_sets_are_not_steered_by_themselves(make_lws: MakeTarget) -> None:
    target = make_lws()
    ref = type(target.ref)(kind="StatefulSet", namespace=target.ref.namespace, name="chat")
    problem = target.fleet.observe(ref).problem
    assert problem is not None
    assert problem.reason is TargetProblem.OWNED_BY_OTHER
    assert "Steer that: write target: {kind: LeaderWorkerSet, name: chat}" in problem.message
