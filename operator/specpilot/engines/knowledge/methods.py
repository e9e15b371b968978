"""Rows about methods. The `*_mtp` names are deprecated aliases of `mtp` where that exists."""

from dataclasses import replace

from specpilot.engines.knowledge.rows import Certainty, Effect, Method, Need, On, Topic
from specpilot.engines.versions import span

_NAMES = "names in SpeculativeMethod"
_GONE = "0.10.0"
"""The release without the V0 engine."""


def _method(
    name: str,
    since: str,
    until: str = "",
    *,
    on: On = On.ANY,
    model: Need = Need.OPTIONAL,
    depth: Need = Need.OPTIONAL,
    effect: Effect = Effect.WORKS,
    why: str = "",
    source: str = _NAMES,
    sure: bool = True,
    alias_of: str = "",
) -> Method:
    return Method(
        topic=Topic.METHOD,
        name=name,
        span=span(since, until),
        on=on,
        model=model,
        depth=depth,
        effect=effect,
        why=why,
        source=source,
        certainty=Certainty.VERIFIED if sure else Certainty.INFERRED,
        alias_of=alias_of,
    )


def _engines(
    name: str,
    *,
    v0: str,
    v1: str,
    until: str = "",
    model: Need = Need.OPTIONAL,
    depth: Need = Need.OPTIONAL,
    source: str = _NAMES,
    v1_sure: bool = True,
) -> list[Method]:
    """A method that the V0 engine had, and from some release on the V1 engine."""
    old = _method(name, v0, _GONE, on=On.V0, model=model, depth=depth, source=source)
    new = replace(
        old,
        span=span(v1, until),
        on=On.V1,
        source="before 0.10 any other method falls back to V0",
        certainty=Certainty.VERIFIED if v1_sure else Certainty.INFERRED,
    )
    return [old, new]


def _mtp(since: str, *names: str) -> list[Method]:
    return [_method(name, since, alias_of="mtp") for name in names]


METHODS: tuple[Method, ...] = (
    *_engines(
        "ngram",
        v0="0.4.2",
        v1="0.8.0",
        model=Need.NONE,
        depth=Need.REQUIRED,
        source="flags of 0.4.2",
    ),
    _method(
        "draft_model",
        "0.4.1",
        _GONE,
        on=On.V0,
        model=Need.REQUIRED,
        depth=Need.REQUIRED,
        source="#3706",
    ),
    _method(
        "draft_model",
        _GONE,
        "0.15.0",
        model=Need.REQUIRED,
        depth=Need.REQUIRED,
        effect=Effect.FAILS,
        why="the V1 engine had no draft models before #24322",
        source="NotImplementedError in 0.10.0 to 0.14.0, none in 0.16.0; 0.15 not inspected",
        sure=False,
    ),
    _method(
        "draft_model",
        "0.15.0",
        on=On.V1,
        model=Need.REQUIRED,
        depth=Need.REQUIRED,
        source="#24322; seen in 0.16.0, 0.15 not inspected",
        sure=False,
    ),
    *_engines("mlp_speculator", v0="0.5.5", v1=_GONE, until="0.33.0", model=Need.REQUIRED),
    *_engines(
        "medusa",
        v0="0.6.6",
        v1="0.9.0",
        until="0.33.0",
        model=Need.REQUIRED,
        depth=Need.REQUIRED,
        v1_sure=False,
    ),
    *_engines("eagle", v0="0.6.6", v1="0.8.5", model=Need.REQUIRED, depth=Need.REQUIRED),
    _method(
        "eagle3",
        "0.8.5",
        on=On.V1,
        model=Need.REQUIRED,
        depth=Need.REQUIRED,
        source="read in config.py of 0.8.5",
    ),
    _method(
        "suffix",
        "0.12.0",
        on=On.V1,
        model=Need.NONE,
        source="#25784; needs the arctic-inference package",
    ),
    _method("extract_hidden_states", "0.17.0", on=On.V1, source="#33736"),
    _method("ngram_gpu", "0.18.0", on=On.V1, model=Need.NONE, depth=Need.REQUIRED, source="#29184"),
    _method("dflash", "0.20.0", on=On.V1, model=Need.REQUIRED, source="#36847"),
    _method(
        "custom_class",
        "0.22.0",
        on=On.V1,
        model=Need.REQUIRED,
        depth=Need.REQUIRED,
        source="#39487; `model` is the dotted path of the proposer",
    ),
    _method("dspark", "0.25.0", on=On.V1, source="#46995"),
    _method("mtp", "0.11.0", on=On.V1),
    *_engines("deepseek_mtp", v0="0.9.0", v1="0.9.0", until="0.11.0", v1_sure=False),
    *_mtp("0.11.0", "deepseek_mtp"),
    *_mtp("0.10.2", "ernie_mtp", "qwen3_next_mtp"),
    *_mtp("0.11.0", "longcat_flash_mtp", "mimo_mtp"),
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
)
"""Methods."""
