"""What the tests of the Kubernetes fleet share: a wired workload, and the fleet that steers it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Channel, TargetRef, TargetState
from specpilot.fleets.kubernetes import Api, KubernetesFleet, connect
from specpilot.fleets.kubernetes.wiring import ARGUMENT, FIELD_PATH, VARIABLE
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from tests.cluster.cluster import Cluster
from tests.cluster.conditions import is_rolled_out
from tests.cluster.manifests import container, deployment, field
from tests.cluster.waiting import wait_for

Manifest = dict[str, Any]

NGRAM = Declared(
    setting="ngram",
    config='{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}',
    change_id="chat-1",
)
OFF_AGAIN = Declared(setting="off", config="", change_id="chat-2")
NEVER_OURS = Declared()

EVERY_S = 0.3
"""Seconds between two looks. A look is up to eight requests: looking without a pause takes more of
the machine than what is waited for, and the controller itself looks once a second.
"""


class WallClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def engine(*args: str, wired: bool = True, **rest: Any) -> Manifest:
    """A container that follows the annotations."""
    env = [field(VARIABLE, FIELD_PATH)] if wired else []
    return container(name="vllm", args=[*args, *([ARGUMENT] if wired else [])], env=env, **rest)


def rolling_update(surge: int | str, unavailable: int | str) -> Manifest:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


@dataclass(frozen=True)
class Target:
    """One workload, the fleet that steers it, and the user who owns it."""

    cluster: Cluster
    fleet: KubernetesFleet
    ref: TargetRef

    def observe(self) -> TargetState:
        return self.fleet.observe(self.ref)

    def intend(
        self,
        declared: Declared,
        extent: Extent,
        *,
        canary_replicas: int = 1,
        previous: Declared = NEVER_OURS,
    ) -> Intent:
        return Intent(
            target=self.ref,
            declared=declared,
            extent=extent,
            canary_replicas=canary_replicas,
            previous=previous,
        )

    def carry_out(self, declared: Declared, extent: Extent, *, canary_replicas: int = 1) -> bool:
        return self.fleet.carry_out(self.intend(declared, extent, canary_replicas=canary_replicas))

    def reconcile(
        self,
        declared: Declared,
        extent: Extent,
        until: Callable[[TargetState], bool],
        *,
        canary_replicas: int = 1,
        deadline: float = 30.0,
    ) -> TargetState:
        """Do what the controller does: the same step again and again until it holds."""

        def step() -> TargetState | None:
            self.carry_out(declared, extent, canary_replicas=canary_replicas)
            state = self.observe()
            return state if until(state) else None

        return wait_for(step, deadline=deadline, describe=self.describe, every=EVERY_S)

    def until(self, done: Callable[[TargetState], bool], *, deadline: float = 30.0) -> TargetState:
        def look() -> TargetState | None:
            state = self.observe()
            return state if done(state) else None

        return wait_for(look, deadline=deadline, describe=self.describe, every=EVERY_S)

    def object(self) -> Manifest:
        return self.cluster.api.get(
            self.api_version, self.ref.kind, name=self.ref.name, namespace=self.ref.namespace
        )

    def replica_sets(self) -> dict[str, int]:
        """Name and number of pods of each ReplicaSet."""
        found = self.cluster.api.list("apps/v1", "ReplicaSet", namespace=self.ref.namespace)
        return {rs["metadata"]["name"]: rs["spec"]["replicas"] for rs in found}

    def pods(self) -> dict[str, str]:
        """Uid and name of each pod that is not going away."""
        return {
            pod["metadata"]["uid"]: pod["metadata"]["name"]
            for pod in self.cluster.pods(self.ref.namespace)
            if "deletionTimestamp" not in pod["metadata"]
        }

    def apply(self, manifest: Manifest, *, manager: str = "tests") -> Manifest:
        return self.cluster.api.apply(manifest, namespace=self.ref.namespace, manager=manager)

    def patch(self, patch: Manifest) -> Manifest:
        return self.cluster.api.patch(
            self.api_version,
            self.ref.kind,
            name=self.ref.name,
            namespace=self.ref.namespace,
            patch=patch,
        )

    @property
    def api_version(self) -> str:
        return WORKLOADS[self.ref.kind].resource.api_version

    def describe(self) -> str:
        return f"{self.observe()}\n{self.cluster.describe(self.ref.namespace)}"


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Api]:
    connected = connect(kubeconfig=str(cluster.kubeconfig))
    with contextlib.closing(connected):
        yield connected


MakeTarget = Callable[..., Target]


def held(declared: Declared, *, ready: int = 1) -> Callable[[TargetState], bool]:
    """A canary that stands, and a roll that waits for word."""

    def holds(state: TargetState) -> bool:
        return state.halted and sum(r.ready for r in state.arm(declared)) >= ready

    return holds


def all_run(declared: Declared) -> Callable[[TargetState], bool]:
    return lambda state: state.all_run(declared)


def arguments(state: TargetState) -> dict[str, list[str]]:
    """What each replica's process was really started with."""
    return {
        r.id: httpx.get(r.endpoint, trust_env=False).json()["arguments"]
        for r in state.live()
        if r.ready
    }


@pytest.fixture
def make_target(cluster: Cluster, namespace: str, api: Api) -> MakeTarget:
    """Create a workload as its user would, and wait until it stands (unless told not to)."""

    def make(
        *containers: Manifest,
        replicas: int = 3,
        strategy: Manifest | None = None,
        standing: bool = True,
        wrap: Callable[[Manifest], Manifest] = lambda manifest: manifest,
        kind: Callable[..., Manifest] = deployment,
        channel: Channel = Channel.AUTO,
        **rest: Any,
    ) -> Target:
        if kind is deployment:
            rest["strategy"] = strategy or rolling_update(1, 0)
        manifest = wrap(
            kind(
                "chat",
                *(containers or (engine(),)),
                replicas=replicas,
                **rest,
            )
        )
        target = Target(
            cluster=cluster,
            fleet=KubernetesFleet(api),
            ref=TargetRef(kind=manifest["kind"], namespace=namespace, name="chat", channel=channel),
        )
        target.apply(manifest)
        if standing:
            wait_for(
                lambda: is_rolled_out(target.object()),
                deadline=60,
                describe=lambda: cluster.describe(namespace),
            )
        return target

    return make
