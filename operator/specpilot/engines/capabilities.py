"""What each vLLM version accepts about speculation: a table, so that it can be read and checked.

Sources are the releases themselves: the fields of `SpeculativeConfig`, its method names, and the
flags of `engine/arg_utils.py`, compared between 0.4.3, 0.5.5, 0.6.6, 0.7.3, 0.8.2, 0.8.5, 0.9.0,
0.9.2, 0.10.0, 0.10.1, 0.10.2 and every minor release from 0.11 to 0.33 except 0.15 (so "since
0.17.0" means: absent in 0.16.0, present in 0.17.0). `#N` is a pull request or issue of
vllm-project/vllm. Where a boundary was not seen in the code, the row is `inferred`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from specpilot.engines.versions import Span, span


class Certainty(StrEnum):
    """How a row is known."""

    VERIFIED = "verified"
    INFERRED = "inferred"


class Need(StrEnum):
    """Whether a method takes something."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """A span of versions in which a row is accepted and yet not what it says."""

    span: Span
    why: str
    certainty: Certainty = Certainty.VERIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One flag, key or method.

    Attributes:
        name: As the user writes it.
        span: Versions that accept it.
        ignored: Versions that accept it and do nothing with it.
        refused: Versions that know the name and do not start with it.
        source: Where the fact is from.
        certainty: How well it is known.
    """

    name: str
    span: Span
    ignored: tuple[Caveat, ...] = ()
    refused: tuple[Caveat, ...] = ()
    source: str = ""
    certainty: Certainty = Certainty.VERIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Row):
    """A way to draft.

    Attributes:
        model: Whether it takes a draft model.
        depth: Whether `num_speculative_tokens` must be given (else the model or engine knows it).
    """

    model: Need = Need.OPTIONAL
    depth: Need = Need.OPTIONAL


class Kind(StrEnum):
    """Type of a flag's value."""

    TEXT = "text"
    INTEGER = "whole number"
    NUMBER = "number"
    SWITCH = "switch"
    BOOLEAN = "truth value"


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyFlag(Row):
    """A flag from before the JSON value, with the key that took its place.

    Attributes:
        key: The key of the speculative config.
        kind: Type of its value; a switch has none.
    """

    key: str
    kind: Kind


_R = TypeVar("_R", bound=Row)


def _by_name(rows: Iterable[_R]) -> dict[str, _R]:
    return {row.name: row for row in rows}


_FIELDS = "fields of SpeculativeConfig"


def _keys(since: str, *names: str, until: str = "", source: str = _FIELDS) -> list[Row]:
    return [Row(name=name, span=span(since, until), source=source) for name in names]


_NO_READER = "the V1 engine has no reader for it (#25112)"

KEYS: dict[str, Row] = _by_name(
    [
        *_keys("0.8.2", "method", "model", "num_speculative_tokens", source="#14434"),
        *_keys("0.8.2", "draft_tensor_parallel_size", "quantization", "max_model_len"),
        *_keys("0.8.2", "revision", "code_revision", "prompt_lookup_max", "prompt_lookup_min"),
        Row(
            name="disable_by_batch_size",
            span=span("0.8.2", "0.17.0"),
            ignored=(
                Caveat(
                    span=span("0.10.0", "0.17.0"),
                    why="accepted and never read since the V0 engine is gone (#21152)",
                ),
            ),
            source="removed by #35060; read by the V0 engine only: " + _NO_READER,
        ),
        *_keys("0.8.2", "acceptance_method", "disable_mqa_scorer", until="0.10.0"),
        *_keys("0.8.2", "posterior_threshold", "posterior_alpha", until="0.10.0"),
        *_keys("0.8.2", "disable_logprobs", until="0.12.0"),
        *_keys("0.9.0", "speculative_token_tree", until="0.21.0"),
        *_keys("0.11.0", "disable_padded_drafter_batch", "enforce_eager"),
        *_keys("0.12.0", "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests"),
        *_keys("0.12.0", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob"),
        Row(
            name="parallel_drafting",
            span=span("0.16.0"),
            source="#32887; 0.15 not inspected",
            certainty=Certainty.INFERRED,
        ),
        *_keys("0.17.0", "draft_load_config", "use_local_argmax_reduction"),
        *_keys("0.18.0", "rejection_sample_method"),
        *_keys("0.19.0", "moe_backend"),
        *_keys("0.19.0", "synthetic_acceptance_rate", until="0.20.0"),
        *_keys("0.20.0", "synthetic_acceptance_rates", "synthetic_acceptance_length"),
        *_keys("0.21.0", "attention_backend", "draft_sample_method"),
        *_keys("0.24.0", "num_speculative_tokens_per_batch_size", source="#32374"),
        *_keys("0.25.0", "use_heterogeneous_vocab"),
        *_keys("0.26.0", "kv_cache_dtype"),
        *_keys("0.28.0", "enable_adaptive_verification", "dspark_draft_topk"),
        *_keys("0.29.0", "index_share_for_mtp_iteration"),
        *_keys("0.30.0", "disable_eagle_block_drop"),
        *_keys("0.33.0", "disable_lookahead_block_hashes", "draft_lm_head_quantization"),
        *_keys("0.33.0", "fly_window_size", "fly_entropy_threshold", "fly_entropy_top_k"),
        *_keys("0.33.0", "xpress_topc"),
    ]
)
"""Keys of `--speculative-config`. An unknown key stops every version at start."""

_NAMES = "names in SpeculativeMethod"


def _mtp(since: str, *names: str) -> list[Method]:
    return [Method(name=name, span=span(since), source=_NAMES) for name in names]


METHODS: dict[str, Method] = _by_name(
    [
        Method(
            name="ngram",
            span=span("0.4.3"),
            model=Need.NONE,
            depth=Need.REQUIRED,
            source="#4592 and earlier",
        ),
        Method(
            name="draft_model",
            span=span("0.4.3"),
            model=Need.REQUIRED,
            depth=Need.REQUIRED,
            refused=(
                Caveat(
                    span=span("0.10.0", "0.15.0"),
                    why="the V1 engine had no draft models before #24322",
                    certainty=Certainty.INFERRED,
                ),
            ),
            source="NotImplementedError in 0.10.0 to 0.14.0, none in 0.16.0; 0.15 not inspected",
        ),
        Method(
            name="mlp_speculator",
            span=span("0.5.5", "0.33.0"),
            model=Need.REQUIRED,
            source=_NAMES,
        ),
        Method(
            name="medusa",
            span=span("0.6.6", "0.33.0"),
            model=Need.REQUIRED,
            depth=Need.REQUIRED,
            source=_NAMES,
        ),
        Method(
            name="eagle",
            span=span("0.6.6"),
            model=Need.REQUIRED,
            depth=Need.REQUIRED,
            source=_NAMES,
        ),
        Method(
            name="eagle3",
            span=span("0.8.5"),
            model=Need.REQUIRED,
            depth=Need.REQUIRED,
            source="read in config.py of 0.8.5",
        ),
        Method(
            name="suffix",
            span=span("0.12.0"),
            model=Need.NONE,
            source="#25784; needs the arctic-inference package",
        ),
        Method(name="extract_hidden_states", span=span("0.17.0"), source="#33736"),
        Method(
            name="ngram_gpu",
            span=span("0.18.0"),
            model=Need.NONE,
            depth=Need.REQUIRED,
            source="#29184",
        ),
        Method(name="dflash", span=span("0.20.0"), model=Need.REQUIRED, source="#36847"),
        Method(
            name="custom_class",
            span=span("0.22.0"),
            model=Need.REQUIRED,
            depth=Need.REQUIRED,
            source="#39487; `model` is the dotted path of the proposer",
        ),
        Method(name="dspark", span=span("0.25.0"), source="#46995"),
        *_mtp("0.9.0", "deepseek_mtp"),
        *_mtp("0.10.2", "ernie_mtp", "qwen3_next_mtp"),
        *_mtp("0.11.0", "mtp", "longcat_flash_mtp", "mimo_mtp"),
        *_mtp("0.12.0", "glm4_moe_mtp", "pangu_ultra_moe_mtp"),
        *_mtp("0.14.0", "exaone_moe_mtp"),
        *_mtp("0.16.0", "glm4_moe_lite_mtp", "glm_ocr_mtp", "step3p5_mtp"),
        *_mtp("0.17.0", "nemotron_h_mtp", "qwen3_5_mtp"),
        *_mtp("0.20.0", "exaone4_5_mtp", "hy_v3_mtp"),
        *_mtp("0.21.0", "gemma4_mtp", "mimo_v2_mtp"),
        *_mtp("0.24.0", "minimax_m3_mtp"),
        *_mtp("0.25.0", "bailing_hybrid_mtp"),
        *_mtp("0.26.0", "inkling_mtp"),
        *_mtp("0.27.0", "kimi_k3_mtp"),
        *_mtp("0.28.0", "bailing_hybrid_v3_mtp", "dots3_note_mtp"),
        *_mtp("0.29.0", "hy_v4_mtp", "qwen4_exp_mtp"),
        *_mtp("0.30.0", "glm5_next_mtp"),
        *_mtp("0.33.0", "step5_mtp"),
    ]
)
"""Methods. The `*_mtp` names are deprecated aliases of `mtp` where that exists."""

CONFIG_FLAG = "--speculative-config"

FLAGS: dict[str, Row] = _by_name(
    [
        Row(name=CONFIG_FLAG, span=span("0.8.2"), source="#14434"),
        Row(name=CONFIG_FLAG + ".", span=span("0.9.0"), source="dotted keys, #18208"),
        Row(name="-sc", span=span("0.19.0"), source="#38380"),
        Row(name="--spec-method", span=span("0.22.0"), source="#42476"),
        Row(name="--spec-model", span=span("0.22.0"), source="#42476"),
        Row(name="--spec-tokens", span=span("0.22.0"), source="#42476"),
    ]
)
"""Flags with the JSON value, and beside it."""

ALIAS_KEYS = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
"""Flags that set one key; giving the same key in the JSON value as well stops the engine."""


def _legacy(since: str, key: str, name: str, kind: Kind) -> LegacyFlag:
    return LegacyFlag(
        name=name,
        key=key,
        kind=kind,
        span=span(since, "0.8.3"),
        source="removed by #15466",
    )


LEGACY_FLAGS: dict[str, LegacyFlag] = _by_name(
    [
        _legacy("0.4.3", "model", "--speculative-model", Kind.TEXT),
        _legacy("0.4.3", "num_speculative_tokens", "--num-speculative-tokens", Kind.INTEGER),
        _legacy(
            "0.4.3", "disable_by_batch_size", "--speculative-disable-by-batch-size", Kind.INTEGER
        ),
        _legacy("0.4.3", "max_model_len", "--speculative-max-model-len", Kind.INTEGER),
        _legacy("0.4.3", "prompt_lookup_max", "--ngram-prompt-lookup-max", Kind.INTEGER),
        _legacy("0.4.3", "prompt_lookup_min", "--ngram-prompt-lookup-min", Kind.INTEGER),
        _legacy(
            "0.5.5",
            "draft_tensor_parallel_size",
            "--speculative-draft-tensor-parallel-size",
            Kind.INTEGER,
        ),
        _legacy("0.5.5", "quantization", "--speculative-model-quantization", Kind.TEXT),
        _legacy("0.5.5", "acceptance_method", "--spec-decoding-acceptance-method", Kind.TEXT),
        _legacy(
            "0.5.5",
            "posterior_threshold",
            "--typical-acceptance-sampler-posterior-threshold",
            Kind.NUMBER,
        ),
        _legacy(
            "0.5.5",
            "posterior_alpha",
            "--typical-acceptance-sampler-posterior-alpha",
            Kind.NUMBER,
        ),
        _legacy(
            "0.5.5", "disable_logprobs", "--disable-logprobs-during-spec-decoding", Kind.BOOLEAN
        ),
        _legacy("0.6.6", "disable_mqa_scorer", "--speculative-disable-mqa-scorer", Kind.SWITCH),
    ]
)
"""Flags before the JSON value. The method is not stated: the engine infers it from the model."""

LEGACY_NGRAM = "[ngram]"
"""What `--speculative-model` says for n-gram drafts."""

NEEDS_BLOCK_MANAGER_V2 = span("0.4.3", "0.6.6")
"""Speculation stops the engine without `--use-v2-block-manager`; the default in 0.6.6."""

EMPTY_IS_OFF = span("0.10.1")
"""An empty value and `None` mean off (#22652); before, they are no JSON and stop the engine."""

NESTED_YAML = span("0.16.0")
"""A mapping in the file of `--config` works (#33193); before, only a JSON string does."""

READABLE_INTEGERS = span("0.20.0")
"""The value of a dotted key may be `1k` for 1000 (read in `argparse_utils.py` of 0.20.0)."""

OTHER_SPEC_FLAGS = {"--specialize-active-lora": span("0.16.0")}
"""Flags that have nothing to do with speculation and share the abbreviation `--spec`."""

V0_BATCH_LIMIT = span("0.8.2", "0.10.0")
"""`disable_by_batch_size` is read, by the V0 engine alone: speculation stops at that many running
requests (`>=`, whatever the help text says; at least 2), for each request for good."""

V1_METHODS_BEFORE_0_10 = {
    "ngram": span("0.8.2"),
    "eagle": span("0.8.5"),
    "eagle3": span("0.8.5"),
    "deepseek_mtp": span("0.9.0"),
    "medusa": span("0.9.0"),
}
"""Methods that the V1 engine of 0.8.2 to 0.9.2 may run; any other falls back to V0."""

SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"

SCHEDULE_METHODS = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})
"""Methods that follow a schedule: the allow-list of 0.33.0 (`config/vllm.py`), which drops the
schedule of any other with a warning. Earlier versions have no list; the same is assumed of them."""

SCHEDULE_CAVEATS = (
    Caveat(
        span=span("0.24.0", "0.25.0"),
        why="with data parallelism a schedule may hang the engine (#45963): use it with "
        "--data-parallel-size 1 only",
        certainty=Certainty.INFERRED,
    ),
    Caveat(
        span=span("0.25.0"),
        why="with --data-parallel-size above 1 the engine drops the schedule with a warning",
        certainty=Certainty.INFERRED,
    ),
    Caveat(
        span=span("0.25.0", "0.33.0"),
        why="Model Runner V2 accepts the schedule and drafts at full depth all the same (#51510): "
        "keep the rule that turns speculation off at large batches",
        certainty=Certainty.INFERRED,
    ),
)
"""What a schedule does not do, by version."""
