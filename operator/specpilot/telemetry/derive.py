"""From what the replicas of an arm did in a window to a reading of every signal. Pure.

Here is which signal is made how; `derivation` says what each way means.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.signals import MEASURED, POSITIONS, REMEMBERED, position_signal
from specpilot.telemetry.derivation import Derivation
from specpilot.telemetry.names import Counter, DeviceGauge, Family, Gauge
from specpilot.telemetry.reads import counter, gauge, generated, steps, together
from specpilot.telemetry.windows import Arm, Fault, failed_window

log = logging.getLogger(__name__)

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


_Recipe: TypeAlias = Callable[[Derivation, str], Reading]


def _recipes() -> dict[str, _Recipe]:
    """How each signal of the engine is made that is not a quantile."""

    def total(name: Counter) -> _Recipe:
        return lambda d, signal: d.total(signal, counter(name))

    def gauge_mean(name: Gauge) -> _Recipe:
        return lambda d, signal: d.mean_of(signal, gauge(name))

    def mean(family: Family) -> _Recipe:
        return lambda d, signal: d.mean(signal, family)

    def accepted_at(index: int) -> _Recipe:
        return lambda d, signal: d.accepted_at(signal, index)

    cache = together(counter(Counter.PREFIX_HITS), counter(Counter.PREFIX_QUERIES))
    return {
        "acceptance_rate": Derivation.acceptance_rate,
        "mean_acceptance_length": lambda d, s: d.accepted_per(s, Counter.DRAFTS, bonus=1.0),
        **{position_signal(index): accepted_at(index) for index in range(POSITIONS)},
        "drafts": total(Counter.DRAFTS),
        "draft_tokens": total(Counter.DRAFT_TOKENS),
        "generated_tokens": lambda d, signal: d.total(signal, generated),
        "preemptions": total(Counter.PREEMPTIONS),
        "batch_size": gauge_mean(Gauge.RUNNING),
        "queue_depth": gauge_mean(Gauge.WAITING),
        "kv_cache_usage": gauge_mean(Gauge.KV_CACHE),
        "tokens_per_second": Derivation.tokens_per_second,
        "tokens_per_second_per_request": Derivation.tokens_per_second_per_request,
        "tokens_per_step": lambda d, s: d.ratio(s, steps, empty="no step ran in the window"),
        "requests_per_second": Derivation.requests_per_second,
        "error_rate": Derivation.error_rate,
        "prefix_cache_hit_rate": lambda d, s: d.hit_rate(s, cache),
        "tpot_mean": Derivation.tpot_mean,
        **{f"{p}_mean": mean(f) for p, f in _LATENCIES.items() if f is not Family.TPOT},
        **{signal: mean(family) for signal, family in _LENGTHS.items()},
    }


_RECIPES = _recipes()
_DEVICES: dict[str, DeviceGauge] = {str(kind): kind for kind in DeviceGauge}
_QUANTILES = {f"{p}_p{q}": (p, q / 100) for p in _LATENCIES for q in (50, 90, 95, 99)}


class Derived(Mapping[str, Reading]):
    """The readings of one arm, each made when somebody asks for it.

    A tick asks for what its rules name. The others are there to be shown and compared, now and
    then, and making them all at every tick would be most of a tick's work.

    Args:
        arm: The windows of the replicas that serve.
        ready: How many replicas of the arm serve, as the fleet says.
        devices: What GPU exporters say of the same replicas; None where nobody asks them.
        signals: Names of the signals that there are readings of.
    """

    def __init__(
        self, arm: Arm, *, ready: int, devices: Arm | None, signals: Collection[str]
    ) -> None:
        self._arm = arm
        self._ready = ready
        self._exported = devices
        self._made: dict[str, Reading | None] = dict.fromkeys(signals)

    @cached_property
    def _engine(self) -> Derivation:
        return Derivation(self._arm)

    @cached_property
    def _devices(self) -> Derivation:
        return Derivation(self._exported or _no_exporter(self._arm))

    def __getitem__(self, signal: str) -> Reading:
        made = self._made[signal]
        if made is None:
            try:
                made = self._make(signal)
            except Exception as error:  # who asks has other signals and targets to serve
                log.exception("deriving %s failed", signal)
                words = f"failed ({type(error).__name__}); the log has the details"
                made = unknown(signal, UnknownReason.SOURCE_ERROR, f"telemetry: {words}")
            self._made[signal] = made
        return made

    def __contains__(self, signal: object) -> bool:
        return signal in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    def _make(self, signal: str) -> Reading:
        if (recipe := _RECIPES.get(signal)) is not None:
            return recipe(self._engine, signal)
        if (kind := _DEVICES.get(signal)) is not None:
            return self._devices.of_devices(signal, kind)
        if (percentile := _QUANTILES.get(signal)) is not None:
            return self._quantile(signal, percentile[0])
        if signal == "replicas_ready":
            return self._engine.ready(self._ready)
        words = "no such signal; `specpilot signals` lists them"
        return unknown(signal, UnknownReason.NOT_EXPORTED, words)

    def _quantile(self, signal: str, prefix: str) -> Reading:
        """All wanted quantiles of a histogram are made together: merging it is most of the work."""
        some = [
            (other, percentile[1])
            for other in self._made
            if (percentile := _QUANTILES.get(other)) is not None and percentile[0] == prefix
        ]
        found = {r.signal: r for r in self._engine.quantiles(_LATENCIES[prefix], some)}
        self._made.update(found)
        return found[signal]


def derive(
    arm: Arm, *, ready: int, devices: Arm | None = None, signals: Collection[str] = ()
) -> Readings:
    """Turn one arm into readings, see `Derived`.

    Args:
        arm: The windows of the replicas that serve.
        ready: How many replicas of the arm serve, as the fleet says.
        devices: What GPU exporters say of the same replicas; None where nobody asks them.
        signals: Names in the catalogue, remembered ones left out; empty means all others.
    """
    wanted = [signal for signal in signals or MEASURED if signal not in REMEMBERED]
    made = Derived(arm, ready=ready, devices=devices, signals=wanted)
    return Readings(made, trouble(arm))


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


def trouble(arm: Arm) -> str:
    """What went wrong at the newest look at the replicas, "" when nothing did.

    Of a replica that has no numbers yet nothing is said while others have some: it may be new.
    The words have no age in them, for they go into a status that is written when it changes.
    """
    said = [window.trouble for window in arm.replicas if window.trouble]
    if not said and all(window.samples == 0 for window in arm.replicas):
        faults = [window.fault for window in arm.replicas if window.fault is not None]
        said = [fault.words for fault in faults if fault.reason is not UnknownReason.STALE]
    if not said:
        return ""
    return f"{said[0]} ({said.count(said[0])} of {len(arm.replicas)} replicas)"
