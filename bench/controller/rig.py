"""The control plane with many workloads in it, and the world around it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import yaml

from bench.controller import audit, fleet
from bench.controller.audit import AuditLog
from tests.cluster import build
from tests.cluster.api import Api, ApiError
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubelet.options import KubeletOptions
from tests.cluster.ports import free_port
from tests.cluster.processes import Process
from tests.cluster.waiting import wait_for

JsonObject = dict[str, Any]

ROOT = Path(__file__).parents[2]
USER = "specpilot"
_WORKERS = 8
_PAGE = 500
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the Prometheus was asked in some time.

    Attributes:
        queries: How many queries came.
        looks: The moment that each look was about, in seconds since the epoch, and its namespaces.
        body_bytes: Length of the answers, before compression.
    """

    queries: int
    looks: list[tuple[float, list[str]]]
    body_bytes: int


class Rig:
    """Starts everything but the operator; a context manager.

    Args:
        directory: For data and logs.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self.directory / "audit.log"
        rules = self.directory / "audit.json"
        rules.write_text(audit.policy(USER))
        self.audit = AuditLog(log)
        fast = ("--kube-api-qps=5000", "--kube-api-burst=10000")
        self.control_plane = ControlPlane(
            directory=self.directory / "control-plane",
            programs=build.tools(quiet=True),
            users={USER: ("system:masters",)},
            arguments={
                "kube-apiserver": [
                    f"--audit-policy-file={rules}",
                    f"--audit-log-path={log}",
                    "--audit-log-maxsize=4000",
                    # Answers of the server are what is counted, not how it shares itself out.
                    "--enable-priority-and-fairness=false",
                ],
                "kube-controller-manager": [
                    *fast,
                    f"--controllers={','.join(_CONTROLLERS)}",
                    "--concurrent-deployment-syncs=10",
                    "--concurrent-replicaset-syncs=10",
                ],
            },
        )
        self._port = free_port()
        self._world = self._new_world()
        self._http = httpx.Client(base_url=self.prometheus, timeout=60, trust_env=False)
        self._targets = 0

    def _new_world(self) -> Process:
        plane = self.control_plane
        options = self.directory / "world.json"
        KubeletOptions(
            server=plane.server,
            token=plane.token,
            ca_file=plane.ca_file,
            tls_cert_file=plane.ca_file,
            tls_key_file=plane.tls_key_file,
            directory=self.directory,
            images_file=self.directory / "images.json",
            subnet=1,
            port=self._port,
        ).save(options)
        path = [str(ROOT), str(ROOT / "operator")]
        return Process(
            name="world",
            command=[sys.executable, "-m", "bench.controller.world", options],
            log=self.directory / "world.log",
            environment={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            directory=ROOT,
        )

    @property
    def prometheus(self) -> str:
        """URL of the Prometheus."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """The operator's."""
        return self.control_plane.user(USER).kubeconfig

    @property
    def api(self) -> Api:
        return self.control_plane.api

    def __enter__(self) -> Self:
        try:
            self.control_plane.start()
            # The scheduler has nothing to do: pods are bound by their templates.
            self.control_plane.scheduler.stop()
            self._world.start()
            self._world.wait_ready(self._world_answers, deadline=60)
            self._install()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything."""
        self._http.close()
        self._world.stop()
        self.control_plane.stop()

    def _world_answers(self) -> bool:
        try:
            return self._http.get("/pods").is_success
        except httpx.HTTPError:
            return False

    def _install(self) -> None:
        for path in sorted((ROOT / "charts" / "specpilot" / "crds").glob("*.yaml")):
            for manifest in yaml.safe_load_all(path.read_text()):
                self.api.apply(manifest)
        wait_for(self._kinds_served, describe="the API server serves the custom resources")

    def _kinds_served(self) -> bool:
        try:
            self.api.list(fleet.API, "SpeculationPolicy")
            self.api.list(fleet.API, "RuleSet")
        except (ApiError, LookupError):
            return False
        return True

    # --- what is steered

    def grow(self, targets: int) -> None:
        """Add Deployments, and wait until all their pods serve.

        Policies come afterwards (`govern`), for an operator that meets a cluster as it is.
        """
        new = range(self._targets, targets)
        where = sorted(
            {fleet.namespace(i) for i in new} - {fleet.namespace(i) for i in range(self._targets)}
        )
        self._each(self._namespace, where)
        self._each(self._node, sorted({fleet.node_name(i) for i in new}))
        self._each(lambda i: self._create("apis/apps/v1", "deployments", fleet.deployment(i)), new)
        self._targets = targets
        wanted = targets * fleet.REPLICAS
        wait_for(
            lambda: self._http.get("/pods").json()["served"] >= wanted,
            deadline=120 + targets,
            every=0.5,
            describe=lambda: f"{wanted} pods serve: {self._http.get('/pods').json()}",
        )
        group = "apis/specpilot.io/v1alpha1"
        self._each(lambda name: self._create(group, "rulesets", fleet.rule_set(name)), where)
        self._each(lambda i: self._create(group, "speculationpolicies", fleet.policy(i)), new)

    def _each(self, work: Callable[[Any], object], items: Iterable[Any]) -> None:
        with ThreadPoolExecutor(_WORKERS) as pool:
            for _ in pool.map(work, items):
                pass

    def _create(self, group: str, plural: str, manifest: JsonObject) -> None:
        where = manifest["metadata"]["namespace"]
        self.api.request("POST", f"/{group}/namespaces/{where}/{plural}", body=manifest)

    def _namespace(self, name: str) -> None:
        self.api.request(
            "POST", "/api/v1/namespaces", body={"kind": "Namespace", "metadata": {"name": name}}
        )
        wait_for(
            lambda: self.api.exists("v1", "ServiceAccount", name="default", namespace=name),
            describe=f"ServiceAccount default of namespace {name}",
        )

    def _node(self, name: str) -> None:
        try:
            self.api.request("POST", "/api/v1/nodes", body=fleet.node(name))
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        # Admission taints a new node as not ready, and the controller that would lift it is off.
        self.api.patch("v1", "Node", name=name, patch={"spec": {"taints": []}})

    def policies(self) -> list[JsonObject]:
        """All policies, with their statuses."""
        return self._all("speculationpolicies")

    def changes(self) -> list[JsonObject]:
        """All flag changes that are shown."""
        return self._all("flagchanges")

    def _all(self, plural: str) -> list[JsonObject]:
        """Page by page: a busy server cuts off an answer of thousands of objects."""
        found: list[JsonObject] = []
        query = {"limit": str(_PAGE)}
        while True:
            answer = self.api.request("GET", f"/apis/{fleet.API}/{plural}", query=query)
            found += answer["items"]
            token = answer["metadata"].get("continue")
            if not token:
                return found
            query = {"limit": str(_PAGE), "continue": token}

    # --- the Prometheus

    def asked(self) -> Asked:
        """What the Prometheus was asked since the last call."""
        return Asked(**self._http.get("/account").json())

    def raise_load(self, moments: dict[int, float]) -> None:
        """Let the load of targets rise, each at its moment (seconds since the epoch)."""
        body = {f"{fleet.namespace(i)}/{fleet.workload(i)}": at for i, at in moments.items()}
        self._http.post("/risen", content=json.dumps(body)).raise_for_status()
