"""Samples of one replica over time, and what happened between two moments.

Counters restart at 0 when the engine restarts in place. A restart is a restart of the whole
process, so it is detected once for all series and every series is then counted from 0: a sum and
its count can never be cut at different places.
"""

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.exposition import PROCESS_START, Key, Page
from specpilot.telemetry.names import QUANTILES, SPECULATION, Counter, Family, Gauge
from specpilot.telemetry.windows import (
    Fault,
    Histogram,
    ReplicaWindow,
    Speculation,
    unusable,
)

_RESTART_KEYS: tuple[Key, ...] = (
    *((counter, "") for counter in Counter if counter not in SPECULATION),
    *((family, "count") for family in Family),
)
"""Enough to notice a restart: some of them are above 0 in any engine that served a request."""

_NOT_COUNTED = frozenset[str]({*Gauge, PROCESS_START[0]})


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape, packed: the keys are shared by all samples of equal shape.

    Attributes:
        at: Seconds since the epoch.
        keys: Position of each number in `numbers`.
        numbers: The numbers.
        engine: Whether the page had any series of the engine.
        legacy: Whether it had the V0 engine's speculation series.
    """

    at: float
    keys: dict[Key, int]
    numbers: "array[float]"
    engine: bool
    legacy: bool

    def get(self, key: Key) -> float | None:
        """The number, None when the page did not have it."""
        place = self.keys.get(key)
        return None if place is None else self.numbers[place]


@dataclass(slots=True)
class History:
    """The samples of one replica, oldest first, no older than `keep_s` seconds."""

    keep_s: float
    samples: deque[Sample] = field(default_factory=deque)

    def add(self, at: float, page: Page) -> None:
        """Append a scrape made at `at` (seconds since the epoch)."""
        while self.samples and self.samples[-1].at >= at:
            self.samples.pop()  # the clock was set back: what lies ahead of it cannot be placed
        keys = {key: place for place, key in enumerate(page.values)}
        if self.samples and self.samples[-1].keys.keys() == keys.keys():
            keys = self.samples[-1].keys
        numbers = array("d", (page.values[key] for key in keys))
        self.samples.append(
            Sample(at=at, keys=keys, numbers=numbers, engine=page.engine, legacy=page.legacy)
        )
        while self.samples[0].at < at - self.keep_s:
            self.samples.popleft()

    def between(self, start: float, end: float) -> list[Sample]:
        """The samples of a window, its ends included."""
        return [sample for sample in self.samples if start <= sample.at <= end]


def window_of(
    samples: Sequence[Sample], *, replica: str, interval_s: float, declared_on: bool
) -> ReplicaWindow:
    """What happened from the first to the last of these samples (in order, at least one)."""
    if not samples[-1].engine:
        words = (
            "answers /metrics, but with no vllm: series; the engine was started with "
            "--disable-log-stats: remove the flag"
        )
        fault = Fault(reason=UnknownReason.NOT_EXPORTED, words=words)
        return ReplicaWindow(replica=replica, fault=fault, declared_on=declared_on)
    samples = [sample for sample in samples if sample.engine]
    first, last = samples[0], samples[-1]
    deltas, faults = _increases(samples)
    gauges = _means(samples, faults)
    speculation = Speculation.ABSENT
    if last.legacy:
        speculation = Speculation.LEGACY
    elif (Counter.DRAFTS, "") in last.keys:
        speculation = Speculation.PRESENT
    return ReplicaWindow(
        replica=replica,
        first=datetime.fromtimestamp(first.at, UTC),
        last=datetime.fromtimestamp(last.at, UTC),
        samples=len(samples),
        span_s=last.at - first.at,
        interval_s=interval_s,
        counters={name: deltas[name, ""] for name in Counter if (name, "") in deltas},
        histograms=_histograms(deltas),
        gauges=gauges,
        faults=faults,
        speculation=speculation,
        declared_on=declared_on,
    )


def _restarted(before: Sample, after: Sample) -> bool:
    started, since = before.get(PROCESS_START), after.get(PROCESS_START)
    if started is not None and since is not None and since > started + 1:
        return True
    for key in _RESTART_KEYS:
        old = before.get(key)
        if old is not None and old > 0:
            new = after.get(key)
            if new is None or new < old:
                return True
    return False


def _increases(samples: Sequence[Sample]) -> tuple[dict[Key, float], dict[str, Fault]]:
    """Increase of every counter-like number, restarts included, and the names that have none."""
    runs: list[tuple[Sample | None, Sample]] = []
    begin: Sample | None = samples[0]
    for before, after in pairwise(samples):
        if _restarted(before, after):
            runs.append((begin, before))
            begin = None  # after a restart everything is counted from 0
    runs.append((begin, samples[-1]))

    parts: dict[Key, list[float]] = {}
    faults: dict[str, Fault] = {}
    for start, end in runs:
        for key in end.keys:
            name = key[0]
            if name in _NOT_COUNTED or name in faults:
                continue
            value = end.get(key) or 0.0
            # A series that came into being meanwhile stood at 0 before.
            base = (start.get(key) if start is not None else None) or 0.0
            fault = unusable(value) or unusable(base)
            if fault is None and value < base:
                fault = Fault(
                    reason=UnknownReason.AMBIGUOUS,
                    words="a counter fell without a restart: is one address served by several "
                    "engines?",
                )
            if fault is not None:
                faults[name] = fault
                continue
            parts.setdefault(key, []).append(value - base)
    deltas = {key: math.fsum(each) for key, each in parts.items() if key[0] not in faults}
    if not deltas and not faults:
        deltas = nothing_yet()
    return deltas, faults


def nothing_yet() -> dict[Key, float]:
    """An engine of 0.8 exports its series with the first request only: until then all is 0."""
    counters: dict[Key, float] = {(n, ""): 0.0 for n in Counter if n not in SPECULATION}
    parts: dict[Key, float] = {
        (family, part): 0.0
        for family in Family
        if family is not Family.TPOT  # these engines never had it
        for part in ("sum", "count")
    }
    return counters | parts


def _histograms(deltas: dict[Key, float]) -> dict[Family, Histogram]:
    found = {}
    for family in Family:
        total, count = deltas.get((family, "sum")), deltas.get((family, "count"))
        if total is None or count is None:
            continue
        buckets: list[tuple[float, float]] = []
        if family in QUANTILES:
            buckets = sorted(
                (part, delta)
                for (name, part), delta in deltas.items()
                if name == family and isinstance(part, float)
            )
        found[family] = Histogram(sum=total, count=count, buckets=tuple(buckets))
    return found


def _means(samples: Sequence[Sample], faults: dict[str, Fault]) -> dict[Gauge, float]:
    """Means over time (trapezoids). Where a gauge was absent it counts as 0, see `reads.gauge`."""
    means = {}
    for gauge in Gauge:
        values = [sample.get((gauge, "")) for sample in samples]
        if all(value is None for value in values):
            continue
        bad = (unusable(value) for value in values if value is not None)
        if fault := next((each for each in bad if each is not None), None):
            faults[gauge] = fault
            continue
        points = [(s.at, v or 0.0) for s, v in zip(samples, values, strict=True)]
        areas = [(a + b) / 2 * (then - at) for (at, a), (then, b) in pairwise(points)]
        span = points[-1][0] - points[0][0]
        means[gauge] = math.fsum(areas) / span if span > 0 else points[0][1]
    return means
