"""What a pod's status means for the replica it is."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from specpilot.fleets.kubernetes.objects import slim_pod
from specpilot.fleets.kubernetes.replicas import pick_container, port_of, replica_of
from tests.unit.fleets_kubernetes.fakes import engine, pod


def test_a_pod_that_serves() -> None:
    replica = replica_of(pod(), container="vllm")
    assert replica.ready
    assert replica.ready_since == datetime(2026, 11, 29, 11, 2, tzinfo=UTC)
    assert replica.started_at == datetime(2026, 11, 29, 11, tzinfo=UTC)
    assert replica.instance == "uid-chat-1"
    assert replica.endpoint == "http://10.0.0.7:8000"
    assert replica.node == "gpu-1"
    assert (replica.failure, replica.lost, replica.terminating, replica.restarts) == (
        "",
        False,
        False,
        0,
    )


NOT_READY = {"Ready": "False", "ContainersReady": "False"}


def waiting(why: str, message: str = "", /, **last: Any) -> dict[str, Any]:
    return {
        "ready": False,
        "restartCount": 4,
        "state": {"waiting": {"reason": why, "message": message}},
        "lastState": {"terminated": last} if last else {},
    }


@dataclass(frozen=True)
class Case:
    reason: str
    pod: dict[str, Any]
    failure: str
    lost: bool = False
    terminating: bool = False
    ready: bool = False


CASES = [
    Case(
        "crash loop with the engine's last words",
        pod(
            conditions=NOT_READY,
            container_status=waiting(
                "CrashLoopBackOff",
                "back-off 5m0s",
                exitCode=1,
                reason="Error",
                message="ValueError:\n  unknown method",
            ),
        ),
        "CrashLoopBackOff: exit 1: ValueError: unknown method",
    ),
    Case(
        "killed for memory",
        pod(
            conditions=NOT_READY,
            container_status=waiting("CrashLoopBackOff", exitCode=137, reason="OOMKilled"),
        ),
        "CrashLoopBackOff: exit 137 (OOMKilled)",
    ),
    Case(
        "between two crashes",
        pod(
            conditions=NOT_READY,
            container_status={"state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
        ),
        "exit 3",
    ),
    Case(
        "image",
        pod(
            conditions=NOT_READY,
            container_status=waiting("ImagePullBackOff", "Back-off pulling image"),
        ),
        "ImagePullBackOff: Back-off pulling image",
    ),
    Case(
        "no GPU left: a failure, but not of the machine",
        pod(
            conditions={
                **NOT_READY,
                "PodScheduled": (
                    "False",
                    "Unschedulable",
                    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
                ),
            },
            phase="Pending",
        ),
        "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    ),
    Case(
        "starting is no failure",
        pod(conditions=NOT_READY, container_status=waiting("ContainerCreating")),
        "",
    ),
    Case("loading a model is no failure", pod(conditions=NOT_READY), ""),
    Case(
        "a sidecar is named",
        pod(
            conditions=NOT_READY,
            containerStatuses=[
                {"name": "vllm", "state": {"running": {}}},
                {"name": "proxy", **waiting("CrashLoopBackOff", exitCode=2)},
            ],
        ),
        "container proxy: CrashLoopBackOff: exit 2",
    ),
    Case(
        "an init container is named",
        pod(
            conditions=NOT_READY,
            initContainerStatuses=[{"name": "download", **waiting("ErrImagePull", "no such")}],
        ),
        "init container download: ErrImagePull: no such",
    ),
    Case(
        "evicted: gone, and not the setting's fault",
        pod(conditions=NOT_READY, phase="Failed", reason="Evicted", message="low on memory"),
        "Evicted: low on memory",
        lost=True,
        terminating=True,
    ),
    Case(
        "node shut down",
        pod(conditions=NOT_READY, phase="Failed", reason="NodeShutdown", message="by admin"),
        "NodeShutdown: by admin",
        lost=True,
        terminating=True,
    ),
    Case(
        "taken by the taint manager",
        pod(
            conditions={
                "Ready": "False",
                "DisruptionTarget": ("True", "DeletionByTaintManager", "deleting"),
            },
            metadata={"deletionTimestamp": "2026-11-29T11:30:00Z"},
        ),
        "DeletionByTaintManager: deleting",
        lost=True,
        terminating=True,
    ),
    Case(
        "a node that went silent: only Ready was turned by the node controller",
        pod(conditions={"Ready": "False"}),
        "NodeNotReady: node gpu-1 has stopped reporting",
        lost=True,
    ),
    Case(
        "a readiness gate of the user's is no lost node",
        pod(conditions={"Ready": ("False", "ReadinessGatesNotReady", "load balancer")}),
        "",
    ),
    Case(
        "failed by itself",
        pod(conditions=NOT_READY, phase="Failed", message="out of patience"),
        "Failed: out of patience",
        terminating=True,
    ),
    Case(
        "on its way out",
        pod(metadata={"deletionTimestamp": "2026-11-29T11:30:00Z"}),
        "",
        terminating=True,
        ready=True,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
@pytest.mark.parametrize("keep", [lambda o: o, slim_pod], ids=["whole", "kept"])
def test_status(case: Case, keep: Any) -> None:
    replica = replica_of(keep(case.pod), container="vllm")
    assert replica.failure == case.failure
    assert replica.lost is case.lost
    assert replica.terminating is case.terminating
    assert replica.ready is case.ready
    assert (replica.ready_since is not None) is case.ready


@pytest.mark.parametrize(
    ("container", "want", "reason"),
    [
        (engine(), 8000, "vLLM's default"),
        (engine(args=["serve", "m", "--port", "9000"]), 9000, "the engine's own flag"),
        (engine(args=["--port=9001"], ports=[{"containerPort": 1}]), 9001, "a flag is the truth"),
        (engine(args=["--port", "$(PORT)"], ports=[{"containerPort": 81}]), 81, "no number"),
        (
            engine(ports=[{"containerPort": 1}, {"name": "http", "containerPort": 80}]),
            80,
            "the port named http",
        ),
        (engine(ports=[{"containerPort": 7}, {"containerPort": 8}]), 7, "else the first"),
    ],
)
def test_port(container: dict[str, Any], want: int, reason: str) -> None:
    assert port_of(container) == want, reason


def test_an_ipv6_address_is_bracketed() -> None:
    replica = replica_of(pod(podIP="fd00::7"), container="vllm")
    assert replica.endpoint == "http://[fd00::7]:8000"


def test_no_address_no_endpoint() -> None:
    assert replica_of(pod(podIP=""), container="vllm").endpoint == ""


@pytest.mark.parametrize(
    ("names", "wanted", "want", "reason"),
    [
        (["model"], "", "model", "the only one"),
        (["proxy", "vllm"], "", "vllm", "the one named vllm"),
        (["proxy", "model"], "", None, "several, none named vllm"),
        (["proxy", "model"], "model", "model", "the named one"),
        (["model"], "other", None, "a name that is not there is not guessed"),
    ],
)
def test_pick_container(names: list[str], wanted: str, want: str | None, reason: str) -> None:
    found = pick_container([{"name": n} for n in names], wanted)
    assert (found["name"] if found else None) == want, reason
