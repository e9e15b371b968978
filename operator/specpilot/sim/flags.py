"""vLLM's flags that have nothing to do with speculation: accepted so that real manifests start.

The table is permissive on purpose: it holds the flags that serving manifests commonly carry, with
the release that introduced them where getting it wrong would hide a crash loop. What is not here is
refused as argparse refuses it, which is also what vLLM does with a flag that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from specpilot.sim.versions import ALWAYS, Span, span


class Arity(StrEnum):
    """How many words follow a flag."""

    SWITCH = "switch"
    VALUE = "value"
    INTEGER = "integer"
    HUMAN_INTEGER = "human integer"
    """An integer, or a human one such as ``8k`` or ``32K``."""
    FLOAT = "float"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of ``vllm serve``, written without its leading dashes."""

    name: str
    arity: Arity
    span: Span = ALWAYS


def _flags(arity: Arity, names: str, known: Span = ALWAYS) -> list[Flag]:
    return [Flag(name=name, arity=arity, span=known) for name in names.split()]


NEGATED_SWITCHES: Final = span("0.9.0")
"""From here on every switch has a ``--no-`` form."""

FLAGS: Final[tuple[Flag, ...]] = (
    *_flags(
        Arity.VALUE,
        "host uvicorn-log-level chat-template response-role ssl-keyfile ssl-certfile ssl-ca-certs "
        "root-path tokenizer tokenizer-mode revision code-revision tokenizer-revision dtype "
        "kv-cache-dtype quantization load-format download-dir config-format hf-overrides "
        "distributed-executor-backend device task tool-call-parser chat-template-content-format "
        "generation-config override-generation-config model-impl limit-mm-per-prompt "
        "guided-decoding-backend compilation-config kv-transfer-config reasoning-parser "
        "tool-parser-plugin lora-modules preemption-mode worker-cls hf-token",
    ),
    *_flags(
        Arity.VALUE,
        "kv-events-config additional-config data-parallel-address data-parallel-backend "
        "attention-backend logits-processors prefix-caching-hash-algo mm-processor-kwargs "
        "structured-outputs-config cudagraph-capture-sizes performance-mode runner convert",
        span("0.9.0"),
    ),
    *_flags(Arity.HUMAN_INTEGER, "max-model-len max-num-batched-tokens"),
    *_flags(
        Arity.INTEGER,
        "port max-num-seqs tensor-parallel-size pipeline-parallel-size block-size "
        "num-gpu-blocks-override seed max-logprobs max-loras max-lora-rank "
        "max-seq-len-to-capture max-parallel-loading-workers",
    ),
    *_flags(Arity.INTEGER, "swap-space max-log-len"),
    *_flags(Arity.INTEGER, "data-parallel-size", span("0.8.0")),
    *_flags(
        Arity.INTEGER,
        "api-server-count data-parallel-size-local data-parallel-start-rank data-parallel-rank "
        "data-parallel-rpc-port stream-interval",
        span("0.9.0"),
    ),
    *_flags(Arity.INTEGER, "nnodes node-rank master-port", span("0.11.0")),
    *_flags(Arity.VALUE, "master-addr", span("0.11.0")),
    *_flags(Arity.INTEGER, "shutdown-timeout", span("0.18.0")),  # #36666
    *_flags(Arity.FLOAT, "gpu-memory-utilization cpu-offload-gb"),
    *_flags(Arity.MANY, "served-model-name middleware allowed-local-media-path api-key"),
    *_flags(
        Arity.SWITCH,
        "trust-remote-code enforce-eager enable-prefix-caching disable-log-stats "
        "disable-sliding-window enable-chunked-prefill enable-lora enable-auto-tool-choice "
        "disable-custom-all-reduce enable-reasoning disable-frontend-multiprocessing "
        "enable-ssl-refresh return-tokens-as-token-ids enable-prompt-tokens-details "
        "disable-fastapi-docs enable-sleep-mode allow-credentials",
    ),
    *_flags(Arity.SWITCH, "disable-log-requests", span(until="0.12.0")),
    *_flags(Arity.SWITCH, "enable-log-requests enable-expert-parallel", span("0.10.0")),
    *_flags(Arity.SWITCH, "async-scheduling headless data-parallel-hybrid-lb", span("0.10.0")),
    *_flags(Arity.SWITCH, "enable-server-load-tracking", span("0.8.0")),
    *_flags(Arity.SWITCH, "enable-mfu-metrics", span("0.17.0")),
    *_flags(Arity.SWITCH, "per-request-spec-decode-metrics", span("0.29.0")),
    *_flags(Arity.SWITCH, "enable-tokenizer-info-endpoint", span("0.11.0")),
    *_flags(Arity.VALUE, "custom-histogram-buckets", span("0.33.0")),
    *_flags(Arity.VALUE, "show-hidden-metrics-for-version", span("0.7.0")),
    *_flags(Arity.VALUE, "stats-log-interval otlp-traces-endpoint collect-detailed-traces"),
)

SHORT_NAMES: Final[dict[str, str]] = {
    "tensor-parallel-size": "-tp",
    "pipeline-parallel-size": "-pp",
    "data-parallel-size": "-dp",
    "quantization": "-q",
}


@dataclass(frozen=True, slots=True)
class Bounded:
    """An integer that the engine is built with, and where vLLM checks it."""

    owner: str
    default: int
    least: int = 1


BOUNDED: Final[dict[str, Bounded]] = {
    "port": Bounded("FrontendArgs", 8000, least=0),
    "max_model_len": Bounded("ModelConfig", 4096),
    "max_num_seqs": Bounded("SchedulerConfig", 256),
    "max_num_batched_tokens": Bounded("SchedulerConfig", 2048),
    "block_size": Bounded("CacheConfig", 16),
    "num_gpu_blocks_override": Bounded("CacheConfig", 1),
    "data_parallel_size": Bounded("ParallelConfig", 1),
    "api_server_count": Bounded("ParallelConfig", 1),
    "shutdown_timeout": Bounded("VllmConfig", 0, least=0),
}

LEGACY_SPECULATION: Final[tuple[Flag, ...]] = (
    *_flags(Arity.VALUE, "speculative-model speculative-model-quantization"),
    *_flags(Arity.VALUE, "spec-decoding-acceptance-method"),
    *_flags(
        Arity.INTEGER,
        "num-speculative-tokens speculative-disable-by-batch-size "
        "speculative-draft-tensor-parallel-size speculative-max-model-len "
        "ngram-prompt-lookup-max ngram-prompt-lookup-min",
    ),
    *_flags(Arity.FLOAT, "typical-acceptance-sampler-posterior-threshold"),
    *_flags(Arity.FLOAT, "typical-acceptance-sampler-posterior-alpha"),
    *_flags(Arity.SWITCH, "speculative-disable-mqa-scorer disable-logprobs-during-spec-decoding"),
)
"""Speculation flags before ``--speculative-config``; see :data:`.catalogue.LEGACY_FLAGS`."""
