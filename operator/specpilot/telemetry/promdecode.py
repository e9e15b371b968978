"""Prometheus' answers to the queries of `promql`, as looks at replicas.

They come as decoded by `promwire`, half a million numbers a round with thousands of pods.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.exposition import Key, Page, Part, Slot, Tally, add_calls, slot
from specpilot.telemetry.names import HTTP, LEGACY_SPECULATION, PREFIX, PREFIXES, Counter
from specpilot.telemetry.promql import Labels, State, wire_of
from specpilot.telemetry.promwire import elements, number, slim
from specpilot.telemetry.windows import Fault

Where = tuple[str, str]
"""Namespace and name of a pod."""

_LEGACY = frozenset(LEGACY_SPECULATION)


@dataclass(slots=True)
class Pod:
    """What one moment's answers say of a pod.

    Attributes:
        tally: Its numbers.
        means: Means of gauges, by wire name.
        seen: By every account (labels of the scrape), when it was seen last.
        info: When a series was seen that exists before the first request.
        up: Whether its scrape succeeds; None when it is not scraped at all.
        legacy: Whether it has the V0 engine's speculation series.
    """

    tally: Tally = field(default_factory=Tally)
    means: dict[str, float] = field(default_factory=dict)
    seen: dict[frozenset[Where], float] = field(default_factory=dict)
    info: float | None = None
    up: bool | None = None
    legacy: bool = False

    @property
    def at(self) -> float | None:
        """When its numbers were true; None when there are none."""
        return max(self.seen.values()) if self.seen else self.info

    def page(self) -> Page:
        """Its numbers as one look; they are handed over and not kept."""
        tally, self.tally = self.tally, Tally()
        for wire, mean in self.means.items():
            tally.add(slot(wire, ""), mean)
        return tally.page(engine=True, legacy=self.legacy)

    def fault(self) -> Fault | None:
        """Why its numbers cannot be used."""
        if len(self.seen) > 1:
            words = (
                f"Prometheus holds {len(self.seen)} copies of this pod's series "
                f"({_difference(self.seen)}): scrape it once, or choose one copy with matchers"
            )
            return Fault(reason=UnknownReason.AMBIGUOUS, words=words)
        if self.seen and (Counter.GENERATION_TOKENS, "") not in self.tally.once:
            words = (
                "Prometheus' answers contradict each other: it has seen this pod, and gives no "
                "numbers of it"
            )
            return Fault(reason=UnknownReason.SOURCE_ERROR, words=words)
        if self.at is not None:
            return None
        if self.up:
            words = (
                f"Prometheus scrapes this pod but finds no {PREFIX} series; the engine was started "
                "with --disable-log-stats, or another port is scraped"
            )
            return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)
        return NOT_SCRAPED if self.up is None else DOWN


DOWN = Fault(
    reason=UnknownReason.NO_DATA,
    words="Prometheus cannot scrape this pod; see why on its Targets page",
)
NOT_SCRAPED = Fault(
    reason=UnknownReason.NO_DATA,
    words="Prometheus has no series of this pod: add a PodMonitor (or a scrape job that sets the "
    "labels namespace and pod)",
)


class Pods(dict[Where, Pod]):
    """The answers of one moment, by pod."""

    def __missing__(self, where: Where) -> Pod:
        pod = self[where] = Pod()
        return pod

    def absorb_values(self, body: bytes, labels: Labels) -> set[Where]:
        """Add the answer to `values`, `buckets` or `gauges`; return the pods it is about.

        Raises:
            Answer: It is none.
        """
        return self.take_values(slim(body, labels))

    def take_values(self, elements: Iterable[Any]) -> set[Where]:
        """Add decoded elements of `values`, `buckets` or `gauges`; return their pods."""
        # Half a million times a round with thousands of pods: nothing is called that need not be.
        # Prometheus gives one name after the other, and each name of one pod after the other.
        found: dict[str, dict[str, tuple[Pod, dict[Key, float]]]] = {}
        namespace = name = bound = at = ""
        inside = found.setdefault(namespace, {})
        place = _place(name, bound, at)
        plain = place.plain
        for element in elements:
            metric = element.metric
            if metric.namespace != namespace:
                namespace = metric.namespace
                inside = found.setdefault(namespace, {})
            entry = inside.get(metric.pod)
            if entry is None:
                pod = self[namespace, metric.pod]
                entry = inside[metric.pod] = (pod, pod.tally.once)
            if metric.name != name or metric.le != bound or metric.position != at:
                name, bound, at = metric.name, metric.le, metric.position
                place = _place(name, bound, at)
                plain = place.plain
            value = element.value.number
            if plain is not None and entry[1].setdefault(plain, value) is value:
                continue  # met for the first time
            if metric.status:
                add_calls(entry[0].tally, metric.status, value)
            elif place.legacy:
                entry[0].legacy = True
            elif place.slot is not None:
                entry[0].tally.add(place.slot, value)
            elif not metric.name:
                entry[0].means[metric.series] = value
        return {(namespace, pod) for namespace, inside in found.items() for pod in inside}

    def absorb_state(self, body: bytes, labels: Labels) -> None:
        """Add the answer to `state`.

        Raises:
            Answer: It is none.
        """
        self.take_state(elements(body), labels)

    def take_state(self, elements: Iterable[Any], labels: Labels) -> None:
        """Add decoded elements of `state`."""
        for element in elements:
            metric, value = element.metric, element.value.number
            if not math.isfinite(value):
                continue  # no time, and no answer to whether a scrape succeeds
            pod = self[metric.get(labels.namespace, ""), metric.get(labels.pod, "")]
            series = metric.get("series", "")
            if series == State.LIVE:
                told = {labels.namespace, labels.pod, "series"}
                pod.seen[frozenset(m for m in metric.items() if m[0] not in told)] = value
            elif series == State.INFO:
                pod.info = value
            elif series == State.UP:
                pod.up = value >= 1


class _Place(NamedTuple):
    """Where a series is counted in.

    Attributes:
        plain: Its key, where nothing needs to be known but that it is met for the first time.
        slot: Its slot; None for one that is not wanted.
        legacy: Whether it is one of the V0 engine's speculation.
    """

    plain: Key | None
    slot: Slot | None
    legacy: bool


def _wired(name: str, bound: str, position: str) -> tuple[str | None, Part]:
    """Wire name and part of a series; no wire name for one that is not wanted."""
    for ending in ("_sum", "_count", "_bucket"):
        if name.endswith(ending) and (wire := wire_of(name.removesuffix(ending))) is not None:
            return wire, number(bound) if ending == "_bucket" else ending[1:]
    if position:
        return wire_of(name), position
    return wire_of(name), ""


@lru_cache(maxsize=8192)
def _place(name: str, bound: str, position: str) -> _Place:
    wire, part = _wired(name, bound, position)
    if wire is None:
        bare = name.removesuffix("_total")
        legacy = any(bare == prefix + each for prefix in PREFIXES for each in _LEGACY)
        return _Place(None, None, legacy)
    found = slot(wire, part)
    key, rank = found
    return _Place(key if rank is None and key[0] not in HTTP else None, found, legacy=False)


def _difference(accounts: Mapping[frozenset[Where], float]) -> str:
    """Which labels tell the accounts apart."""
    shared = frozenset.intersection(*accounts)
    by_label: dict[str, set[str]] = {}
    for account in accounts:
        for label, value in account - shared:
            by_label.setdefault(label, set()).add(value)
    return "; ".join(f"{label}: {', '.join(sorted(by_label[label]))}" for label in sorted(by_label))
