"""What one replica's window has to say about one number: the number, or why there is none."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import TypeAlias, TypeVar

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.growth import Growth
from specpilot.telemetry.names import (
    HTTP,
    HTTP_SERIES,
    LEGACY_RATE,
    POSITIONS,
    PREFIX,
    SPECULATION,
    Counter,
    DeviceGauge,
    Family,
    Gauge,
    buckets_of,
)
from specpilot.telemetry.windows import (
    Arm,
    Fault,
    Histogram,
    ReplicaWindow,
    Speculation,
    unusable,
)

T = TypeVar("T")
Read: TypeAlias = Callable[[ReplicaWindow], T | Fault]

_CLOCK_SKEW = timedelta(seconds=5)
"""A sample may be dated this much after the end of the window before the clocks are blamed."""


def checked(window: ReplicaWindow, arm: Arm) -> ReplicaWindow:
    """The window, or the same replica with the fault that forbids using its numbers."""
    fault = window.fault or _time_fault(window, arm)
    return window if fault is window.fault else replace(window, fault=fault)


def _time_fault(window: ReplicaWindow, arm: Arm) -> Fault | None:
    if window.last is None or window.samples == 0:
        return Fault(reason=UnknownReason.NO_DATA, words="no sample in the window")
    if window.last > arm.end + _CLOCK_SKEW:
        ahead = (window.last - arm.end).total_seconds()
        return Fault(
            reason=UnknownReason.SOURCE_ERROR,
            words=f"the newest sample is dated {ahead:.0f} s after the end of the window: "
            "compare the clocks",
        )
    age = (arm.end - window.last).total_seconds()
    limit = max(3 * window.interval_s, arm.stale_floor_s)
    if age > limit:
        return Fault(
            reason=UnknownReason.STALE,
            words=f"the newest sample is {age:.0f} s old, more than {limit:.0f} s"
            + (f" ({window.trouble})" if window.trouble else ""),
        )
    if window.samples == 1 or window.span_s <= 0:
        return Fault(
            reason=UnknownReason.TOO_FEW_SAMPLES,
            words="a single sample so far; nothing can be said of a change",
        )
    return None


@cache
def counter(name: Counter) -> Read[float]:
    """The increase of a counter."""

    def read(window: ReplicaWindow) -> float | Fault:
        if name in SPECULATION and (fault := _speculation_fault(window)):
            return fault
        if fault := window.faults.get(name):
            return fault
        if (value := window.counters.get(name)) is None:
            return _not_exported(name)
        return unusable(value) or value

    return read


def _speculation_fault(window: ReplicaWindow) -> Fault | None:
    if window.speculation is Speculation.LEGACY:
        return _WRONG_COUNTERS
    if window.speculation is Speculation.PRESENT:
        return None
    return _NOT_SPECULATING if window.declared_on else _OFF


_WRONG_COUNTERS = Fault(
    reason=UnknownReason.AMBIGUOUS,
    words="the V0 engine's speculation counters add up running totals and cannot be used; "
    "use vLLM 0.10 or newer (or VLLM_USE_V1=1 on 0.8.5 and 0.9)",
)
_NOT_SPECULATING = Fault(
    reason=UnknownReason.NOT_EXPORTED,
    words="declared to speculate, but the engine exports no vllm:spec_decode series: it runs "
    "without speculation, has served nothing yet, or is older than 0.8.5",
)
_OFF = Fault(
    reason=UnknownReason.NOT_EXPORTED,
    words="speculation is off on these replicas, so these series do not exist",
)


def legacy_rate(window: ReplicaWindow) -> float | Fault:
    """The V0 engine's own acceptance rate since its start."""
    value = window.legacy_rate
    if value is None:
        return _not_exported(LEGACY_RATE)
    if value != value:  # noqa: PLR0124 - the definition of NaN
        words = "the V0 engine has no acceptance rate before its first draft"
        return Fault(reason=UnknownReason.NAN, words=words)
    if not 0.0 <= value <= 1.0:
        words = f"the engine exports an acceptance rate of {value:g}"
        return Fault(reason=UnknownReason.NAN, words=words)
    return value


@cache
def position(index: int) -> Read[tuple[float, float]]:
    """Tokens accepted at a position of the draft, and drafts."""

    def read(window: ReplicaWindow) -> tuple[float, float] | Fault:
        drafts = counter(Counter.DRAFTS)(window)
        if isinstance(drafts, Fault):
            return drafts
        if fault := window.faults.get(POSITIONS):
            return fault
        if (accepted := window.positions.get(index)) is None:
            words = f"no draft is longer than {len(window.positions)} tokens on these replicas"
            return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)
        return (accepted, drafts)

    return read


def steps(window: ReplicaWindow) -> tuple[float, float] | Fault:
    """Output tokens and engine steps."""
    if window.speculation is Speculation.LEGACY:
        return _legacy_tokens()
    if not window.one_server:
        words = "several API servers (or Ray) may count each step more than once"
        return Fault(reason=UnknownReason.AMBIGUOUS, words=words)
    tokens = counter(Counter.GENERATION_TOKENS)(window)
    if isinstance(tokens, Fault):
        return tokens
    taken = histogram(Family.STEPS)(window)
    return taken if isinstance(taken, Fault) else (tokens, taken.count)


def answered(window: ReplicaWindow) -> tuple[float, float] | Fault:
    """Calls that were refused or failed, and all calls."""
    for name in (*HTTP, Counter.REQUESTS):
        if fault := window.faults.get(name):
            return fault
    calls = window.counters.get(Counter.HTTP_REQUESTS)
    failed = window.counters.get(Counter.HTTP_FAILED)
    if calls is not None and failed is not None:
        return unusable(calls) or unusable(failed) or (failed, calls)
    words = f"no {HTTP_SERIES} of calls: nothing was answered yet, or this server does not count"
    return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)


def _not_exported(name: str) -> Fault:
    words = f"the engine exports no {PREFIX}{name}"
    return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)


def throughput(window: ReplicaWindow) -> float | Fault:
    """Output tokens per second."""
    if window.speculation is Speculation.LEGACY:
        return _legacy_tokens()
    return _per_second(window, Counter.GENERATION_TOKENS)


def generated(window: ReplicaWindow) -> float | Fault:
    """Output tokens."""
    if window.speculation is Speculation.LEGACY:
        return _legacy_tokens()
    return counter(Counter.GENERATION_TOKENS)(window)


def running(window: ReplicaWindow) -> float | Fault:
    """Requests running at a time."""
    mean = gauge(Gauge.RUNNING)(window)
    return mean if isinstance(mean, Fault) else mean * window.together


def _per_second(window: ReplicaWindow, name: Counter) -> float | Fault:
    grown = counter(name)(window)
    if isinstance(grown, Fault):
        return grown
    return window.rates[name] if window.together > 1 else grown / window.span_s


def _legacy_tokens() -> Fault:
    words = (
        "the V0 engine counts too few generated tokens while it speculates; use vLLM 0.10 or newer"
    )
    return Fault(reason=UnknownReason.AMBIGUOUS, words=words)


def completion(window: ReplicaWindow) -> float | Fault:
    """Finished requests per second."""
    return _per_second(window, Counter.REQUESTS)


@cache
def device(name: DeviceGauge) -> Read[float]:
    """The mean of a gauge of the replica's devices."""

    def read(window: ReplicaWindow) -> float | Fault:
        if fault := window.faults.get(name):
            return fault
        if (value := window.gauges.get(name)) is not None:
            return unusable(value) or value
        words = f"the GPU exporter gives no series for {name}; see which of its metrics are enabled"
        return Fault(reason=UnknownReason.NOT_EXPORTED, words=words)

    return read


@cache
def gauge(name: Gauge) -> Read[float]:
    """The mean of a gauge."""

    def read(window: ReplicaWindow) -> float | Fault:
        if fault := window.faults.get(name):
            return fault
        if (value := window.gauges.get(name)) is not None:
            return unusable(value) or value
        # With several API servers the gauges appear with the first request: absent means idle,
        # unless tokens came out meanwhile.
        if window.counters.get(Counter.GENERATION_TOKENS) == 0:
            return 0.0
        return _not_exported(name)

    return read


@cache
def histogram(name: Family) -> Read[Histogram]:
    """The increase of a histogram."""

    def read(window: ReplicaWindow) -> Histogram | Fault:
        if fault := window.faults.get(name):
            return fault
        if (found := window.histograms.get(name)) is None:
            return _not_exported(name)
        return unusable(found.sum) or unusable(found.count) or found

    return read


@cache
def with_buckets(name: Family) -> Read[Histogram]:
    """The increase of a histogram, buckets included."""
    totals = histogram(name)

    def read(window: ReplicaWindow) -> Histogram | Fault:
        if fault := window.faults.get(buckets_of(name)):
            return fault
        found = totals(window)
        if isinstance(found, Fault) or found.buckets:
            return found
        return replace(found, buckets=window.buckets.get(name, ()))

    return read


def together(*reads: Read[float]) -> Read[tuple[float, ...]]:
    """Read several numbers of which each is useless without the others."""

    def read(window: ReplicaWindow) -> tuple[float, ...] | Fault:
        values: list[float] = []
        for each in reads:
            value = each(window)
            if isinstance(value, Fault):
                return value
            values.append(value)
        return tuple(values)

    return read


def put_together(windows: Sequence[ReplicaWindow]) -> ReplicaWindow | None:
    """An arm's replicas as one window, where every answer would be the same for each of them.

    Working out a signal of four replicas takes four times as long as of one, and thousands of
    arms are asked for dozens of signals a tick. None where replicas differ in anything but numbers.
    """
    first = windows[0] if len(windows) > 1 else None
    if first is None or first.growth is None or first.speculation is Speculation.LEGACY:
        return None
    parts: list[Growth] = []
    for window in windows:
        growth = window.growth and window.growth.arranged(first.growth.layout)
        if (
            growth is None
            or window.fault is not None
            or window.faults
            or window.notes
            or window.speculation is not first.speculation
            or window.declared_on is not first.declared_on
            or window.one_server is not first.one_server
        ):
            return None
        parts.append(growth)
    whole = Growth.together(parts)
    places = whole.layout.counter_places
    return replace(
        first,
        counters=whole.counters,
        positions=whole.positions,
        histograms=whole.histograms,
        buckets=whole.buckets,
        gauges=whole.gauges,
        together=len(windows),
        rates={
            name: math.fsum(part.at(places[name]) / part.span_s for part in parts)
            for name in _RATES
            if name in places
        },
        growth=whole,
    )


_RATES = (Counter.GENERATION_TOKENS, Counter.REQUESTS)


def decode_per_token(window: ReplicaWindow) -> tuple[float, float, float] | Fault:
    """Decode seconds, tokens after the first, requests: for engines without a series of it."""
    decode = histogram(Family.DECODE_TIME)(window)
    if isinstance(decode, Fault):
        return decode
    tokens = histogram(Family.GENERATION_TOKENS)(window)
    if isinstance(tokens, Fault):
        return tokens
    return (decode.sum, max(0.0, tokens.sum - tokens.count), decode.count)
