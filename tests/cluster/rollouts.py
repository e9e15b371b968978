"""The real Argo Rollouts controller in a test cluster: CRDs and program from its Go module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import yaml

from tests.cluster import build
from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.manifests import JsonObject, deployment
from tests.cluster.ports import free_port
from tests.cluster.processes import Process
from tests.cluster.waiting import wait_for

_DEADLINE = 60.0


@contextlib.contextmanager
def argo_rollouts(cluster: Cluster) -> Iterator[Process]:
    """Install the CRDs and run the controller until the end of the block."""
    program = build.tool(build.ROLLOUTS)["rollouts-controller"]
    crds = build.module_directory(build.ROLLOUTS) / "manifests" / "crds"
    for path in sorted(crds.glob("*-crd.yaml")):
        cluster.api.apply(yaml.safe_load(path.read_text()))
    wait_for(lambda: _served(cluster), describe="the API server serves Rollouts")
    health = free_port()
    controller = Process(
        name="rollouts-controller",
        command=[
            program,
            f"--kubeconfig={cluster.kubeconfig}",
            "--leader-elect=false",
            f"--healthzPort={health}",
            f"--metricsPort={free_port()}",
        ],
        log=cluster.directory / "rollouts-controller.log",
    )
    controller.start()
    try:
        controller.wait_ready(lambda: _healthy(health), deadline=_DEADLINE)
        yield controller
    finally:
        controller.stop()


def _served(cluster: Cluster) -> bool:
    with contextlib.suppress(ApiError):
        cluster.api.request("GET", "/apis/argoproj.io/v1alpha1/rollouts")
        return True
    return False


def _healthy(port: int) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).is_success
    return False


def rollout(
    name: str,
    *containers: JsonObject,
    replicas: int = 1,
    steps: Sequence[JsonObject] = (),
    canary: JsonObject | None = None,
    **rest: Any,
) -> JsonObject:
    """A Rollout with the canary strategy that selects its pods by the label ``app``."""
    found = deployment(name, *containers, replicas=replicas, **rest)
    strategy = {"canary": {**(canary or {}), **({"steps": list(steps)} if steps else {})}}
    return {
        **found,
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "spec": {**found["spec"], "strategy": strategy},
    }
