"""From what the replicas of an arm did in a window to a reading of every signal. Pure.

Here is which signal is made how; `derivation` says what each way means.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias

from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.signals import MEASURED, POSITIONS, REMEMBERED, position_signal
from specpilot.telemetry.derivation import Derivation
from specpilot.telemetry.names import Counter, DeviceGauge, Family, Gauge
from specpilot.telemetry.reads import counter, gauge, generated, steps, together
from specpilot.telemetry.windows import Arm, Fault, failed_window

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


def derive(
    arm: Arm, *, ready: int, devices: Arm | None = None, signals: Collection[str] = ()
) -> Readings:
    """Turn one arm into readings.

    Args:
        arm: The windows of the replicas that serve.
        ready: How many replicas of the arm serve, as the fleet says.
        devices: What GPU exporters say of the same replicas; None where nobody asks them.
        signals: Names in the catalogue, remembered ones left out; empty means all others.
    """
    engine = Derivation(arm)
    gpu: Derivation | None = None  # most questions are not about devices
    wanted = [signal for signal in signals or MEASURED if signal not in REMEMBERED]
    found: list[Reading] = []
    quantiles: dict[str, list[tuple[str, float]]] = {}
    for signal in wanted:
        if (recipe := _RECIPES.get(signal)) is not None:
            found.append(recipe(engine, signal))
        elif (kind := _DEVICES.get(signal)) is not None:
            gpu = gpu or Derivation(devices or _no_exporter(arm))
            found.append(gpu.of_devices(signal, kind))
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
    return Readings.of(found, trouble=trouble(arm))


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
