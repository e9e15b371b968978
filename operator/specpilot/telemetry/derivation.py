"""The signals of one arm, each from what all its replicas say.

Three rules hold for every signal. Numbers of several replicas are added before anything is divided
or interpolated: a mean of ratios weighs an idle replica like a busy one. A replica without a number
is left out and said so; with fewer than half of the replicas there is no reading. And what cannot
be known is Unknown with the reason and the remedy, never 0.
"""

import math
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from specpilot.domain.readings import Reading, UnknownReason
from specpilot.domain.signals import SIGNALS, Unit
from specpilot.telemetry.histograms import merge, quantile
from specpilot.telemetry.names import Counter, DeviceGauge, Family, Gauge
from specpilot.telemetry.reads import (
    Read,
    answered,
    checked,
    completion,
    counter,
    decode_per_token,
    device,
    gauge,
    histogram,
    legacy_rate,
    position,
    put_together,
    running,
    throughput,
    together,
    with_buckets,
)
from specpilot.telemetry.windows import Arm, Fault, ReplicaWindow, Speculation

T = TypeVar("T")

_NO_BUCKETS = "its buckets are fetched from the next round on; wait until a window is covered"
_NO_DRAFT = "speculation is on, but nothing was drafted in the window"
_NO_REQUEST = "no request finished in the window; wait, or use a longer window"
_MOST_NOTES = 3
_ROUNDING = 1e-9
"""By so much a share may exceed 1 for being a quotient of sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share(Generic[T]):
    """What the replicas that have a number say, and which ones do not."""

    values: Sequence[T]
    extent: "_Extent"
    note: str


@dataclass(frozen=True, slots=True)
class _Extent:
    """What some windows cover together."""

    samples: float
    span_s: float
    last: datetime | None

    @classmethod
    def of(cls, windows: Sequence[ReplicaWindow]) -> "_Extent":
        return cls(
            samples=float(sum(window.samples for window in windows)),
            span_s=max((window.span_s for window in windows), default=0.0),
            last=max((w.last for w in windows if w.last is not None), default=None),
        )


class Derivation:
    """Makes readings of one arm.

    Args:
        arm: The windows of the replicas that serve.
    """

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        ordered = sorted(arm.replicas, key=lambda window: window.replica)
        self.windows = tuple(checked(window, arm) for window in ordered)
        self._whole = _Extent.of(self.windows)
        self._together = put_together(self.windows)

    def ready(self, count: int) -> Reading:
        """How many replicas serve, as the fleet says."""
        return Reading(
            signal="replicas_ready",
            value=float(count),
            message="from the fleet",
            at=self.arm.end,
            window_s=self.arm.window_s,
        )

    def _share(self, read: Read[T]) -> _Share[T] | Fault:
        """Ask every replica; a fault when fewer than half have an answer."""
        if not self.windows:
            return Fault(reason=UnknownReason.NO_DATA, words="no replica of this arm serves")
        if self._together is not None:
            answer = read(self._together)
            if isinstance(answer, Fault):
                return answer
            return _Share(values=[answer], extent=self._whole, note="")
        values: list[T] = []
        used: list[ReplicaWindow] = []
        missing: list[tuple[str, Fault]] = []
        for window in self.windows:
            answer = read(window) if window.fault is None else _refused(window, read)
            if isinstance(answer, Fault):
                missing.append((window.replica, answer))
            else:
                values.append(answer)
                used.append(window)
        if not values:
            return _common_fault(missing)
        note = f"{len(values)} of {len(self.windows)} replicas; {_list(missing)}" if missing else ""
        if 2 * len(values) < len(self.windows):
            words = f"only {note}: fewer than half is no sample of the arm"
            return Fault(reason=UnknownReason.NO_DATA, words=words)
        return _Share(values=values, extent=_Extent.of(used) if missing else self._whole, note=note)

    def _known(
        self,
        signal: str,
        value: float,
        share: _Share[T],
        *,
        count: float | None = None,
        bounds: tuple[float, float | None] | None = None,
        words: str = "",
    ) -> Reading:
        if fault := _impossible(signal, value):
            return self._unknown(signal, fault)
        low, high = bounds or (None, None)
        covered, message = share.extent.span_s, self.arm.source
        if words:
            message += f"; {words}"
        if 2 * covered < self.arm.window_s:
            message += f"; covers {covered:.0f} s of {self.arm.window_s:.0f} s"
        if share.note:
            message += f"; {share.note}"
        return Reading(
            signal=signal,
            value=value,
            message=message,
            at=share.extent.last,
            count=share.extent.samples if count is None else count,
            window_s=self.arm.window_s,
            low=low,
            high=high,
        )

    def _unknown(self, signal: str, fault: Fault) -> Reading:
        return Reading(
            signal=signal,
            reason=fault.reason,
            message=f"{self.arm.source}: {fault.words}",
            at=self._whole.last,
            window_s=self.arm.window_s,
        )

    def _too_few(self, signal: str, share: _Share[T], words: str) -> Reading:
        """Replicas report, but nothing happened that could be measured."""
        note = f" ({share.note})" if share.note else ""
        fault = Fault(reason=UnknownReason.TOO_FEW_SAMPLES, words=words + note)
        return replace(self._unknown(signal, fault), count=0.0)

    # --- speculation

    def acceptance_rate(self, signal: str) -> Reading:
        """Accepted over drafted tokens."""
        legacy = [w.speculation is Speculation.LEGACY for w in self.windows if w.samples]
        if legacy and all(legacy):
            share = self._share(legacy_rate)
            if isinstance(share, Fault):
                return self._unknown(signal, share)
            words = (
                "the V0 engine's own figure since its start; it counts tokens accepted after a "
                "rejected one, so newer engines show less"
            )
            value = math.fsum(share.values) / len(share.values)
            return self._known(signal, value, share, words=words)
        return self.accepted_per(signal, Counter.DRAFT_TOKENS, bonus=0.0)

    def accepted_per(self, signal: str, per: Counter, *, bonus: float) -> Reading:
        """Accepted tokens over another counter, and what is added to the quotient."""
        names = (Counter.ACCEPTED_TOKENS, per, Counter.DRAFTS, Counter.DRAFT_TOKENS)
        share = self._share(together(*(counter(name) for name in names)))
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        accepted, base, drafts, drafted = (math.fsum(c) for c in zip(*share.values, strict=True))
        if accepted > drafted * (1 + _ROUNDING):
            words = (
                f"{accepted:g} tokens were accepted of {drafted:g} drafted: the numbers contradict "
                "each other; are several engines behind one address?"
            )
            return self._unknown(signal, Fault(reason=UnknownReason.AMBIGUOUS, words=words))
        if base <= 0:
            return self._too_few(signal, share, _NO_DRAFT)
        return self._known(signal, bonus + accepted / base, share, count=drafts)

    def accepted_at(self, signal: str, index: int) -> Reading:
        """Share of drafts accepted up to a position, counted from 0."""
        return self.ratio(signal, position(index), empty=_NO_DRAFT)

    # --- counts, gauges, rates

    def total(self, signal: str, read: Read[float]) -> Reading:
        """The increase of a counter."""
        share = self._share(read)
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        value = math.fsum(share.values)
        return self._known(signal, value, share, count=value)

    def mean_of(self, signal: str, read: Read[float]) -> Reading:
        """The mean of a number over replicas."""
        share = self._share(read)
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        return self._known(signal, math.fsum(share.values) / len(share.values), share)

    def of_devices(self, signal: str, name: DeviceGauge) -> Reading:
        """The mean over replicas, and what the number covers where that is not the replica."""
        share = self._share(device(name))
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        told = (window.notes.get(name, "") for window in self.windows if not window.fault)
        notes = [note for note in dict.fromkeys(told) if note]
        words = "; ".join(notes[:_MOST_NOTES])
        value = math.fsum(share.values) / len(share.values)
        return self._known(signal, value, share, words=words)

    def ratio(self, signal: str, read: Read[tuple[float, float]], *, empty: str) -> Reading:
        """The sum of one number over the sum of another, which is also the count."""
        share = self._share(read)
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        part, whole = (math.fsum(column) for column in zip(*share.values, strict=True))
        if whole <= 0:
            return self._too_few(signal, share, empty)
        return self._known(signal, part / whole, share, count=whole)

    def hit_rate(self, signal: str, cache: Read[tuple[float, float]]) -> Reading:
        """Tokens found in the prefix cache over those looked up."""
        usable = [window for window in self.windows if window.samples]
        counted = any(Counter.PREFIX_QUERIES in window.counters for window in usable)
        if not counted and any(Gauge.HIT_RATE in window.gauges for window in usable):
            share = self._share(gauge(Gauge.HIT_RATE))
            if isinstance(share, Fault):
                return self._unknown(signal, share)
            words = "the V0 engine's own figure, not that of the window"
            value = math.fsum(share.values) / len(share.values)
            return self._known(signal, value, share, words=words)
        empty = "no prompt was looked up in the prefix cache in the window"
        return self.ratio(signal, cache, empty=empty)

    def tokens_per_second(self, signal: str) -> Reading:
        """Generated tokens per second of all replicas."""
        share = self._share(throughput)
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        return self._known(signal, math.fsum(share.values), share)

    def tokens_per_second_per_request(self, signal: str) -> Reading:
        """The same over the requests that run."""
        share = self._share(together(throughput, running))
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        rate, at_a_time = (math.fsum(column) for column in zip(*share.values, strict=True))
        if at_a_time <= 0:
            return self._too_few(signal, share, "no request was seen running in the window")
        return self._known(signal, rate / at_a_time, share)

    def error_rate(self, signal: str) -> Reading:
        """Calls answered with an error over all calls."""
        return self.ratio(signal, answered, empty="no call was answered in the window")

    def requests_per_second(self, signal: str) -> Reading:
        """Requests of all replicas that finish in a second."""
        share = self._share(together(counter(Counter.REQUESTS), completion))
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        count, rate = (math.fsum(column) for column in zip(*share.values, strict=True))
        return self._known(signal, rate, share, count=count)

    # --- histograms

    def mean(self, signal: str, family: Family) -> Reading:
        """The mean of a histogram."""
        share = self._share(histogram(family))
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        count = math.fsum(histogram.count for histogram in share.values)
        if count <= 0:
            return self._too_few(signal, share, _NO_REQUEST)
        total = math.fsum(histogram.sum for histogram in share.values)
        return self._known(signal, total / count, share, count=count)

    def tpot_mean(self, signal: str) -> Reading:
        """Seconds per token after the first, also of engines without a histogram of it."""
        if self._exports(Family.TPOT) or not self._exports(Family.DECODE_TIME):
            return self.mean(signal, Family.TPOT)
        share = self._share(decode_per_token)
        if isinstance(share, Fault):
            return self._unknown(signal, share)
        seconds, tokens, requests = (math.fsum(c) for c in zip(*share.values, strict=True))
        if tokens <= 0:
            return self._too_few(signal, share, "no request with a second token finished")
        words = "decode time over tokens after the first (this engine has no series per request)"
        return self._known(signal, seconds / tokens, share, count=requests, words=words)

    def _exports(self, family: Family) -> bool:
        usable = [window for window in self.windows if window.samples]
        return any(family in window.histograms or family in window.faults for window in usable)

    def quantiles(self, family: Family, signals: Sequence[tuple[str, float]]) -> list[Reading]:
        """Quantiles of one histogram: each signal with its share of 1."""
        share = self._share(with_buckets(family))
        if isinstance(share, Fault):
            if family is Family.TPOT and share.reason is UnknownReason.NOT_EXPORTED:
                words = f"{share.words} (vLLM has it from 0.11 on); use tpot_mean or e2e"
                share = replace(share, words=words)
            return [self._unknown(signal, share) for signal, _ in signals]
        count = math.fsum(histogram.count for histogram in share.values)
        if count <= 0:
            return [self._too_few(signal, share, _NO_REQUEST) for signal, _ in signals]
        if not any(h.buckets for h in share.values):
            return [self._too_few(signal, share, _NO_BUCKETS) for signal, _ in signals]
        buckets = merge(h.buckets for h in share.values if h.count > 0)
        found = []
        for signal, q in signals:
            if (estimate := quantile(buckets, q)) is None:
                words = "the replicas' histograms have no bucket in common"
                fault = Fault(reason=UnknownReason.AMBIGUOUS, words=words)
                found.append(self._unknown(signal, fault))
                continue
            bounds = (estimate.low, estimate.high)
            found.append(self._known(signal, estimate.value, share, count=count, bounds=bounds))
        return found


def _refused(window: ReplicaWindow, read: Read[T]) -> T | Fault:
    """Why a replica cannot be asked. That it lacks a series shows at the first look already."""
    assert window.fault is not None
    if window.fault.reason is UnknownReason.TOO_FEW_SAMPLES and window.samples == 1:
        answer = read(replace(window, fault=None, span_s=1.0))
        if isinstance(answer, Fault) and answer.reason is UnknownReason.NOT_EXPORTED:
            return answer
    return window.fault


def _impossible(signal: str, value: float) -> Fault | None:
    """Why a result cannot be true: the engine's numbers contradict each other."""
    if not math.isfinite(value):
        return Fault(reason=UnknownReason.NAN, words=f"the numbers give {value}")
    unit = SIGNALS[signal].unit
    if value < 0 or (unit is Unit.RATIO and value > 1 + _ROUNDING):
        words = (
            f"the numbers give {value:g}, which no {unit} can be: they contradict each other; "
            "are several engines behind one address, or lines of the page missing?"
        )
        return Fault(reason=UnknownReason.AMBIGUOUS, words=words)
    return None


def _common_fault(missing: Sequence[tuple[str, Fault]]) -> Fault:
    """Nobody has a number: the reason most of them give, in the words of all who give it."""
    first = missing[0][1]
    if all(fault is first for _, fault in missing):
        return first
    order = list(UnknownReason)
    tally = Tally(fault.reason for _, fault in missing)
    reason = min(tally, key=lambda r: (-tally[r], order.index(r)))
    words = {fault.words for _, fault in missing if fault.reason is reason}
    if len(words) == 1 and len(tally) == 1:
        return Fault(reason=reason, words=words.pop())
    return Fault(reason=reason, words=_list(missing))


def _list(missing: Sequence[tuple[str, Fault]], *, most: int = 3) -> str:
    told = [f"{replica}: {fault.words}" for replica, fault in missing[:most]]
    if len(missing) > most:
        told.append(f"and {len(missing) - most} more")
    return "; ".join(told)
