"""What each vLLM release accepts about speculation, as data.

Every row is a fact with the releases in which it holds. Where the exact release of a change is not
known, the first release in which it was *seen* is written, so that the simulator refuses rather
than accepts what it is not sure of. Sources: the release tags named in vLLM's pull requests (#N),
and a listing of ``SpeculativeConfig`` fields of 0.8.5, 0.9.2, 0.10.2, 0.11.2, 0.12.0, 0.14.1,
0.16.0, 0.18.1 and every second release from 0.20 to 0.32.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from specpilot.sim.versions import ALWAYS, Span, span


class Kind(StrEnum):
    """How a field of the speculative config is checked."""

    POSITIVE = "positive"
    """Integer greater than zero."""
    ONE_OR_MORE = "one or more"
    """The same to a mathematician; pydantic has other words for it."""
    INTEGER = "integer"
    FLOAT = "float"
    BOOL = "bool"
    TEXT = "text"
    RATES = "rates"
    """List of numbers."""
    SCHEDULE = "schedule"
    """List of ``[first batch size, last batch size, depth]``."""
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class Field:
    """A key of ``--speculative-config`` and the releases that know it."""

    kind: Kind
    span: Span = ALWAYS


FIELDS: Final[dict[str, Field]] = {
    "method": Field(Kind.TEXT),
    "model": Field(Kind.TEXT),
    "num_speculative_tokens": Field(Kind.POSITIVE),
    "draft_tensor_parallel_size": Field(Kind.POSITIVE),
    "quantization": Field(Kind.TEXT),
    "max_model_len": Field(Kind.POSITIVE),
    "revision": Field(Kind.TEXT),
    "code_revision": Field(Kind.TEXT),
    "prompt_lookup_max": Field(Kind.ONE_OR_MORE),
    "prompt_lookup_min": Field(Kind.ONE_OR_MORE),
    # Deleted by #35060; absent from 0.18.1, present in 0.16.0.
    "disable_by_batch_size": Field(Kind.INTEGER, span(until="0.17.0")),
    # The V0 sampler's, gone with the V0 workers (#21152).
    "acceptance_method": Field(Kind.TEXT, span(until="0.10.0")),
    "disable_mqa_scorer": Field(Kind.BOOL, span(until="0.10.0")),
    "posterior_threshold": Field(Kind.FLOAT, span(until="0.10.0")),
    "posterior_alpha": Field(Kind.FLOAT, span(until="0.10.0")),
    "disable_logprobs": Field(Kind.BOOL, span(until="0.11.0")),
    "speculative_token_tree": Field(Kind.TEXT, span("0.9.2", "0.22.0")),
    "enforce_eager": Field(Kind.BOOL, span("0.11.1")),
    "disable_padded_drafter_batch": Field(Kind.BOOL, span("0.11.1")),
    "suffix_decoding_max_tree_depth": Field(Kind.POSITIVE, span("0.11.1")),
    "suffix_decoding_max_cached_requests": Field(Kind.INTEGER, span("0.11.1")),
    "suffix_decoding_max_spec_factor": Field(Kind.FLOAT, span("0.11.1")),
    "suffix_decoding_min_token_prob": Field(Kind.FLOAT, span("0.11.1")),
    "parallel_drafting": Field(Kind.BOOL, span("0.16.0")),
    "draft_load_config": Field(Kind.ANYTHING, span("0.17.0")),
    "rejection_sample_method": Field(Kind.TEXT, span("0.18.0")),
    "use_local_argmax_reduction": Field(Kind.BOOL, span("0.17.0")),
    "synthetic_acceptance_rates": Field(Kind.RATES, span("0.19.0")),
    "synthetic_acceptance_length": Field(Kind.FLOAT, span("0.19.0")),
    "moe_backend": Field(Kind.TEXT, span("0.20.0")),
    "attention_backend": Field(Kind.TEXT, span("0.22.0")),
    "draft_sample_method": Field(Kind.TEXT, span("0.22.0")),
    "num_speculative_tokens_per_batch_size": Field(Kind.SCHEDULE, span("0.24.0")),  # #32374
    "kv_cache_dtype": Field(Kind.TEXT, span("0.26.0")),
    "use_heterogeneous_vocab": Field(Kind.BOOL, span("0.26.0")),
    "enable_adaptive_verification": Field(Kind.BOOL, span("0.28.0")),
    "dspark_draft_topk": Field(Kind.POSITIVE, span("0.28.0")),
    "disable_eagle_block_drop": Field(Kind.BOOL, span("0.30.0")),
    "index_share_for_mtp_iteration": Field(Kind.BOOL, span("0.30.0")),
    "disable_lookahead_block_hashes": Field(Kind.BOOL, span("0.33.0")),
    "draft_lm_head_quantization": Field(Kind.TEXT, span("0.33.0")),
    "fly_window_size": Field(Kind.POSITIVE, span("0.33.0")),
    "fly_entropy_threshold": Field(Kind.FLOAT, span("0.33.0")),
    "fly_entropy_top_k": Field(Kind.POSITIVE, span("0.33.0")),
    "xpress_topc": Field(Kind.POSITIVE, span("0.33.0")),
}

CHOICES: Final[dict[str, dict[str, Span]]] = {
    "rejection_sample_method": {
        "standard": ALWAYS,
        "synthetic": ALWAYS,
        "block": span("0.22.0"),
        "fly": span("0.33.0"),
    },
    "draft_sample_method": {"greedy": ALWAYS, "probabilistic": ALWAYS},
    "acceptance_method": {"rejection_sampler": ALWAYS, "typical_acceptance_sampler": ALWAYS},
}
"""Fields that take one of a few words."""

METHODS: Final[dict[str, Span]] = {
    "ngram": ALWAYS,
    "draft_model": ALWAYS,  # named, but see DRAFT_MODEL_REFUSED
    "eagle": ALWAYS,
    "eagle3": span("0.9.0"),
    "medusa": span(until="0.33.0"),
    "mlp_speculator": span(until="0.33.0"),
    "deepseek_mtp": span("0.9.0"),
    "ernie_mtp": span("0.10.2"),
    "qwen3_next_mtp": span("0.10.2"),
    "mtp": span("0.11.1"),
    "suffix": span("0.11.1"),  # #25784
    "extract_hidden_states": span("0.17.0"),  # #33736
    "ngram_gpu": span("0.18.0"),  # #29184
    "dflash": span("0.19.0"),  # #36847
    "custom_class": span("0.23.0"),  # #39487
    "dspark": span("0.25.0"),  # #46995
    # The listing is 0.32's; when each alias came is not known, so a release with ``mtp`` has all.
    **dict.fromkeys(
        (
            *("bailing_hybrid_mtp", "bailing_hybrid_v3_mtp", "dots3_note_mtp", "exaone4_5_mtp"),
            *("exaone_moe_mtp", "gemma4_mtp", "glm4_moe_lite_mtp", "glm4_moe_mtp", "glm5_next_mtp"),
            *("glm_ocr_mtp", "hy_v3_mtp", "hy_v4_mtp", "inkling_mtp", "kimi_k3_mtp"),
            *("longcat_flash_mtp", "mimo_mtp", "mimo_v2_mtp", "minimax_m3_mtp", "nemotron_h_mtp"),
            *("pangu_ultra_moe_mtp", "qwen3_5_mtp", "qwen4_exp_mtp", "step3p5_mtp"),
        ),
        span("0.11.1"),
    ),
}
"""Methods by name. The ``*_mtp`` names are deprecated aliases of ``mtp`` since 0.11.1."""

DRAFT_MODEL_REFUSED: Final = span("0.10.0", "0.15.0")
"""Between the end of the V0 engine (#21152) and #24322, V1 named the method but refused it."""

V1_ENGINE: Final = span("0.8.0")
"""V1 is the default engine; before, and from 0.8.0 to 0.9.2 on request, it is V0."""

V0_ENGINE: Final = span(until="0.10.0")
"""Only this engine ever read ``disable_by_batch_size`` (#4592); #21152 removed it."""

V1_METHODS: Final[dict[str, Span]] = {
    "ngram": ALWAYS,
    "eagle": span("0.8.3"),
    "eagle3": span("0.9.0"),
    "medusa": span("0.9.1"),
    "deepseek_mtp": span("0.9.1"),
}
"""What the V1 engine of 0.8.0 to 0.9.2 could do; any other method silently fell back to V0."""

SCHEDULE_DROPPED_WITH_DP: Final = span("0.24.1")
"""#45963: with data parallelism the schedule is dropped with a warning; not yet in 0.24.0."""

SCHEDULE_METHODS: Final = frozenset({"ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"})
"""Methods that may follow a schedule from 0.33 on; it is dropped with a warning for others."""

SCHEDULE_METHODS_CHECKED: Final = span("0.33.0")

SCHEDULE_IGNORED_BY_RUNNER_V2: Final = span("0.24.0", "0.32.0")
"""#51510: Model Runner V2 accepts the schedule, but drafts the static depth (0.24 lists it as not
supported). 0.30.0 and 0.31.0 have no reader in ``v1/worker/gpu/model_runner.py``, 0.32.0 has."""

SCHEDULE_NOT_TOLD: Final = frozenset({"custom_class"})
"""``propose`` of these gets no depth (``v1/worker/gpu_model_runner.py`` of 0.32.0)."""

LEGACY_FLAGS: Final = span(until="0.8.3")
"""``--speculative-model`` and its kin (#3706), removed by #15466."""

CONFIG_FLAG: Final = span("0.8.2")  # #14434
SHORT_FLAG: Final = span("0.19.0")  # -sc, #38380
DOTTED_KEYS: Final = span("0.9.0")  # #18208
EMPTY_MEANS_NONE: Final = span("0.10.1")
"""``''`` and ``None`` are read as "not set"; earlier releases hand the text to ``json.loads``."""
SPEC_FLAGS: Final = span("0.23.0")  # --spec-method, --spec-model, --spec-tokens, #42476
NESTED_YAML: Final = span("0.16.0")  # #33193
PYDANTIC: Final = span("0.10.0")
"""Before, the config is a plain dataclass, and a wrong key is a ``TypeError``."""
