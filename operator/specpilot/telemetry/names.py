"""Which series of the engine the product reads, and what they were called before.

One table for both sources: a rename in the engine is one line here. Names are the wire names
without the `vllm:` prefix and without the `_total` that the text format adds to counters (some
collectors strip it, so both spellings are accepted).

One series is left out on purpose. `inter_token_latency_seconds` (before 0.11
`time_per_output_token_seconds`) has one sample per engine output, not per token, and speculation
puts several tokens into one output: it rises while the true time per token falls.
"""

from collections.abc import Mapping
from enum import StrEnum

LARGEST = 1e300
"""No count, duration or share is as large; sums of smaller ones can be added up."""

PREFIX = "vllm:"
"""Every series of the engine starts with it."""

PREFIXES = (PREFIX, "ray_vllm_", "ray_vllm:", "vllm_")
"""The same under Ray Serve, which exports the engine's metrics itself: no colon, its own prefix."""


class Counter(StrEnum):
    """Counters, summed over engines, models and finish reasons of a replica."""

    GENERATION_TOKENS = "generation_tokens"
    REQUESTS = "request_success"
    PREEMPTIONS = "num_preemptions"
    DRAFTS = "spec_decode_num_drafts"
    DRAFT_TOKENS = "spec_decode_num_draft_tokens"
    ACCEPTED_TOKENS = "spec_decode_num_accepted_tokens"
    PREFIX_QUERIES = "prefix_cache_queries"
    PREFIX_HITS = "prefix_cache_hits"
    HTTP_REQUESTS = "http_requests"
    HTTP_FAILED = "http_requests_failed"


HTTP = frozenset({Counter.HTTP_REQUESTS, Counter.HTTP_FAILED})
"""Of the API server, not of the engine: made of `http_requests_total`, without the engine's prefix.
They come with the first request that is answered, and say nothing about the engine before."""

HTTP_SERIES = "http_requests_total"
"""By handler, method and class of status (`2xx`), from prometheus-fastapi-instrumentator."""

HTTP_METHOD = "POST"
"""Calls that ask for work; what lists models or looks for files is none of the engine's traffic."""


def http_failed(status: str) -> bool:
    """Whether a status, or a class of them as the series has it, says that a call was refused."""
    return status[:1] in {"4", "5"}


COUNTER_NAMES: Mapping[Counter, tuple[str, ...]] = {
    **{counter: (str(counter),) for counter in Counter if counter not in HTTP},
    # Renamed in 0.9.2; later versions export both for a while, with the same numbers.
    Counter.PREFIX_QUERIES: ("prefix_cache_queries", "gpu_prefix_cache_queries"),
    Counter.PREFIX_HITS: ("prefix_cache_hits", "gpu_prefix_cache_hits"),
}
"""Wire names of each counter, newest first."""

POSITIONS = "spec_decode_num_accepted_tokens_per_pos"
"""A counter for each position of a draft, told by the label `position` (from 0)."""


SPECULATION = frozenset({Counter.DRAFTS, Counter.DRAFT_TOKENS, Counter.ACCEPTED_TOKENS})
"""Present (at 0) from the start while the engine speculates, absent while it does not."""


class Family(StrEnum):
    """Histograms, summed over engines and models of a replica."""

    TPOT = "request_time_per_output_token_seconds"  # since 0.11
    TTFT = "time_to_first_token_seconds"
    E2E = "e2e_request_latency_seconds"
    QUEUE_TIME = "request_queue_time_seconds"
    DECODE_TIME = "request_decode_time_seconds"
    PROMPT_TOKENS = "request_prompt_tokens"
    GENERATION_TOKENS = "request_generation_tokens"
    STEPS = "iteration_tokens_total"  # one observation a step, whatever the name says


FAMILY_NAMES: Mapping[Family, tuple[str, ...]] = {
    **{family: (str(family),) for family in Family},
    # The V0 engine's first name for it; later versions export both, until 0.9.1.
    Family.QUEUE_TIME: ("request_queue_time_seconds", "time_in_queue_requests"),
}
"""Wire names of each histogram, newest first."""

QUANTILES = (Family.TPOT, Family.TTFT, Family.E2E, Family.QUEUE_TIME)
"""Histograms whose buckets are read; of the others sum and count are enough."""


def buckets_of(family: Family) -> str:
    """What the buckets of a histogram are called, apart from its sum and count."""
    return f"{family}_bucket"


class Gauge(StrEnum):
    """Gauges, by the newest name."""

    RUNNING = "num_requests_running"
    WAITING = "num_requests_waiting"
    KV_CACHE = "kv_cache_usage_perc"
    HIT_RATE = "gpu_prefix_cache_hit_rate"  # the V0 engine's own; -1 without prefix caching


class DeviceGauge(StrEnum):
    """Gauges of a replica's devices, from a GPU exporter; named like the signals made of them."""

    UTIL = "gpu_util"
    TENSOR_ACTIVE = "gpu_tensor_active"
    DRAM_ACTIVE = "gpu_dram_active"
    MEMORY_USED = "gpu_memory_used"
    POWER = "gpu_power"


GAUGE_NAMES: Mapping[Gauge, tuple[str, ...]] = {
    Gauge.RUNNING: ("num_requests_running",),
    Gauge.WAITING: ("num_requests_waiting",),
    # Renamed in 0.9.2; 0.9.2 and 0.10 export both with the same value, so the first one found wins.
    Gauge.KV_CACHE: ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    Gauge.HIT_RATE: ("gpu_prefix_cache_hit_rate",),
}
"""Wire names of each gauge, newest first."""

AVERAGED = frozenset({Gauge.KV_CACHE, Gauge.HIT_RATE})
"""Gauges that are a share: averaged over the engines of a replica, where the others are summed."""

LEGACY_SPECULATION = (
    "spec_decode_num_emitted_tokens",
    "spec_decode_draft_acceptance_rate",
    "spec_decode_efficiency",
)
"""Only the V0 engine (before 0.10) exports these, and only while it speculates."""

LEGACY_RATE = "spec_decode_draft_acceptance_rate"
"""The V0 engine's own acceptance rate since its start. Its counters add up running totals and are
wrong by any measure; this gauge is right, but also counts tokens accepted after a rejected one."""

CACHE_INFO = "cache_config_info"
"""Exported from the start, even by 0.8 servers that export nothing else before a first request."""

ENGINE_LABELS = ("engine", "model_name", "finished_reason")
"""Labels inside one replica; whatever else a series carries names the replica or its scrape."""

RAY_LABELS = ("ReplicaId", "WorkerId", "deployment", "replica", "application")
"""Labels inside one pod that Ray Serve adds: several of its actors may share a pod."""
