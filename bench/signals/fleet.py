"""The fleet that is measured: Deployments of four pods, every other one speculating.

Every name is a function of its number, so that the processes of the benchmark agree on the fleet
without sending it to each other. All names of one kind have the same length, which lets a text that
was made for one pod be turned into another pod's by replacing bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from specpilot.domain.policy import TelemetrySource
from specpilot.domain.ports import Ask
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica, TargetRef

NAMESPACES = 50
PODS_PER_POLICY = 4
WINDOW_S = 300.0
STEP_S = 15.0
"""The scrape interval of the Prometheus that is asked, and of the product's sampling."""

_ON = Declared(setting="ngram", config='{"method":"ngram","num_speculative_tokens":4}')
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of which Kubernetes makes the ends of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod; `number` counts over the whole fleet."""

    number: int
    policy: int

    @property
    def name(self) -> str:
        """As a Deployment names it: the workload, the template's hash, five characters."""
        return f"{workload(self.policy)}-{_end(f'rs{self.policy}', 10)}-{_end(str(self.number), 5)}"

    @property
    def instance(self) -> str:
        """Address and port, as Prometheus labels what it scrapes."""
        thousands, rest = divmod(self.number, 10_000)
        hundreds, ones = divmod(rest, 100)
        return f"10.{100 + thousands}.{100 + hundreds}.{100 + ones}:8000"

    @property
    def namespace(self) -> str:
        return namespace(self.policy)

    @property
    def speculates(self) -> bool:
        return speculates(self.policy)

    @property
    def scrape_labels(self) -> dict[str, str]:
        """What a PodMonitor adds to every series of the pod."""
        return {
            "namespace": self.namespace,
            "pod": self.name,
            "container": "vllm",
            "endpoint": "http",
            "job": "monitoring/vllm",
            "instance": self.instance,
        }

    def replica(self) -> Replica:
        """The pod as the fleet reports it: in service for a day."""
        return Replica(
            id=self.name,
            namespace=self.namespace,
            instance=f"uid-{self.number}",
            declared=_ON if self.speculates else Declared(),
            ready=True,
        )


@dataclass(frozen=True)
class Fleet:
    """The first `pods` pods of an endless row of policies."""

    pods: int

    @cached_property
    def all(self) -> tuple[Pod, ...]:
        return tuple(Pod(number=i, policy=i // PODS_PER_POLICY) for i in range(self.pods))

    @property
    def policies(self) -> int:
        return -(-self.pods // PODS_PER_POLICY)

    def by_kind(self) -> dict[tuple[str, bool], list[Pod]]:
        """The pods by what their numbers depend on: the namespace, and whether they speculate."""
        found: dict[tuple[str, bool], list[Pod]] = {}
        for pod in self.all:
            found.setdefault((pod.namespace, pod.speculates), []).append(pod)
        return found

    def templates(self) -> Iterator[Pod]:
        """One pod of each kind."""
        return (pods[0] for pods in self.by_kind().values())

    def asks(
        self, end: datetime, *, signals: frozenset[str], window_s: float = WINDOW_S
    ) -> list[Ask]:
        """What a tick asks: one question a policy."""
        together: dict[int, list[Replica]] = {}
        for pod in self.all:
            together.setdefault(pod.policy, []).append(pod.replica())
        return [
            Ask(
                key=workload(policy),
                target=target(policy),
                replicas=tuple(replicas),
                start=end - timedelta(seconds=window_s),
                end=end,
                source=TelemetrySource.PROMETHEUS,
                signals=signals,
            )
            for policy, replicas in together.items()
        ]


def workload(policy: int) -> str:
    """Name of the policy's Deployment."""
    return f"vllm-chat-{policy:05d}"


def namespace(policy: int) -> str:
    return f"team-{policy % NAMESPACES:02d}"


def speculates(policy: int) -> bool:
    return policy // NAMESPACES % 2 == 0


def target(policy: int) -> TargetRef:
    return TargetRef(kind="Deployment", namespace=namespace(policy), name=workload(policy))


def _end(seed: str, length: int) -> str:
    digest = hashlib.sha256(seed.encode()).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:length])
