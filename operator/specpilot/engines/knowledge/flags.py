"""Rows about flags."""

from specpilot.engines.knowledge.rows import Effect, Flag, Kind, On, Topic
from specpilot.engines.versions import span

CONFIG_FLAG = "--speculative-config"

LIMIT_FLAG = "--speculative-disable-by-batch-size"

DOTTED_FLAG = CONFIG_FLAG + "."
"""Stands for all dotted keys."""


def _flag(
    name: str, since: str, *, key: str = "", kind: Kind = Kind.TEXT, source: str, until: str = ""
) -> Flag:
    return Flag(
        topic=Topic.FLAG, name=name, span=span(since, until), key=key, kind=kind, source=source
    )


def _legacy(
    since: str,
    key: str,
    name: str,
    kind: Kind,
    *,
    on: On = On.ANY,
    effect: Effect = Effect.WORKS,
    why: str = "",
) -> Flag:
    return Flag(
        topic=Topic.FLAG,
        name=name,
        key=key,
        kind=kind,
        on=on,
        effect=effect,
        why=why,
        span=span(since, "0.8.3"),
        source="engine/arg_utils.py; removed by #15466",
        legacy=True,
    )


FLAGS: tuple[Flag, ...] = (
    _flag(CONFIG_FLAG, "0.8.2", kind=Kind.ANYTHING, source="#14434"),
    _flag(DOTTED_FLAG, "0.9.0", kind=Kind.ANYTHING, source="dotted keys, #18208"),
    _flag("-sc", "0.19.0", kind=Kind.ANYTHING, source="#38380"),
    _flag("--spec-method", "0.22.0", key="method", source="#42476"),
    _flag("--spec-model", "0.22.0", key="model", source="#42476"),
    _flag(
        "--spec-tokens",
        "0.22.0",
        key="num_speculative_tokens",
        kind=Kind.INTEGER,
        source="#42476",
    ),
    _legacy("0.4.1", "model", "--speculative-model", Kind.TEXT),
    _legacy("0.4.1", "num_speculative_tokens", "--num-speculative-tokens", Kind.INTEGER),
    _legacy("0.4.1", "max_model_len", "--speculative-max-model-len", Kind.INTEGER),
    _legacy("0.4.2", "prompt_lookup_max", "--ngram-prompt-lookup-max", Kind.INTEGER),
    _legacy("0.4.2", "prompt_lookup_min", "--ngram-prompt-lookup-min", Kind.INTEGER),
    _legacy("0.4.3", "disable_by_batch_size", LIMIT_FLAG, Kind.INTEGER, on=On.V0),
    _legacy(
        "0.8.0",
        "disable_by_batch_size",
        LIMIT_FLAG,
        Kind.INTEGER,
        on=On.V1,
        effect=Effect.IGNORED,
        why="the V1 engine has no reader for it (#25112)",
    ),
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
        "0.5.5", "posterior_alpha", "--typical-acceptance-sampler-posterior-alpha", Kind.NUMBER
    ),
    _legacy("0.5.5", "disable_logprobs", "--disable-logprobs-during-spec-decoding", Kind.BOOLEAN),
    _legacy("0.6.6", "disable_mqa_scorer", "--speculative-disable-mqa-scorer", Kind.SWITCH),
)
"""Flags. Before the JSON value the method is not stated: the engine infers it from the model."""
