"""GPUs are scarce in the test cluster as they are in a real one: the scheduler counts them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.conditions import condition, is_ready, is_rolled_out
from tests.cluster.manifests import container, deployment, pod
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """A node with one GPU, for the pods that select it."""
    name = f"small-{uuid.uuid4().hex[:6]}"
    cluster.nodes.add(name, gpus=1)
    yield name
    if cluster.api.exists("v1", "Node", name=name):
        cluster.nodes.remove(name)


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


def test_a_surge_pod_waits_for_a_gpu(cluster: Cluster, namespace: str, node: str) -> None:
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    manifest = deployment("vllm", container(gpus=1), strategy=surge, nodeSelector=on(node))
    cluster.api.create(manifest, namespace=namespace)
    wait_for(
        lambda: is_rolled_out(
            cluster.api.get("apps/v1", "Deployment", name="vllm", namespace=namespace)
        ),
        describe=lambda: cluster.describe(namespace),
    )
    patch = {"spec": {"template": {"metadata": {"annotations": {"flag": "on"}}}}}
    cluster.api.patch("apps/v1", "Deployment", name="vllm", namespace=namespace, patch=patch)

    def stuck() -> bool:
        waiting = [
            one for one in cluster.pods(namespace) if condition(one, "PodScheduled") == "False"
        ]
        return bool(waiting) and "Insufficient nvidia.com/gpu" in str(waiting[0]["status"])

    wait_for(stuck, describe=lambda: cluster.describe(namespace))
    running = [one for one in cluster.pods(namespace) if is_ready(one)]
    assert len(running) == 1, "the old pod keeps serving, and keeps the GPU"

    cluster.api.delete("v1", "Pod", name=running[0]["metadata"]["name"], namespace=namespace)
    wait_for(
        lambda: any(
            is_ready(one) and one["metadata"]["annotations"].get("flag") == "on"
            for one in cluster.pods(namespace)
        ),
        describe=lambda: cluster.describe(namespace),
    )


def test_a_cordoned_node_takes_no_pods(cluster: Cluster, namespace: str, node: str) -> None:
    cluster.nodes.cordon(node)
    cluster.api.create(pod("late", container(), nodeSelector=on(node)), namespace=namespace)
    wait_for(
        lambda: condition(cluster.pods(namespace)[0], "PodScheduled") == "False",
        describe=lambda: cluster.describe(namespace),
    )
    cluster.nodes.cordon(node, unschedulable=False)
    wait_for(
        lambda: is_ready(cluster.pods(namespace)[0]), describe=lambda: cluster.describe(namespace)
    )


def test_a_lost_node_takes_its_pods_along(cluster: Cluster, namespace: str, node: str) -> None:
    cluster.api.create(pod("lost", container(), nodeSelector=on(node)), namespace=namespace)
    wait_for(
        lambda: is_ready(cluster.pods(namespace)[0]), describe=lambda: cluster.describe(namespace)
    )
    cluster.nodes.remove(node)
    wait_for(lambda: not cluster.pods(namespace), describe=lambda: cluster.describe(namespace))
