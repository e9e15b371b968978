"""From what the replicas of an arm did in a window to a reading of every signal. Pure.

Three rules hold for every signal. Numbers of several replicas are added before anything is divided
or interpolated: a mean of ratios weighs an idle replica like a busy one. A replica without a number
is left out and said so; with fewer than half of the replicas there is no reading. And what cannot
be known is Unknown with the reason and the remedy, never 0.
"""

import math
from collections import Counter as Tally
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.signals import POSITIONS, SIGNALS, position_signal
from specpilot.telemetry.histograms import merge, quantile
from specpilot.telemetry.names import Counter, DeviceGauge, Family, Gauge
from specpilot.telemetry.reads import (
    Read,
    checked,
    completion,
    counter,
    decode_per_token,
    device,
    gauge,
    histogram,
    legacy_rate,
    position,
    steps,
    throughput,
    together,
    with_buckets,
)
from specpilot.telemetry.windows import Arm, Fault, ReplicaWindow, Speculation, failed_window

T = TypeVar("T")

_LATENCIES = {
    "tpot": Family.TPOT,
    "ttft": Family.TTFT,
    "e2e": Family.E2E,
    "queue_time": Family.QUEUE_TIME,
}

_LENGTHS = {
    "prompt_length_mean": Family.PROMPT_TOKENS,
    "generation_length_mean": Family.GENERATION_TOKENS,
}

_NO_BUCKETS = "its buckets are fetched from the next round on; wait until a window is covered"
_NO_DRAFT = "speculation is on, but nothing was drafted in the window"
_NO_REQUEST = "no request finished in the window; wait, or use a longer window"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share(Generic[T]):
    """What the replicas that have a number say, and which ones do not."""

    values: tuple[T, ...]
    windows: tuple[ReplicaWindow, ...]
    note: str

    @property
    def samples(self) -> float:
        return float(sum(window.samples for window in self.windows))


def derive(
    arm: Arm, *, ready: int, devices: Arm | None = None, signals: Collection[str] = ()
) -> Readings:
    """Turn one arm into readings.

    Args:
        arm: The windows of the replicas that serve.
        ready: How many replicas of the arm serve, as the fleet says.
        devices: What GPU exporters say of the same replicas; None where nobody asks them.
        signals: Names in the catalogue; empty means all of it.
    """
    engine, gpu = _Derivation(arm), _Derivation(devices or _no_exporter(arm))
    wanted = signals or SIGNALS
    found: list[Reading] = []
    quantiles: dict[str, list[tuple[str, float]]] = {}
    for signal in wanted:
        if (recipe := _RECIPES.get(signal)) is not None:
            found.append(recipe(engine, signal))
        elif (kind := _DEVICES.get(signal)) is not None:
            found.append(gpu.mean_of(signal, device(kind)))
        elif (percentile := _QUANTILES.get(signal)) is not None:
            prefix, q = percentile
            quantiles.setdefault(prefix, []).append((signal, q))
        elif signal == "replicas_ready":
            found.append(engine.ready(ready))
        else:
            words = "no such signal; `specpilot signals` lists them"
            found.append(unknown(signal, UnknownReason.NOT_EXPORTED, words))
    for prefix, some in quantiles.items():
        found += engine.quantiles(_LATENCIES[prefix], some)
    return Readings.of(found)


def families_behind(signals: Collection[str]) -> frozenset[Family]:
    """Histograms whose buckets these signals need; all signals when there are none."""
    wanted = signals or SIGNALS
    return frozenset(_LATENCIES[_QUANTILES[s][0]] for s in wanted if s in _QUANTILES)


def needs_devices(signals: Collection[str]) -> bool:
    """Whether GPU exporters have to be asked for these signals."""
    return not signals or any(signal in _DEVICES for signal in signals)


def _no_exporter(arm: Arm) -> Arm:
    words = "no GPU exporter is known; see the operations guide"
    fault = Fault(reason=UnknownReason.NOT_EXPORTED, words=words)
    replicas = tuple(
        failed_window(window.replica, fault, declared_on=window.declared_on)
        for window in arm.replicas
    )
    return replace(arm, source="GPU", replicas=replicas)


class _Derivation:
    """The signals of one arm; holds the arm so that each signal is a few lines."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        ordered = sorted(arm.replicas, key=lambda window: window.replica)
        self.windows = tuple(checked(window, arm) for window in ordered)

    def ready(self, count: int) -> Reading:
        return Reading(
            signal="replicas_ready",
            value=float(count),
            message="from the fleet",
            at=self.arm.end,
            window_s=self.arm.window_s,
        )

    def share(self, read: Read[T]) -> _Share[T] | Fault:
        """Ask every replica; a fault when fewer than half have an answer."""
        if not self.windows:
            return Fault(reason=UnknownReason.NO_DATA, words="no replica of this arm serves")
        values: list[T] = []
        used: list[ReplicaWindow] = []
        missing: list[tuple[str, Fault]] = []
        for window in self.windows:
            answer = window.fault or read(window)
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
        return _Share(values=tuple(values), windows=tuple(used), note=note)

    def known(
        self,
        signal: str,
        value: float,
        share: _Share[T],
        *,
        count: float | None = None,
        bounds: tuple[float, float | None] | None = None,
        words: str = "",
    ) -> Reading:
        if not math.isfinite(value):
            fault = Fault(reason=UnknownReason.NAN, words=f"the numbers give {value}")
            return self.unknown(signal, fault)
        low, high = bounds or (None, None)
        covered = max(window.span_s for window in share.windows)
        short = ""
        if 2 * covered < self.arm.window_s:
            short = f"covers {covered:.0f} s of {self.arm.window_s:.0f} s"
        remarks = (self.arm.source, words, short, share.note)
        return Reading(
            signal=signal,
            value=value,
            message="; ".join(remark for remark in remarks if remark),
            at=max(window.last for window in share.windows if window.last is not None),
            count=share.samples if count is None else count,
            window_s=self.arm.window_s,
            low=low,
            high=high,
        )

    def unknown(self, signal: str, fault: Fault) -> Reading:
        last = [window.last for window in self.windows if window.last is not None]
        return Reading(
            signal=signal,
            reason=fault.reason,
            message=f"{self.arm.source}: {fault.words}",
            at=max(last, default=None),
            window_s=self.arm.window_s,
        )

    def too_few(self, signal: str, share: _Share[T], words: str) -> Reading:
        """Replicas report, but nothing happened that could be measured."""
        note = f" ({share.note})" if share.note else ""
        fault = Fault(reason=UnknownReason.TOO_FEW_SAMPLES, words=words + note)
        return replace(self.unknown(signal, fault), count=0.0)

    # --- speculation

    def acceptance_rate(self, signal: str) -> Reading:
        if all(w.speculation is Speculation.LEGACY for w in self.windows if w.fault is None):
            share = self.share(legacy_rate)
            if isinstance(share, Fault):
                return self.unknown(signal, share)
            words = (
                "the V0 engine's own figure since its start; it counts tokens accepted after a "
                "rejected one, so newer engines show less"
            )
            value = math.fsum(share.values) / len(share.values)
            return self.known(signal, value, share, words=words)
        return self.accepted_per(signal, Counter.DRAFT_TOKENS, bonus=0.0)

    def accepted_per(self, signal: str, per: Counter, *, bonus: float) -> Reading:
        names = (Counter.ACCEPTED_TOKENS, per, Counter.DRAFTS)
        share = self.share(together(*(counter(name) for name in names)))
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        accepted, base, drafts = (math.fsum(column) for column in zip(*share.values, strict=True))
        if base <= 0:
            return self.too_few(signal, share, _NO_DRAFT)
        return self.known(signal, bonus + accepted / base, share, count=drafts)

    def accepted_at(self, signal: str, index: int) -> Reading:
        return self.ratio(signal, position(index), empty=_NO_DRAFT)

    # --- counts, gauges, rates

    def total(self, signal: str, name: Counter) -> Reading:
        share = self.share(counter(name))
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        value = math.fsum(share.values)
        return self.known(signal, value, share, count=value)

    def mean_of(self, signal: str, read: Read[float]) -> Reading:
        share = self.share(read)
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        return self.known(signal, math.fsum(share.values) / len(share.values), share)

    def ratio(self, signal: str, read: Read[tuple[float, float]], *, empty: str) -> Reading:
        """The sum of one number over the sum of another, which is also the count."""
        share = self.share(read)
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        part, whole = (math.fsum(column) for column in zip(*share.values, strict=True))
        if whole <= 0:
            return self.too_few(signal, share, empty)
        return self.known(signal, part / whole, share, count=whole)

    def tokens_per_second(self, signal: str) -> Reading:
        share = self.share(throughput)
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        return self.known(signal, math.fsum(share.values), share)

    def tokens_per_second_per_request(self, signal: str) -> Reading:
        share = self.share(together(throughput, gauge(Gauge.RUNNING)))
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        rate, running = (math.fsum(column) for column in zip(*share.values, strict=True))
        if running <= 0:
            return self.too_few(signal, share, "no request was seen running in the window")
        return self.known(signal, rate / running, share)

    def requests_per_second(self, signal: str) -> Reading:
        share = self.share(together(counter(Counter.REQUESTS), completion))
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        count, rate = (math.fsum(column) for column in zip(*share.values, strict=True))
        return self.known(signal, rate, share, count=count)

    # --- histograms

    def mean(self, signal: str, family: Family) -> Reading:
        share = self.share(histogram(family))
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        count = math.fsum(histogram.count for histogram in share.values)
        if count <= 0:
            return self.too_few(signal, share, _NO_REQUEST)
        total = math.fsum(histogram.sum for histogram in share.values)
        return self.known(signal, total / count, share, count=count)

    def tpot_mean(self, signal: str) -> Reading:
        if self.exports(Family.TPOT) or not self.exports(Family.DECODE_TIME):
            return self.mean(signal, Family.TPOT)
        share = self.share(decode_per_token)
        if isinstance(share, Fault):
            return self.unknown(signal, share)
        seconds, tokens, requests = (math.fsum(c) for c in zip(*share.values, strict=True))
        if tokens <= 0:
            return self.too_few(signal, share, "no request with a second token finished")
        words = "decode time over tokens after the first (this engine has no series per request)"
        return self.known(signal, seconds / tokens, share, count=requests, words=words)

    def exports(self, family: Family) -> bool:
        usable = [window for window in self.windows if window.fault is None]
        return any(family in window.histograms or family in window.faults for window in usable)

    def quantiles(self, family: Family, signals: Sequence[tuple[str, float]]) -> list[Reading]:
        share = self.share(with_buckets(family))
        if isinstance(share, Fault):
            if family is Family.TPOT and share.reason is UnknownReason.NOT_EXPORTED:
                words = f"{share.words} (vLLM has it from 0.11 on); use tpot_mean or e2e"
                share = replace(share, words=words)
            return [self.unknown(signal, share) for signal, _ in signals]
        count = math.fsum(histogram.count for histogram in share.values)
        if count <= 0:
            return [self.too_few(signal, share, _NO_REQUEST) for signal, _ in signals]
        if not any(h.buckets for h in share.values):
            return [self.too_few(signal, share, _NO_BUCKETS) for signal, _ in signals]
        buckets = merge(h.buckets for h in share.values if h.count > 0)
        found = []
        for signal, q in signals:
            if (estimate := quantile(buckets, q)) is None:
                words = "the replicas' histograms have no bucket in common"
                fault = Fault(reason=UnknownReason.AMBIGUOUS, words=words)
                found.append(self.unknown(signal, fault))
                continue
            bounds = (estimate.low, estimate.high)
            found.append(self.known(signal, estimate.value, share, count=count, bounds=bounds))
        return found


_Recipe: TypeAlias = Callable[[_Derivation, str], Reading]


def _recipes() -> dict[str, _Recipe]:
    """How each signal of the engine is made that is not a quantile."""

    def total(name: Counter) -> _Recipe:
        return lambda d, signal: d.total(signal, name)

    def gauge_mean(name: Gauge) -> _Recipe:
        return lambda d, signal: d.mean_of(signal, gauge(name))

    def mean(family: Family) -> _Recipe:
        return lambda d, signal: d.mean(signal, family)

    def accepted_at(index: int) -> _Recipe:
        return lambda d, signal: d.accepted_at(signal, index)

    cache = together(counter(Counter.PREFIX_HITS), counter(Counter.PREFIX_QUERIES))
    return {
        "acceptance_rate": _Derivation.acceptance_rate,
        "mean_acceptance_length": lambda d, s: d.accepted_per(s, Counter.DRAFTS, bonus=1.0),
        **{position_signal(index): accepted_at(index) for index in range(POSITIONS)},
        "drafts": total(Counter.DRAFTS),
        "draft_tokens": total(Counter.DRAFT_TOKENS),
        "preemptions": total(Counter.PREEMPTIONS),
        "batch_size": gauge_mean(Gauge.RUNNING),
        "queue_depth": gauge_mean(Gauge.WAITING),
        "kv_cache_usage": gauge_mean(Gauge.KV_CACHE),
        "tokens_per_second": _Derivation.tokens_per_second,
        "tokens_per_second_per_request": _Derivation.tokens_per_second_per_request,
        "tokens_per_step": lambda d, s: d.ratio(s, steps, empty="no step ran in the window"),
        "requests_per_second": _Derivation.requests_per_second,
        "prefix_cache_hit_rate": lambda d, s: d.ratio(
            s, cache, empty="no prompt was looked up in the prefix cache in the window"
        ),
        "tpot_mean": _Derivation.tpot_mean,
        **{f"{p}_mean": mean(f) for p, f in _LATENCIES.items() if f is not Family.TPOT},
        **{signal: mean(family) for signal, family in _LENGTHS.items()},
    }


_RECIPES = _recipes()
_DEVICES: dict[str, DeviceGauge] = {str(kind): kind for kind in DeviceGauge}
_QUANTILES = {f"{p}_p{q}": (p, q / 100) for p in _LATENCIES for q in (50, 90, 95, 99)}


def _common_fault(missing: Sequence[tuple[str, Fault]]) -> Fault:
    """Nobody has a number: the reason most of them give, in the words of all who give it."""
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
