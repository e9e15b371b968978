"""Whether a node has room for one more pod that wants GPUs.

A surge pod that no node can take stays Pending for ever while the roll waits for it: with one
replica on one GPU that is a deadlock. So before a flip the scheduler's arithmetic is done here,
on what nodes offer and pods request. It leaves out what rarely decides about GPU pods (topology
spread, pod affinity, priorities); being wrong costs a canary that is rolled back at its deadline.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

from kubernetes.utils.quantity import parse_quantity

from specpilot.domain.settings import canonical_json
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.objects import has_ended
from specpilot.fleets.kubernetes.request import NODES, PODS, Object

_log = logging.getLogger(__name__)

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Whether there is room, and how that is known."""

    there: bool
    message: str = ""


Amounts: TypeAlias = dict[str, Decimal]
"""Quantity per resource name."""

_AHEAD = 0.85
"""Share of a reading's time after which it is read anew by who does not wait for it."""

_AGAIN_S = 5.0
"""Seconds after which reading ahead is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What is on the nodes; `blind` says why that is not known."""

    nodes: list[Object] = field(default_factory=list)
    used: dict[str, Amounts] = field(default_factory=dict)
    blind: str = ""


def quantity(text: object) -> Decimal:
    """Read `500m`, `80Gi`, `1`."""
    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]  # not annotated there


def requests(spec: Mapping[str, Any]) -> Amounts:
    """What a pod asks of a node: its containers together, or its largest init container."""
    total: Amounts = {"pods": Decimal(1)}
    for container in spec.get("containers") or ():
        _add(total, _of(container))
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in spec.get("initContainers") or ():
        asked = _of(container)
        _add(asked, sidecars)
        if container.get("restartPolicy") == "Always":
            sidecars = asked
        for name, amount in asked.items():
            largest[name] = max(largest.get(name, Decimal(0)), amount)
    _add(total, sidecars)
    for name, amount in largest.items():
        total[name] = max(total.get(name, Decimal(0)), amount)
    _add(total, {name: quantity(v) for name, v in (spec.get("overhead") or {}).items()})
    return total


def _add(into: Amounts, other: Mapping[str, Decimal]) -> None:
    for name, amount in other.items():
        into[name] = into.get(name, Decimal(0)) + amount


def _of(container: Mapping[str, Any]) -> Amounts:
    resources = container.get("resources") or {}
    # A limit without a request is a request; for extended resources both are always equal.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(amount) for name, amount in asked.items()}


def wants_devices(asked: Mapping[str, object]) -> bool:
    """Whether an extended resource (a GPU, a slice of one, another accelerator) is requested."""
    return any(name not in _NATIVE and not name.startswith("hugepages-") for name in asked)


def fits(node: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether the scheduler may put such a pod on the node at all."""
    if (node.get("spec") or {}).get("unschedulable"):
        return False
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = affinity.get("nodeSelectorTerms")
    if terms and not any(_term(term, labels, str(node["metadata"]["name"])) for term in terms):
        return False
    return all(
        taint.get("effect") == "PreferNoSchedule"
        or any(_tolerates(t, taint) for t in spec.get("tolerations") or ())
        for taint in (node.get("spec") or {}).get("taints") or ()
    )


def _term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions = [(e, labels.get(e["key"])) for e in term.get("matchExpressions") or ()]
    expressions += [(e, name) for e in term.get("matchFields") or ()]
    return bool(expressions) and all(_matches(e, value) for e, value in expressions)


def _matches(expression: Mapping[str, Any], value: str | None) -> bool:
    values: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            try:
                left, right = int(value or ""), int(values[0])
            except ValueError:
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint.get("key")
    return bool(
        toleration.get("key") == taint.get("key")
        and (toleration.get("value") or "") == (taint.get("value") or "")
    )


def room_on(
    nodes: Sequence[Mapping[str, Any]],
    used: Mapping[str, Mapping[str, Decimal]],
    specs: Sequence[Mapping[str, Any]],
) -> Room:
    """Look for nodes that can take more pods, one after the other, as the scheduler would.

    Args:
        nodes: All nodes.
        used: Requests of the pods bound to each node, terminating ones included: they hold their
            devices until they are gone.
        specs: Specs of the pods.
    """
    taken = {name: dict(amounts) for name, amounts in used.items()}
    chosen: list[str] = []
    # The largest first: a group's pods are alike, and its leader may want less than a worker.
    for spec in sorted(specs, key=_devices, reverse=True):
        asked = requests(spec)
        candidates = [node for node in nodes if fits(node, spec)]
        node = next((n for n in candidates if _has(n, taken, asked)), None)
        if node is None:
            devices = ", ".join(f"{v} {k}" for k, v in asked.items() if wants_devices({k: v}))
            after = f" after {len(chosen)} of {len(specs)} pods have been placed" if chosen else ""
            return Room(
                there=False,
                message=f"none of {len(candidates)} nodes that suit the pod has {devices} to "
                f"spare{after}",
            )
        name = str(node["metadata"]["name"])
        _add(taken.setdefault(name, {}), asked)
        chosen.append(name)
    return Room(there=True, message=f"node {', '.join(chosen)} has room")


def _devices(spec: Mapping[str, Any]) -> Decimal:
    asked = requests(spec)
    return sum((v for k, v in asked.items() if wants_devices({k: v})), Decimal(0))


def _has(
    node: Mapping[str, Any],
    used: Mapping[str, Mapping[str, Decimal]],
    asked: Mapping[str, Decimal],
) -> bool:
    offered = (node.get("status") or {}).get("allocatable") or {}
    taken = used.get(node["metadata"]["name"], {})
    return all(
        quantity(offered.get(name, 0)) - taken.get(name, Decimal(0)) >= amount
        for name, amount in asked.items()
    )


class Capacity:
    """Answers from one reading of nodes and pods, shared by all targets for a while.

    Args:
        api: The API server; needs `list` on nodes, and on pods of all namespaces where they are
            not at hand.
        clock: Monotonic seconds.
        pods: The pods of all namespaces where they are at hand, None where they are not.
        fresh_s: How long a reading is used.
    """

    def __init__(
        self,
        api: Api,
        *,
        clock: Callable[[], float],
        pods: Callable[[], list[Object] | None] = lambda: None,
        fresh_s: float = 30.0,
    ) -> None:
        self._api = api
        self._pods = pods
        self._clock = clock
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._since: float | None = None  # the first reading that said what the last one did
        self._reading = _Reading()
        self._answers: dict[str, Room] = {}  # of this reading, by what of a pod decides
        self._asked = False  # since the reading
        self._not_before = float("-inf")  # no reading ahead

    def stands(self, since: float | None) -> bool:
        """Whether answers from when `since` was that are what would be said now."""
        with self._lock:
            self._asked |= since is not None
            return self._since == since and (since is None or not self._too_old())

    @property
    def since(self) -> float | None:
        """The moment since which readings say the same; None while nobody needed one."""
        with self._lock:
            return self._since

    def _too_old(self) -> bool:
        return self._read_at is None or self._clock() - self._read_at > self._fresh_s

    def room_for(self, specs: Sequence[Mapping[str, Any]]) -> Room:
        """Whether so many more pods find places; True, and why, where it cannot be known.

        Raises:
            ApiError: The API server did not answer.
        """
        with self._lock:
            key = "/".join(_deciding(spec) for spec in specs)
            if key not in self._answers:
                specs = [spec for spec in specs if wants_devices(requests(spec))]
                if not specs:
                    return Room(there=True)
            if self._too_old():
                now = self._clock()
                self._take(self._read(), at=now)
            self._asked = True
            if self._reading.blind:
                return Room(there=True, message=self._reading.blind)
            if key not in self._answers:
                self._answers[key] = room_on(self._reading.nodes, self._reading.used, specs)
            return self._answers[key]

    def freshen(self) -> None:
        """Read before a reading is too old, where somebody asks: so that a tick need not wait.

        Without an answer of the API server nothing changes, and who asks next is told.
        """
        with self._lock:
            at, now = self._read_at, self._clock()
            if at is None or not self._asked or now - at < self._fresh_s * _AHEAD:
                return
            if now < self._not_before:
                return
            self._not_before = now + _AGAIN_S
        try:
            reading = self._read()
        except ApiError as error:
            _log.info("nodes could not be read ahead: %s", error)
            return
        with self._lock:
            if self._read_at == at:  # nobody has read since, who began later
                self._take(reading, at=now)

    def _read(self) -> _Reading:
        try:
            nodes, _ = self._api.all(NODES)
            pods = self._pods()
            if pods is None:
                pods, _ = self._api.all(PODS, field_selector=_RUNNING)
        except ApiError as error:
            if not error.forbidden:
                raise
            return _Reading(blind=f"room for another pod is assumed, not known: {error}")
        used: dict[str, Amounts] = {}
        for pod in pods:
            node = (pod.get("spec") or {}).get("nodeName")
            if node and not has_ended(pod):
                _add(used.setdefault(node, {}), requests(pod["spec"]))
        return _Reading(nodes=[_slim(node) for node in nodes], used=used)

    def _take(self, reading: _Reading, *, at: float) -> None:
        if reading.blind and not self._reading.blind:
            _log.warning("GPU room is not checked, it is taken for granted: %s", reading.blind)
        self._read_at, self._asked = at, False
        if self._since is None or reading != self._reading:
            self._reading, self._since, self._answers = reading, self._read_at, {}


def _slim(node: Object) -> Object:
    """What of a node is looked at here; its conditions are written anew all the time."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return {
        "metadata": {"name": meta["name"], "labels": meta.get("labels")},
        "spec": {name: spec.get(name) for name in ("unschedulable", "taints")},
        "status": {"allocatable": status.get("allocatable")},
    }


def _deciding(spec: Mapping[str, Any]) -> str:
    """What `room_on` looks at, as a key: a thousand targets ask for a few kinds of pods."""
    containers = [
        [(c.get("resources"), c.get("restartPolicy")) for c in spec.get(kind) or ()]
        for kind in ("containers", "initContainers")
    ]
    rest = [spec.get(name) for name in ("overhead", "nodeSelector", "affinity", "tolerations")]
    return canonical_json([containers, rest])
