"""The metric families of each vLLM release: names, kinds, labels and when they appear.

Held to recordings of 0.8.5 (V0 engine), 0.10.2 and 0.32.0 by the tests; in between, a family's
span comes from the metric names in the releases' sources. Families that no consumer of speculation
reads (offloading connectors, tool parsers, ``python_*``) are left out; ``http_*`` is in
`specpilot.sim.httpcount`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from packaging.version import Version

from specpilot.sim.launch import Generation
from specpilot.sim.stats import EngineStats, Histogram
from specpilot.sim.versions import ALWAYS, Span, span

Value = float | Histogram | Mapping[str, float]
"""One number, a histogram, or one number for each value of the family's own label."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family.

    Attributes:
        name: without ``_total``.
        kind: ``counter``, ``gauge`` or ``histogram``.
        help: vLLM's text, or the gist of it.
        read: takes the value out of an engine's statistics.
        label: the label that tells its samples apart, beyond the engine's.
        span: releases that export it.
        generation: the engine that exports it; None means both.
        speculative: exported only with speculation configured.
        live: a gauge of the scheduler; missing until the first request with several API servers.
        per_engine: carries the ``engine`` label where the release has one.
    """

    name: str
    kind: str
    help: str
    read: Callable[[EngineStats], Value]
    label: str | None = None
    span: Span = ALWAYS
    generation: Generation | None = None
    speculative: bool = False
    live: bool = False
    per_engine: bool = True


def families(*, version: Version, generation: Generation, speculative: bool) -> tuple[Family, ...]:
    """Return what a release exports, in order."""
    return tuple(
        family
        for family in FAMILIES
        if version in family.span
        and family.generation in (None, generation)
        and (speculative or not family.speculative)
    )


FINISH_REASONS: Final[dict[str, Span]] = {
    "stop": ALWAYS,
    "length": ALWAYS,
    "abort": ALWAYS,
    "error": span("0.14.0"),
    "repetition": span("0.20.0"),
}
"""Values of ``finished_reason``. 0.10.2 has three and 0.32.0 five; in between it is a guess."""

ENGINE_LABEL: Final = span("0.8.3")
"""#13923; V0 never had it."""

_V0: Final = Generation.V0
_V1: Final = Generation.V1
_V1_SPEC: Final = span("0.8.5")  # #16665
_GPU_NAMES: Final = span("0.8.0", "0.11.0")  # hidden in 0.11, removed by #29330
_KV_NAMES: Final = span("0.9.2")  # #18354


def _zero(_: EngineStats) -> float:
    return 0.0


def _counter(
    name: str,
    read: str | Callable[[EngineStats], Value],
    text: str,
    known: Span = ALWAYS,
    *,
    label: str | None = None,
    generation: Generation | None = None,
    speculative: bool = False,
    per_engine: bool = True,
) -> Family:
    return Family(
        name=f"vllm:{name}",
        kind="counter",
        help=text,
        read=attrgetter(read) if isinstance(read, str) else read,
        label=label,
        span=known,
        generation=generation,
        speculative=speculative,
        per_engine=per_engine,
    )


def _gauge(
    name: str,
    read: str | Callable[[EngineStats], Value],
    text: str,
    known: Span = ALWAYS,
    *,
    label: str | None = None,
    generation: Generation | None = None,
    speculative: bool = False,
    live: bool = True,
) -> Family:
    return Family(
        name=f"vllm:{name}",
        kind="gauge",
        help=text,
        read=attrgetter(read) if isinstance(read, str) else read,
        label=label,
        span=known,
        generation=generation,
        speculative=speculative,
        live=live,
    )


def _histogram(
    name: str, read: str, text: str, known: Span = ALWAYS, *, generation: Generation | None = None
) -> Family:
    return Family(
        name=f"vllm:{name}",
        kind="histogram",
        help=text,
        read=attrgetter(read),
        span=known,
        generation=generation,
    )


def _per_position(stats: EngineStats) -> Mapping[str, float]:
    return {str(position): count for position, count in enumerate(stats.spec.per_position)}


def _waiting_by_reason(stats: EngineStats) -> Mapping[str, float]:
    return {"capacity": stats.waiting, "deferred": 0}


def _prompt_by_source(stats: EngineStats) -> Mapping[str, float]:
    return {
        "local_compute": stats.prompt_tokens,
        "local_cache_hit": 0,
        "external_kv_transfer": 0,
    }


def _zeros(*names: str) -> Callable[[EngineStats], Mapping[str, float]]:
    zeros = dict.fromkeys(names, 0.0)
    return lambda _: zeros


def _awake(_: EngineStats) -> Mapping[str, float]:
    return {"awake": 1, "weights_offloaded": 0, "discard_all": 0}


def _spec(name: str, read: str | Callable[[EngineStats], Value], text: str) -> Family:
    label = "position" if name.endswith("per_pos") else None
    return _counter(
        f"spec_decode_{name}", read, text, _V1_SPEC, label=label, generation=_V1, speculative=True
    )


def _v0_spec(name: str, read: str, text: str) -> Family:
    make = _counter if name.startswith("num_") else _gauge
    return make(f"spec_decode_{name}", f"v0_report.{read}", text, generation=_V0, speculative=True)


FAMILIES: Final[tuple[Family, ...]] = (
    _spec("num_drafts", "spec.drafts", "Number of spec decoding drafts."),
    _spec("num_draft_tokens", "spec.draft_tokens", "Number of draft tokens."),
    _spec("num_accepted_tokens", "spec.accepted", "Number of accepted tokens."),
    _spec("num_accepted_tokens_per_pos", _per_position, "Accepted tokens per draft position."),
    _v0_spec("num_accepted_tokens", "accepted", "Number of accepted tokens."),
    _v0_spec("num_draft_tokens", "draft_tokens", "Number of draft tokens."),
    _v0_spec("num_emitted_tokens", "emitted", "Number of emitted tokens."),
    _v0_spec("draft_acceptance_rate", "acceptance_rate", "Token acceptance rate."),
    _v0_spec("efficiency", "efficiency", "Speculative decoding system efficiency."),
    _gauge("num_requests_running", "running", "Number of requests in model execution batches."),
    _gauge("num_requests_waiting", "waiting", "Number of requests waiting to be processed."),
    _gauge(
        "num_requests_waiting_by_reason",
        _waiting_by_reason,
        "Number of waiting requests by reason.",
        span("0.20.0"),  # #38435
        label="reason",
    ),
    _gauge(
        "num_requests_swapped",
        _zero,
        "Number of requests swapped to CPU.",
        span(until="0.8.0"),
        generation=_V0,
    ),
    _gauge(
        "cpu_cache_usage_perc", _zero, "CPU KV-cache usage.", span(until="0.8.0"), generation=_V0
    ),
    _gauge(
        "engine_sleep_state",
        _awake,
        "Engine sleep state.",
        span("0.11.1"),
        label="sleep_state",
        live=False,
    ),
    _gauge(
        "gpu_cache_usage_perc",
        "kv_usage",
        "GPU KV-cache usage. 1 means 100 percent usage.",
        span(until="0.11.0"),
    ),
    _gauge(
        "kv_cache_usage_perc",
        "kv_usage",
        "KV-cache usage. 1 means 100 percent usage.",
        _KV_NAMES,
        generation=_V1,
    ),
    *(
        _counter(
            f"{prefix}prefix_cache_{name}",
            read,
            f"Prefix cache {name}, in terms of number of tokens.",
            known,
            generation=_V1,
        )
        for prefix, known in (("gpu_", _GPU_NAMES), ("", _KV_NAMES))
        for name, read in (("queries", "prefix_queries"), ("hits", _zero))
    ),
    *(
        _counter(name, _zero, f"{name.replace('_', ' ').capitalize()}.", span("0.11.1"))
        for name in (
            "external_prefix_cache_queries",
            "external_prefix_cache_hits",
            "mm_cache_queries",
            "mm_cache_hits",
        )
    ),
    _counter("num_preemptions", "preemptions", "Cumulative number of preemption from the engine."),
    _counter("prompt_tokens", "prompt_tokens", "Number of prefill tokens processed."),
    _counter(
        "prompt_tokens_by_source",
        _prompt_by_source,
        "Number of prompt tokens by source.",
        span("0.16.0"),
        label="source",
    ),
    _counter("prompt_tokens_cached", _zero, "Number of cached prompt tokens.", span("0.16.0")),
    _counter(
        "prompt_tokens_cached_by_source",
        _zeros("device", "host", "p2p", "disk", "external_unspecified"),
        "Prefix-cache hit tokens by the cache tier that supplied them.",
        span("0.32.0"),
        label="source",
    ),
    _counter("generation_tokens", "generation_tokens", "Number of generation tokens processed."),
    _counter(
        "request_success",
        "finished",
        "Count of successfully processed requests.",
        label="finished_reason",
    ),
    _counter(
        "admission_rejections",
        _zeros("max_num_queued_reqs", "max_num_queued_tokens"),
        "Number of admission attempts rejected by a queue limit, by reason.",
        span("0.32.0"),
        label="reason",
        per_engine=False,
    ),
    _histogram(
        "request_prompt_tokens", "request_prompt_tokens", "Number of prefill tokens processed."
    ),
    _histogram(
        "request_generation_tokens",
        "request_generation_tokens",
        "Number of generation tokens processed.",
    ),
    _histogram(
        "iteration_tokens_total",
        "iteration_tokens",
        "Histogram of number of tokens per engine_step.",
    ),
    _histogram(
        "request_max_num_generation_tokens",
        "request_max_tokens",
        "Histogram of maximum number of requested generation tokens.",
    ),
    _histogram("request_params_n", "params_n", "Histogram of the n request parameter."),
    _histogram(
        "request_params_max_tokens",
        "params_max_tokens",
        "Histogram of the max_tokens request parameter.",
    ),
    _histogram(
        "time_to_first_token_seconds", "ttft", "Histogram of time to first token in seconds."
    ),
    _histogram(
        "time_per_output_token_seconds",
        "inter_token",
        "Histogram of time per output token in seconds.",
        span(until="0.12.0"),  # renamed by #24110, hidden from 0.12, deleted by #32661
    ),
    _histogram(
        "inter_token_latency_seconds",
        "inter_token",
        "Histogram of inter-token latency in seconds.",
        span("0.10.2"),
        generation=_V1,
    ),
    _histogram(
        "request_time_per_output_token_seconds",
        "request_tpot",
        "Histogram of time_per_output_token_seconds per request.",
        span("0.11.0"),  # #24015
        generation=_V1,
    ),
    *(
        _histogram(f"{name}_seconds", read, f"Histogram of {text}.")
        for name, read, text in (
            ("e2e_request_latency", "e2e", "e2e request latency in seconds"),
            ("request_queue_time", "queue", "time spent in WAITING phase for request"),
            ("request_inference_time", "inference", "time spent in RUNNING phase for request"),
            ("request_prefill_time", "prefill", "time spent in PREFILL phase for request"),
            ("request_decode_time", "decode", "time spent in DECODE phase for request"),
        )
    ),
    _histogram(
        "request_num_preemptions",
        "request_preemptions",
        "Histogram of the number of times a request was preempted.",
        span("0.30.0"),
    ),
    _histogram(
        "request_prefill_kv_computed_tokens",
        "prefill_kv_computed",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        span("0.14.0"),
    ),
)
