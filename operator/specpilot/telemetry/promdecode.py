"""Prometheus' answers to the queries of `promql`, as windows of replicas.

Prometheus does not say which replica a number belongs to, only where it was scraped. A pod's series
may therefore come in several copies: of an earlier pod of the same name (told by having no sample
at the end of the window), or of a second scrape job. Copies that agree on every number are one;
copies that differ are Ambiguous, because adding them counts everything twice.

Known inexactness: `increase` extrapolates to the ends of the window, so counts are off by up to a
scrape interval's worth and need not be whole. Sums and counts of a histogram come from the same
scrapes and share the factor, so means and ratios are exact, except in the first interval of a
counter's life, where Prometheus limits the extrapolation of each series by itself.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.history import nothing_yet
from specpilot.telemetry.names import AVERAGED, PREFIX, QUANTILES, Counter, Family, Gauge
from specpilot.telemetry.promql import Labels, State, Topic
from specpilot.telemetry.windows import (
    Fault,
    Histogram,
    ReplicaWindow,
    Speculation,
    failed,
    unusable,
)

Where = frozenset[tuple[str, str]]
"""The labels that say where a series was scraped."""


@dataclass(slots=True)
class Copy:
    """One copy of a pod's series: per topic, the number of each term."""

    terms: dict[Topic, dict[str, float]] = field(default_factory=dict)
    buckets: dict[str, dict[float, float]] = field(default_factory=dict)

    def of(self, topic: Topic) -> dict[str, float]:
        """The terms of a topic."""
        return self.terms.setdefault(topic, {})

    def numbers(self) -> tuple[object, ...]:
        """What must be equal for two copies to be the same."""
        measured = (Topic.COUNTERS, Topic.TOTALS, Topic.GAUGES)
        return (*(self.of(topic) for topic in measured), self.buckets)


@dataclass(slots=True)
class Pod:
    """All copies of a pod, and what is known of the pod alone."""

    copies: dict[Where, Copy] = field(default_factory=dict)

    def alone(self) -> dict[str, float]:
        """Terms without any label but the pod's."""
        bare = self.copies.get(frozenset())
        return bare.of(Topic.STATE) if bare else {}

    def live(self) -> dict[Where, Copy]:
        """Copies with a sample at the end of the window."""
        return {w: c for w, c in self.copies.items() if State.LIVE in c.of(Topic.STATE)}


Pods = dict[tuple[str, str], Pod]
"""By namespace and pod name."""


def absorb(pods: Pods, topic: Topic, answer: Iterable[object], labels: Labels) -> None:
    """Add one query's answer.

    Raises:
        ValueError: The answer is not an instant vector.
    """
    for element in answer:
        metric, value = _element(element)
        namespace = metric.pop(labels.namespace, "")
        pod = metric.pop(labels.pod, "")
        series = metric.pop("series", "")
        bound = metric.pop("le", None) if topic is Topic.BUCKETS else None
        where = frozenset(metric.items())
        copy = pods.setdefault((namespace, pod), Pod()).copies.setdefault(where, Copy())
        if topic is not Topic.BUCKETS:
            copy.of(topic)[series] = value
        elif bound is not None:
            copy.buckets.setdefault(series, {})[float(bound)] = value


def _element(element: object) -> tuple[dict[str, str], float]:
    if isinstance(element, Mapping):
        metric, point = element.get("metric"), element.get("value")
        if isinstance(metric, Mapping) and isinstance(point, list) and len(point) == 2:  # noqa: PLR2004 - time and value
            return {str(k): str(v) for k, v in metric.items()}, float(point[1])
    raise ValueError(f"not an element of an instant vector: {str(element)[:80]}")


def window_of(pod: Pod | None, replica: Replica, *, end: float, length_s: float) -> ReplicaWindow:
    """The window of `length_s` seconds that ends at `end` (seconds since the epoch)."""
    live = (pod or Pod()).live()
    if len(live) > 1 and all(
        one.numbers() == other.numbers() for one, other in pairwise(live.values())
    ):
        live = dict([next(iter(live.items()))])
    if pod is None or not live:
        return _silent(pod or Pod(), replica, end=end, length_s=length_s)
    if len(live) > 1:
        words = (
            f"Prometheus holds {len(live)} different copies of this pod's series "
            f"({_difference(live)}): scrape it once, or choose one copy with matchers"
        )
        return failed(replica, UnknownReason.AMBIGUOUS, words)
    (copy,) = live.values()
    return _window(copy, replica, end=end, length_s=length_s)


def _silent(pod: Pod, replica: Replica, *, end: float, length_s: float) -> ReplicaWindow:
    """A pod without a live copy: say what Prometheus knows of it."""
    last = max(
        (copy.of(Topic.STATE).get(State.LAST, 0.0) for copy in pod.copies.values()), default=0
    )
    alone = pod.alone()
    if last > 0:
        words = (
            f"Prometheus got the last sample {end - last:.0f} s before the end of the window; "
            "see why on its Targets page"
        )
        return failed(replica, UnknownReason.STALE, words)
    if (newest := alone.get(State.INFO)) is not None:
        samples = int(alone.get(State.INFO_SAMPLES, 1))
        deltas = nothing_yet()
        interval = length_s / max(samples, 1)
        return ReplicaWindow(
            replica=replica.id,
            first=_time(newest - interval * (samples - 1)),
            last=_time(newest),
            samples=samples,
            span_s=length_s,
            interval_s=interval,
            counters={name: 0.0 for name in Counter if (name, "") in deltas},
            histograms={
                name: Histogram(sum=0.0, count=0.0) for name in Family if (name, "sum") in deltas
            },
            declared_on=bool(replica.declared.config),
        )
    if alone.get(State.UP, 0) >= 1:
        words = (
            "Prometheus scrapes this pod but finds no vllm: series; the engine was started with "
            "--disable-log-stats, or another port is scraped"
        )
        return failed(replica, UnknownReason.NOT_EXPORTED, words)
    if State.UP in alone:
        words = "Prometheus cannot scrape this pod; see why on its Targets page"
    else:
        words = (
            "Prometheus has no series of this pod: add a PodMonitor (or a scrape job that sets "
            "the labels namespace and pod)"
        )
    return failed(replica, UnknownReason.NO_DATA, words)


def _window(copy: Copy, replica: Replica, *, end: float, length_s: float) -> ReplicaWindow:
    state = copy.of(Topic.STATE)
    samples = int(state.get(State.SAMPLES, 0))
    last = state[State.LIVE]
    first = min(last, max(state.get(State.FIRST, last), end - length_s))
    interval = (last - first) / (samples - 1) if samples > 1 else 0.0
    faults: dict[str, Fault] = {}
    histograms = _histograms(copy, faults)
    speculation = Speculation.ABSENT
    if State.LEGACY in state:
        speculation = Speculation.LEGACY
    elif State.SPECULATION in state:
        speculation = Speculation.PRESENT
    counters = copy.of(Topic.COUNTERS)
    return ReplicaWindow(
        replica=replica.id,
        first=_time(first),
        last=_time(last),
        # Without a sample inside the window there is still the one that stands at its end.
        samples=max(samples, 1),
        span_s=_stands_for(first, last, interval, start=end - length_s, end=end),
        interval_s=interval,
        counters={name: counters[name] for name in Counter if name in counters},
        histograms=histograms,
        gauges=_gauges(copy, samples),
        faults=faults,
        speculation=speculation,
        declared_on=bool(replica.declared.config),
    )


def _stands_for(first: float, last: float, interval: float, *, start: float, end: float) -> float:
    """Seconds that `increase` extrapolated to: to an end of the window when it is near a sample."""
    if interval <= 0:
        return 0.0
    span = last - first
    for gap in (first - start, end - last):
        span += gap if gap < 1.1 * interval else interval / 2
    return span


def _histograms(copy: Copy, faults: dict[str, Fault]) -> dict[Family, Histogram]:
    totals, falls = copy.of(Topic.TOTALS), copy.of(Topic.RESTARTS)
    restarts = falls.get(Counter.GENERATION_TOKENS, 0)
    found = {}
    for family in Family:
        total, count = totals.get(f"{family}_sum"), totals.get(f"{family}_count")
        if total is None or count is None:
            continue
        buckets = tuple(sorted(copy.buckets.get(family, {}).items())) if family in QUANTILES else ()
        bad = (unusable(increase) for _, increase in buckets)
        if fault := next((each for each in bad if each is not None), None):
            faults[family] = fault
        if falls.get(family, 0) > restarts:
            words = (
                f"the sum of {PREFIX}{family} fell without a restart, which Prometheus counts as "
                "growth; the direct scrape is not misled"
            )
            faults[family] = Fault(reason=UnknownReason.AMBIGUOUS, words=words)
        found[family] = Histogram(sum=total, count=count, buckets=buckets)
    return found


def _gauges(copy: Copy, samples: int) -> dict[Gauge, float]:
    terms = copy.of(Topic.GAUGES)
    means = {}
    for gauge in Gauge:
        if (total := terms.get(gauge)) is None or samples < 1:
            continue
        engines = max(1.0, terms.get(f"{gauge}/engines", 1.0)) if gauge in AVERAGED else 1.0
        means[gauge] = total / samples / engines
    return means


def _difference(live: Mapping[Where, Copy]) -> str:
    """Which labels tell the copies apart."""
    by_label: dict[str, set[str]] = {}
    for where in live:
        for label, value in where:
            by_label.setdefault(label, set()).add(value)
    shared = frozenset.intersection(*live)
    told = {label for where in live for label, _ in where - shared}
    return "; ".join(f"{label}: {', '.join(sorted(by_label[label]))}" for label in sorted(told))


def _time(seconds: float) -> datetime | None:
    if not math.isfinite(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC)
