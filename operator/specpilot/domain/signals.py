"""The catalogue of signals: every name a rule or a guardrail may use."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """Units of signals."""

    RATIO = "ratio"
    TOKENS = "tokens"
    REQUESTS = "requests"
    SECONDS = "seconds"
    TOKENS_PER_SECOND = "tokens/s"
    REQUESTS_PER_SECOND = "requests/s"
    DRAFTS = "drafts"
    REPLICAS = "replicas"
    COUNT = "count"
    BYTES = "bytes"
    WATTS = "watts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """What a signal means and when it cannot be known.

    Attributes:
        name: The name in rules and guardrails.
        unit: Its unit.
        meaning: One sentence.
        source: The engine's series it is computed from, or how it is computed.
        unknown_when: The normal case in which it has no value.
        needs_speculation: Whether it exists only while the replica speculates.
        lower_is_better: For comparisons between arms; None where neither holds.
        percentile: It is read off a histogram's buckets, which cost more to fetch than all else.
        remembered: Not measured in the window but known from the past (`specpilot.domain.recall`):
            telemetry is never asked for it, and no arm of a canary has it.
    """

    name: str
    unit: Unit
    meaning: str
    source: str
    unknown_when: str = "no replica reported in the window"
    needs_speculation: bool = False
    lower_is_better: bool | None = None
    percentile: bool = False
    remembered: bool = False


_SPEC = "speculation is off, or nothing was drafted in the window"
_REQ = "no request finished in the window"


POSITIONS = 16
"""Positions of a draft that have a signal; deeper ones are rarely drafted and never decide."""


def position_signal(position: int) -> str:
    """The signal of one position, counted from 0 as the engine's label does."""
    return f"acceptance_rate_pos_{position}"


def _positions() -> list[Signal]:
    return [
        Signal(
            name=position_signal(position),
            unit=Unit.RATIO,
            meaning=f"share of drafts whose token at position {position} was accepted",
            source="vllm:spec_decode_num_accepted_tokens_per_pos"
            f'{{position="{position}"}} / num_drafts',
            unknown_when=f"{_SPEC}, or fewer than {position + 1} tokens are drafted",
            needs_speculation=True,
            lower_is_better=False,
        )
        for position in range(POSITIONS)
    ]


def _device(name: str, unit: Unit, meaning: str, source: str) -> Signal:
    return Signal(
        name=name,
        unit=unit,
        meaning=meaning,
        source=source,
        unknown_when="no GPU exporter reports the replica's devices",
    )


def _latency(prefix: str, what: str, series: str) -> list[Signal]:
    found = [
        Signal(
            name=f"{prefix}_mean",
            unit=Unit.SECONDS,
            meaning=f"mean {what} (exact: sum over count)",
            source=f"{series}_sum / _count",
            unknown_when=_REQ,
            lower_is_better=True,
        )
    ]
    found += [
        Signal(
            name=f"{prefix}_p{q}",
            unit=Unit.SECONDS,
            meaning=f"{q}th percentile of {what}, within the bounds of one histogram bucket",
            source=f"{series}_bucket, merged over replicas before the quantile",
            unknown_when=_REQ,
            lower_is_better=True,
            percentile=True,
        )
        for q in (50, 90, 95, 99)
    ]
    return found


SIGNALS: dict[str, Signal] = {
    s.name: s
    for s in [
        Signal(
            name="acceptance_rate",
            unit=Unit.RATIO,
            meaning="accepted draft tokens over drafted tokens",
            source="vllm:spec_decode_num_accepted_tokens / num_draft_tokens",
            unknown_when=_SPEC,
            needs_speculation=True,
            lower_is_better=False,
        ),
        Signal(
            name="mean_acceptance_length",
            unit=Unit.TOKENS,
            meaning="tokens gained per drafted step of a request, the bonus token included",
            source="1 + vllm:spec_decode_num_accepted_tokens / num_drafts",
            unknown_when=_SPEC,
            needs_speculation=True,
            lower_is_better=False,
        ),
        *_positions(),
        Signal(
            name="drafts",
            unit=Unit.DRAFTS,
            meaning="drafts verified in the window (request-steps that carried a draft token)",
            source="increase of vllm:spec_decode_num_drafts",
            unknown_when="speculation is off",
            needs_speculation=True,
        ),
        Signal(
            name="draft_tokens",
            unit=Unit.TOKENS,
            meaning="tokens drafted in the window",
            source="increase of vllm:spec_decode_num_draft_tokens",
            unknown_when="speculation is off",
            needs_speculation=True,
        ),
        Signal(
            name="generated_tokens",
            unit=Unit.TOKENS,
            meaning="output tokens of all replicas in the window",
            source="increase of vllm:generation_tokens",
        ),
        Signal(
            name="batch_size",
            unit=Unit.REQUESTS,
            meaning="running requests per replica, mean over the window",
            source="vllm:num_requests_running",
        ),
        Signal(
            name="queue_depth",
            unit=Unit.REQUESTS,
            meaning="waiting requests per replica, mean over the window",
            source="vllm:num_requests_waiting",
            lower_is_better=True,
        ),
        Signal(
            name="tokens_per_second",
            unit=Unit.TOKENS_PER_SECOND,
            meaning="output tokens per second of all replicas together",
            source="increase of vllm:generation_tokens",
            lower_is_better=False,
        ),
        Signal(
            name="tokens_per_second_per_request",
            unit=Unit.TOKENS_PER_SECOND,
            meaning="output tokens per second over requests running at a time",
            source="tokens_per_second / (batch_size * replicas)",
            unknown_when="nothing ran in the window",
            lower_is_better=False,
        ),
        Signal(
            name="tokens_per_step",
            unit=Unit.TOKENS,
            meaning="output tokens per engine step, all requests of the batch together",
            source="vllm:generation_tokens / iteration_tokens_total_count",
            unknown_when="no step ran in the window, or several API servers count steps twice",
            lower_is_better=False,
        ),
        Signal(
            name="requests_per_second",
            unit=Unit.REQUESTS_PER_SECOND,
            meaning="finished requests per second of all replicas together",
            source="increase of vllm:request_success",
        ),
        Signal(
            name="error_rate",
            unit=Unit.RATIO,
            meaning="share of calls (POST) that were answered with a status of 4xx or 5xx; min_p "
            "and logit_bias are refused with 400 while speculation is on",
            source='http_requests_total{method="POST"} of the API server, by status',
            unknown_when="no call was answered in the window, or another server (Ray Serve) "
            "stands in front of the engine",
            lower_is_better=True,
        ),
        *_latency(
            "tpot",
            "time per output token of a finished request",
            "vllm:request_time_per_output_token_seconds",
        ),
        *_latency("ttft", "time to first token", "vllm:time_to_first_token_seconds"),
        *_latency("e2e", "latency of a whole request", "vllm:e2e_request_latency_seconds"),
        *_latency("queue_time", "time in the queue", "vllm:request_queue_time_seconds"),
        Signal(
            name="prompt_length_mean",
            unit=Unit.TOKENS,
            meaning="mean prompt length of finished requests",
            source="vllm:request_prompt_tokens_sum / _count",
            unknown_when=_REQ,
        ),
        Signal(
            name="generation_length_mean",
            unit=Unit.TOKENS,
            meaning="mean output length of finished requests",
            source="vllm:request_generation_tokens_sum / _count",
            unknown_when=_REQ,
        ),
        Signal(
            name="kv_cache_usage",
            unit=Unit.RATIO,
            meaning="used share of the KV cache, mean over replicas and window",
            source="vllm:kv_cache_usage_perc (gpu_cache_usage_perc before 0.9.2)",
            lower_is_better=True,
        ),
        Signal(
            name="preemptions",
            unit=Unit.COUNT,
            meaning="preempted requests in the window",
            source="increase of vllm:num_preemptions",
            lower_is_better=True,
        ),
        Signal(
            name="prefix_cache_hit_rate",
            unit=Unit.RATIO,
            meaning="prompt tokens found in the prefix cache over those looked up",
            source="vllm:prefix_cache_hits / prefix_cache_queries (gpu_prefix_cache_ before 0.9.2; "
            "V0: gpu_prefix_cache_hit_rate)",
            unknown_when="no prompt was looked up in the window, or the cache is off",
            lower_is_better=False,
        ),
        _device(
            "gpu_util",
            Unit.RATIO,
            "share of time with a kernel running, mean over the replica's devices; near 1 for any "
            "decode, so it does not tell memory-bound from compute-bound",
            "DCGM_FI_DEV_GPU_UTIL and like series of other exporters",
        ),
        _device(
            "gpu_tensor_active",
            Unit.RATIO,
            "share of cycles in which tensor cores work, mean over the replica's devices",
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE and like series",
        ),
        _device(
            "gpu_dram_active",
            Unit.RATIO,
            "share of cycles in which device memory moves data, mean over the replica's devices",
            "DCGM_FI_PROF_DRAM_ACTIVE and like series",
        ),
        _device(
            "gpu_memory_used",
            Unit.BYTES,
            "device memory in use, sum over the replica's devices, mean over replicas",
            "DCGM_FI_DEV_FB_USED and like series",
        ),
        _device(
            "gpu_power",
            Unit.WATTS,
            "power drawn, sum over the replica's devices, mean over replicas",
            "DCGM_FI_DEV_POWER_USAGE and like series",
        ),
        Signal(
            name="replicas_ready",
            unit=Unit.REPLICAS,
            meaning="replicas that serve, of the measured arm",
            source="the fleet",
        ),
        Signal(
            name="cost_ratio",
            unit=Unit.RATIO,
            meaning="what a step costs with speculation over without at a like load, which is the "
            "mean acceptance length at which the setting breaks even",
            source="canary comparisons of this target and setting within a factor of 2 of the "
            "present batch size, else settings[].costRatio of the policy",
            unknown_when="the setting was never compared with off near this batch size on this "
            "engine version, and the policy states nothing",
            remembered=True,
        ),
        Signal(
            name="acceptance_baseline",
            unit=Unit.TOKENS,
            meaning="median of the target's own mean_acceptance_length with this setting over the "
            "last 24 whole hours",
            source="mean_acceptance_length, noted once a minute",
            unknown_when="fewer than 6 of the last 24 hours have it",
            lower_is_better=False,
            remembered=True,
        ),
    ]
}
"""All signals by name."""

REMEMBERED = frozenset(name for name, signal in SIGNALS.items() if signal.remembered)
"""Signals that the controller adds to what telemetry answers."""

MEASURED = tuple(name for name in SIGNALS if name not in REMEMBERED)
"""Signals that telemetry answers, in the order of the catalogue."""

STANDING = frozenset(
    {
        "acceptance_rate",
        "mean_acceptance_length",
        "drafts",
        "batch_size",
        "queue_depth",
        "kv_cache_usage",
        "tokens_per_second",
        "tokens_per_second_per_request",
        "requests_per_second",
        "tpot_mean",
        "e2e_mean",
        "replicas_ready",
    }
)
"""Signals that are looked at and shown whether or not a rule names them: what the comparison of two
settings rests on, and what somebody who reads a status wants to see first.

The others cost as much again, percentiles more, and devices need exporters: those are for whoever
names them (and `specpilot signals` shows all).
"""
