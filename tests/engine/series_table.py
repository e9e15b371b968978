"""The series that the product reads from a vLLM server, and what it relies on about each.

All carry ``model_name`` and ``engine``. Bucket bounds are the engine's defaults for a context of
2,048 tokens; the product reads bounds from the scrape, so a test of the product that used others
would still be right, but a simulator that exported others would not be vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One family of series.

    Attributes:
        name: As in the documentation; a counter's samples are called ``name_total``.
        kind: The declared type.
        labels: Labels beside the two that all have.
        buckets: The bounds of a histogram, the last one left out, which is ``+Inf``.
        speculating_only: Absent, not zero, while speculation is not configured.
        reason: What the product makes of it.
    """

    name: str
    kind: str
    reason: str
    labels: frozenset[str] = frozenset()
    buckets: tuple[float, ...] = ()
    speculating_only: bool = False


def counter(name: str, *labels: str, reason: str, speculating_only: bool = False) -> Row:
    """Return a row for a counter."""
    return Row(
        name=f"vllm:{name}",
        kind="counter",
        labels=frozenset(labels),
        reason=reason,
        speculating_only=speculating_only,
    )


def gauge(name: str, *labels: str, reason: str) -> Row:
    """Return a row for a gauge."""
    return Row(name=f"vllm:{name}", kind="gauge", labels=frozenset(labels), reason=reason)


def histogram(name: str, buckets: tuple[float, ...], *, reason: str) -> Row:
    """Return a row for a histogram."""
    return Row(name=f"vllm:{name}", kind="histogram", buckets=buckets, reason=reason)


def bounds(text: str) -> tuple[float, ...]:
    """Return the numbers in a text."""
    return tuple(map(float, text.split()))


FIRST_TOKEN = bounds(
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
)
PER_TOKEN = bounds("0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80")
WHOLE_REQUEST = bounds("0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680")
TOKENS = bounds("1 2 5 10 20 50 100 200 500 1000 2000")

SPECULATION = (
    counter(
        "spec_decode_num_drafts",
        speculating_only=True,
        reason="denominator of the acceptance length; counts request-steps that carried a draft",
    ),
    counter(
        "spec_decode_num_draft_tokens",
        speculating_only=True,
        reason="denominator of the acceptance rate",
    ),
    counter(
        "spec_decode_num_accepted_tokens",
        speculating_only=True,
        reason="numerator of both; the bonus token is not in it",
    ),
    counter(
        "spec_decode_num_accepted_tokens_per_pos",
        "position",
        speculating_only=True,
        reason="which depth still pays; one series for each configured position",
    ),
)

LOAD = (
    gauge("num_requests_running", reason="batch size"),
    gauge("num_requests_waiting", reason="queue depth"),
    gauge("kv_cache_usage_perc", reason="room for requests; a ratio in spite of its name"),
    counter("num_preemptions", reason="more was admitted than fits"),
    counter("prompt_tokens", reason="work done in prefill"),
    counter("generation_tokens", reason="tokens per second"),
    counter("request_success", "finished_reason", reason="finished requests"),
)

LATENCY = (
    histogram("time_to_first_token_seconds", FIRST_TOKEN, reason="what speculation must not cost"),
    histogram(
        "inter_token_latency_seconds",
        PER_TOKEN,
        reason="per output, not per token: never a judge of speculation",
    ),
    histogram(
        "request_time_per_output_token_seconds",
        PER_TOKEN,
        reason="the judge: per finished request, over its tokens",
    ),
    histogram("e2e_request_latency_seconds", WHOLE_REQUEST, reason="what a user waits"),
    histogram("request_queue_time_seconds", WHOLE_REQUEST, reason="waiting, within that"),
    histogram("request_inference_time_seconds", WHOLE_REQUEST, reason="running, within that"),
    histogram("request_prefill_time_seconds", WHOLE_REQUEST, reason="prompt, within that"),
    histogram("request_decode_time_seconds", WHOLE_REQUEST, reason="answer, within that"),
    histogram("request_prompt_tokens", TOKENS, reason="length of prompts"),
    histogram("request_generation_tokens", TOKENS, reason="length of answers"),
    histogram(
        "iteration_tokens_total",
        bounds("1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384"),
        reason="steps of the engine; a histogram in spite of its name",
    ),
)

ROWS = SPECULATION + LOAD + LATENCY

NOT_READ = "exported, and not read by the product"
OTHERS = (
    gauge("num_requests_waiting_by_reason", "reason", reason=NOT_READ),
    gauge("engine_sleep_state", "sleep_state", reason=NOT_READ),
    counter("prefix_cache_queries", reason=NOT_READ),
    counter("prefix_cache_hits", reason=NOT_READ),
    counter("external_prefix_cache_queries", reason=NOT_READ),
    counter("external_prefix_cache_hits", reason=NOT_READ),
    counter("mm_cache_queries", reason=NOT_READ),
    counter("mm_cache_hits", reason=NOT_READ),
    counter("prompt_tokens_by_source", "source", reason=NOT_READ),
    counter("prompt_tokens_cached", reason=NOT_READ),
    counter("prompt_tokens_cached_by_source", "source", reason=NOT_READ),
    counter("estimated_flops_per_gpu", reason=NOT_READ),
    counter("estimated_read_bytes_per_gpu", reason=NOT_READ),
    counter("estimated_write_bytes_per_gpu", reason=NOT_READ),
    histogram("request_max_num_generation_tokens", TOKENS, reason=NOT_READ),
    histogram("request_params_n", bounds("1 2 5 10 20"), reason=NOT_READ),
    histogram("request_params_max_tokens", TOKENS, reason=NOT_READ),
    histogram("request_num_preemptions", bounds("1 2 3 4 5 10 20"), reason=NOT_READ),
    histogram("request_prefill_kv_computed_tokens", TOKENS, reason=NOT_READ),
)
OTHER_SHAPES = frozenset({"vllm:cache_config_info", "vllm:admission_rejections"})
"""Exported, with labels of their own: every field of the cache's configuration, and no engine."""

FINISHED_REASONS = frozenset({"stop", "length", "abort", "error", "repetition"})
"""All are exported from the start, at zero."""
