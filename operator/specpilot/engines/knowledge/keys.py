"""Rows about keys of `--speculative-config`, and about the words that some of them take.

An unknown key stops every version at start: it is never ignored. A key that is known and does
nothing is the trap, and has a row of its own.
"""

from dataclasses import replace

from specpilot.engines.knowledge.rows import Certainty, Effect, Key, Kind, On, Row, Topic
from specpilot.engines.versions import span

LIMIT_KEY = "disable_by_batch_size"

SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"

_FIELDS = "fields of SpeculativeConfig"
_FOLLOWS_A_SCHEDULE = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})


def _keys(
    since: str, kind: Kind, *names: str, until: str = "", source: str = _FIELDS
) -> tuple[Key, ...]:
    return tuple(
        Key(topic=Topic.KEY, name=name, span=span(since, until), kind=kind, source=source)
        for name in names
    )


def _samplers() -> tuple[Key, ...]:
    """Parameters of the V0 engine's sampler, gone with it."""
    source = "parameters of V0's sampler, removed by #21152"
    rows = (
        *_keys("0.8.2", Kind.TEXT, "acceptance_method", until="0.10.0", source=source),
        *_keys("0.8.2", Kind.BOOLEAN, "disable_mqa_scorer", until="0.10.0", source=source),
        *_keys("0.8.2", Kind.NUMBER, "posterior_threshold", until="0.10.0", source=source),
        *_keys("0.8.2", Kind.NUMBER, "posterior_alpha", until="0.10.0", source=source),
    )
    return tuple(replace(row, on=On.V0) for row in rows) + tuple(
        replace(
            row,
            on=On.V1,
            effect=Effect.IGNORED,
            why="it is V0's sampler's",
            certainty=Certainty.INFERRED,
        )
        for row in rows
    )


def _limit(
    since: str,
    until: str,
    *,
    source: str,
    on: On = On.ANY,
    effect: Effect = Effect.WORKS,
    why: str = "",
    certainty: Certainty = Certainty.VERIFIED,
) -> Key:
    return Key(
        topic=Topic.KEY,
        name=LIMIT_KEY,
        kind=Kind.INTEGER,
        span=span(since, until),
        on=on,
        effect=effect,
        why=why,
        source=source,
        certainty=certainty,
    )


def _schedule(
    since: str,
    until: str = "",
    *,
    source: str,
    on: On = On.ANY,
    effect: Effect = Effect.WORKS,
    why: str = "",
    only: frozenset[str] = frozenset(),
    but: frozenset[str] = frozenset(),
    with_data_parallel: bool = False,
    certainty: Certainty = Certainty.VERIFIED,
) -> Key:
    return Key(
        topic=Topic.KEY,
        name=SCHEDULE_KEY,
        kind=Kind.LIST,
        span=span(since, until),
        on=on,
        effect=effect,
        why=why,
        only=only,
        but=but,
        with_data_parallel=with_data_parallel,
        source=source,
        certainty=certainty,
    )


_LIMIT_ROWS = (
    _limit(
        "0.8.2",
        "0.10.0",
        on=On.V0,
        why="off for good for each request that runs with N or more running (N at least 2)",
        source="spec_decode_worker.py of 0.8.5",
    ),
    _limit(
        "0.8.2",
        "0.10.0",
        on=On.V1,
        effect=Effect.IGNORED,
        why="the V1 engine has no reader for it",
        source="#25112",
    ),
    _limit(
        "0.10.0",
        "0.17.0",
        effect=Effect.IGNORED,
        why="accepted and never read since the V0 engine is gone",
        source="#21152; deleted by #35060",
    ),
)

_SCHEDULE_ROWS = (
    _schedule("0.24.0", source="#32374", on=On.MRV1, why="CUDA graphs become piecewise"),
    _schedule(
        "0.24.0",
        "0.25.0",
        on=On.MRV2,
        effect=Effect.IGNORED,
        why="Model Runner V2 does not support a schedule",
        source="listed as unsupported in config/vllm.py",
        certainty=Certainty.INFERRED,
    ),
    _schedule(
        "0.25.0",
        "0.30.0",
        on=On.MRV2,
        effect=Effect.IGNORED,
        why="Model Runner V2 accepts the schedule and drafts at full depth all the same",
        source="#51510",
        certainty=Certainty.INFERRED,
    ),
    _schedule(
        "0.30.0",
        "0.32.0",
        on=On.MRV2,
        effect=Effect.IGNORED,
        why="Model Runner V2 accepts the schedule and drafts at full depth all the same",
        source="no reader in v1/worker/gpu/model_runner.py of 0.30.0 and 0.31.0",
    ),
    _schedule("0.32.0", on=On.MRV2, source="v1/worker/gpu/model_runner.py of 0.32.0"),
    _schedule(
        "0.24.0",
        "0.25.0",
        effect=Effect.HANGS,
        why="ranks of data parallelism may hang, as they may pick different depths",
        with_data_parallel=True,
        source="#45963",
        certainty=Certainty.INFERRED,
    ),
    _schedule(
        "0.25.0",
        "0.32.0",
        effect=Effect.IGNORED,
        why="with data parallelism the engine drops the schedule with a warning",
        with_data_parallel=True,
        source="#45963",
        certainty=Certainty.INFERRED,
    ),
    _schedule(
        "0.32.0",
        effect=Effect.IGNORED,
        why="with data parallelism the engine drops the schedule with a warning",
        with_data_parallel=True,
        source="config/vllm.py of 0.32.0 and 0.33.0",
    ),
    _schedule(
        "0.24.0",
        "0.33.0",
        effect=Effect.IGNORED,
        why="the class is not told a depth",
        only=frozenset({"custom_class"}),
        source="v1/worker/gpu_model_runner.py of 0.32.0; before it, assumed",
        certainty=Certainty.INFERRED,
    ),
    _schedule(
        "0.33.0",
        effect=Effect.IGNORED,
        why="the method is not on the list of those that follow a schedule",
        but=_FOLLOWS_A_SCHEDULE,
        source="config/vllm.py of 0.33.0",
    ),
)

KEYS: tuple[Key, ...] = (
    *_keys("0.8.2", Kind.TEXT, "method", "model", source="#14434"),
    *_keys("0.8.2", Kind.POSITIVE, "num_speculative_tokens", source="#14434"),
    *_keys("0.8.2", Kind.POSITIVE, "draft_tensor_parallel_size", "max_model_len"),
    *_keys("0.8.2", Kind.TEXT, "quantization", "revision", "code_revision"),
    *_keys("0.8.2", Kind.POSITIVE, "prompt_lookup_max", "prompt_lookup_min"),
    *_LIMIT_ROWS,
    *_samplers(),
    *_keys("0.8.2", Kind.BOOLEAN, "disable_logprobs", until="0.12.0"),
    *_keys("0.9.0", Kind.TEXT, "speculative_token_tree", until="0.21.0"),
    *_keys("0.11.0", Kind.BOOLEAN, "disable_padded_drafter_batch", "enforce_eager"),
    *_keys("0.12.0", Kind.POSITIVE, "suffix_decoding_max_tree_depth"),
    *_keys("0.12.0", Kind.INTEGER, "suffix_decoding_max_cached_requests"),
    *_keys("0.12.0", Kind.NUMBER, "suffix_decoding_max_spec_factor"),
    *_keys("0.12.0", Kind.NUMBER, "suffix_decoding_min_token_prob"),
    Key(
        topic=Topic.KEY,
        name="parallel_drafting",
        kind=Kind.BOOLEAN,
        span=span("0.16.0"),
        source="#32887; 0.15 not inspected",
        certainty=Certainty.INFERRED,
    ),
    *_keys("0.17.0", Kind.ANYTHING, "draft_load_config"),
    *_keys("0.17.0", Kind.BOOLEAN, "use_local_argmax_reduction"),
    *_keys("0.18.0", Kind.TEXT, "rejection_sample_method"),
    *_keys("0.19.0", Kind.TEXT, "moe_backend"),
    *_keys("0.19.0", Kind.NUMBER, "synthetic_acceptance_rate", until="0.20.0"),
    *_keys("0.20.0", Kind.LIST, "synthetic_acceptance_rates"),
    *_keys("0.20.0", Kind.NUMBER, "synthetic_acceptance_length"),
    *_keys("0.21.0", Kind.TEXT, "attention_backend", "draft_sample_method"),
    *_SCHEDULE_ROWS,
    *_keys("0.25.0", Kind.BOOLEAN, "use_heterogeneous_vocab"),
    *_keys("0.26.0", Kind.TEXT, "kv_cache_dtype"),
    *_keys("0.28.0", Kind.BOOLEAN, "enable_adaptive_verification"),
    *_keys("0.28.0", Kind.POSITIVE, "dspark_draft_topk"),
    Key(
        topic=Topic.KEY,
        name="dspark_draft_topk",
        kind=Kind.POSITIVE,
        span=span("0.28.0"),
        effect=Effect.FAILS,
        only=frozenset({"eagle", "eagle3", "mtp", "draft_model", "dflash"}),
        why="of the methods with a draft model it is for dspark alone",
        source="config/speculative.py of 0.32.0",
    ),
    *_keys("0.29.0", Kind.BOOLEAN, "index_share_for_mtp_iteration"),
    Key(
        topic=Topic.KEY,
        name="index_share_for_mtp_iteration",
        kind=Kind.BOOLEAN,
        span=span("0.29.0"),
        effect=Effect.FAILS,
        but=frozenset({"mtp"}),
        why="it is for method mtp alone",
        source="config/speculative.py of 0.32.0, and run there",
    ),
    *_keys("0.30.0", Kind.BOOLEAN, "disable_eagle_block_drop"),
    *_keys("0.33.0", Kind.BOOLEAN, "disable_lookahead_block_hashes"),
    *_keys("0.33.0", Kind.TEXT, "draft_lm_head_quantization"),
    *_keys("0.33.0", Kind.POSITIVE, "fly_window_size", "fly_entropy_top_k"),
    *_keys("0.33.0", Kind.NUMBER, "fly_entropy_threshold"),
    *_keys("0.33.0", Kind.POSITIVE, "xpress_topc"),
)
"""Keys."""


def _values(key: str, since: str, *words: str, source: str = "", sure: bool = True) -> list[Row]:
    return [
        Row(
            topic=Topic.VALUE,
            name=f"{key}={word}",
            span=span(since),
            source=source or f"Literal of {key} in SpeculativeConfig of 0.32.0 and 0.33.0",
            certainty=Certainty.VERIFIED if sure else Certainty.INFERRED,
        )
        for word in words
    ]


VALUES: tuple[Row, ...] = (
    *_values("rejection_sample_method", "0.18.0", "standard"),
    *_values("rejection_sample_method", "0.19.0", "synthetic", source="#38045", sure=False),
    *_values("rejection_sample_method", "0.22.0", "block", source="seen in 0.22.0", sure=False),
    *_values("rejection_sample_method", "0.33.0", "fly", source="absent in 0.32.0"),
    *_values("draft_sample_method", "0.21.0", "greedy", "probabilistic"),
    Row(
        topic=Topic.VALUE,
        name="use_heterogeneous_vocab=true",
        span=span("0.25.0"),
        effect=Effect.FAILS,
        but=frozenset({"draft_model"}),
        why="it is for method draft_model alone",
        source="config/speculative.py of 0.32.0",
    ),
)
"""Words that a key takes, and values that do not go with everything. A key of which none is said
to work takes any."""

SYNTHETIC = ("synthetic_acceptance_rates", "synthetic_acceptance_length")
"""Exactly one of them goes with `rejection_sample_method=synthetic`, and none with anything else
(config/speculative.py of 0.32.0)."""
