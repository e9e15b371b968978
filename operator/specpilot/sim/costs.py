"""How long an engine step takes.

A step that processes ``n`` tokens over ``kv`` tokens of context takes, in seconds::

    verify = weights + per_token * n + per_kv_token * kv        (Shape.SUM)
    verify = max(weights, per_token * n) + per_kv_token * kv    (Shape.ROOFLINE)
    step   = overhead + verify + draft

``weights`` is the time to read the model once whatever the batch, ``per_token`` the arithmetic of
one token; their ratio is the *knee*: below it a drafted token is nearly free, above it each one
costs as much as a real one. This, with the acceptance of the drafts, is the whole economics of
speculation; the simulator adds nothing that would favour either side.

``h100-8b`` holds the constants that SpecDecode-Bench fitted for Llama-3.1-8B on one H100; its
authors' measured speedups are reproduced within 0.13 (EAGLE) and 0.06 (n-gram) on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final


class Shape(StrEnum):
    """How memory time and arithmetic time add up."""

    SUM = "sum"
    """As fitted on a GPU: one is never fully hidden behind the other."""
    ROOFLINE = "roofline"
    """The larger one counts: a sharp knee, for demonstrations."""


@dataclass(frozen=True, slots=True)
class DraftCost:
    """What it costs to propose drafts in a step.

    Attributes:
        per_position: seconds per drafted position, whatever the batch (one pass of the drafter).
        per_token: seconds per drafted token.
        per_kv_token: seconds per token of context and drafted position.
        of_verify: part of the verification time, whatever the depth.
        idle: part of the verification time that is lost when the depth is 0: a configured drafter
            still runs its forward pass. vLLM #49548 measured 6.6 % to 21.6 %.
        kv_share: part of the KV cache that the drafter leaves to the model.
    """

    per_position: float = 0.0
    per_token: float = 0.0
    per_kv_token: float = 0.0
    of_verify: float = 0.0
    idle: float = 0.0
    kv_share: float = 1.0


@dataclass(frozen=True, slots=True)
class CostModel:
    """Constants of one model on one machine; times in seconds, sizes in tokens.

    Attributes:
        weights: time of a step that does next to nothing.
        per_token: time of one more token in the step.
        per_kv_token: time of one more token of context.
        overhead: scheduling and sampling, per step.
        shape: how ``weights`` and ``per_token`` combine.
        graph_tokens: tokens of the largest captured CUDA graph; 0 means no cliff.
        graph_factor: factor on the verification of a larger step.
        kv_tokens: tokens that the KV cache holds.
        drafts: cost of drafting by family of methods.
    """

    weights: float
    per_token: float
    per_kv_token: float
    overhead: float
    shape: Shape = Shape.SUM
    graph_tokens: int = 0
    graph_factor: float = 1.0
    kv_tokens: int = 500_000
    drafts: Mapping[str, DraftCost] = field(default_factory=dict)

    @property
    def knee(self) -> float:
        """Tokens in a step above which arithmetic outweighs the reading of the weights."""
        return self.weights / self.per_token if self.per_token else float("inf")

    def verify_seconds(self, *, tokens: int, kv: int) -> float:
        """Return the time of the model's forward pass."""
        arithmetic = self.per_token * tokens
        if self.shape is Shape.ROOFLINE:
            seconds = max(self.weights, arithmetic)
        else:
            seconds = self.weights + arithmetic
        if self.graph_tokens and tokens > self.graph_tokens:
            seconds *= self.graph_factor
        return seconds + self.per_kv_token * kv

    def step_seconds(
        self,
        *,
        tokens: int,
        kv: int,
        drafting: DraftCost | None = None,
        depth: int = 0,
        requests: int = 0,
    ) -> float:
        """Return the time of a whole step.

        Args:
            tokens: scheduled in the step, drafts to verify included.
            kv: context of the scheduled requests.
            drafting: cost of the configured method; None when speculation is off.
            depth: tokens drafted per request for the next step.
            requests: requests drafted for.
        """
        verify = self.verify_seconds(tokens=tokens, kv=kv)
        return self.overhead + verify + self._draft_seconds(drafting, depth, requests, kv, verify)

    def _draft_seconds(
        self, drafting: DraftCost | None, depth: int, requests: int, kv: int, verify: float
    ) -> float:
        if drafting is None:
            return 0.0
        if depth == 0 or requests == 0:
            return drafting.idle * verify
        per_pass = drafting.per_position + drafting.per_kv_token * kv
        return depth * (per_pass + drafting.per_token * requests) + drafting.of_verify * verify

    def drafting(self, method: str) -> DraftCost:
        """Return the cost of a method of :mod:`.catalogue`."""
        return self.drafts[FAMILIES.get(method, "head")]


FAMILIES: Final[dict[str, str]] = {
    "ngram": "lookup",
    "ngram_gpu": "lookup",
    "suffix": "lookup",
    "draft_model": "model",
}
"""Methods by what they cost; any other is a ``head`` on the model's own hidden states."""

_LOOKUP: Final = DraftCost(of_verify=0.0059, kv_share=0.9)

PROFILES: Final[dict[str, CostModel]] = {
    # SpecDecode-Bench's constants. Its EAGLE draft of 3 costs 2.135 ms + 2.38e-6 ms per context
    # token, here divided over the three positions; a small draft model costs 37.5 % of the target.
    "h100-8b": CostModel(
        weights=5.886e-3,
        per_token=2.101e-5,
        per_kv_token=3.926e-8,
        overhead=1.207e-3,
        drafts={
            "lookup": _LOOKUP,
            "head": DraftCost(
                per_position=0.7117e-3,
                per_token=8.4e-7,
                per_kv_token=7.93e-10,
                idle=0.066,
                kv_share=0.9,
            ),
            "model": DraftCost(per_position=2.2e-3, per_token=7.9e-6, idle=0.066, kv_share=0.5),
        },
    ),
    # Fitted to the profile that vLLM published for DeepSeek-V4-Flash on four B300: 5.1 ms at one
    # token, 20.6 ms at 1024, 104 ms just above, where the captured graphs end.
    "b300-v4-flash": CostModel(
        weights=5.6e-3,
        per_token=1.48e-5,
        per_kv_token=2.0e-9,
        overhead=0.4e-3,
        graph_tokens=1024,
        graph_factor=5.0,
        kv_tokens=2_000_000,
        drafts={
            "lookup": _LOOKUP,
            "head": DraftCost(per_position=0.2e-3, per_token=4.0e-6, idle=0.2, kv_share=0.9),
            "model": DraftCost(per_position=0.6e-3, per_token=1.2e-5, idle=0.2, kv_share=0.5),
        },
    ),
    # A 31M-parameter model in float32 on one CPU core. Real vLLM 0.32.0 gave about 130, 275 and 700
    # tokens a second at concurrency 1, 4 and 16 (this: 102, 329, 737); n-gram drafts on repetitive
    # text gained 1.3 to 1.5 at 4 and 1.07 to 1.23 at 16 (this: 1.50, 1.10).
    "cpu-small": CostModel(
        weights=8.0e-3,
        per_token=0.5e-3,
        per_kv_token=1.0e-6,
        overhead=1.0e-3,
        kv_tokens=32_768,
        drafts={
            "lookup": _LOOKUP,
            "head": DraftCost(per_position=2.0e-3, per_token=0.3e-3, idle=0.1, kv_share=0.9),
            "model": DraftCost(per_position=4.0e-3, per_token=0.4e-3, idle=0.1, kv_share=0.5),
        },
    ),
    # Made for a demonstration on two cores: the knee lies at 16 tokens, so that with drafts of 4
    # a batch of 3 speculates for nothing and a batch of 32 pays for every drafted token. Steps are
    # long enough that a replica costs next to no CPU.
    "demo": CostModel(
        weights=30e-3,
        per_token=1.875e-3,
        per_kv_token=5.0e-8,
        overhead=1.0e-3,
        shape=Shape.ROOFLINE,
        kv_tokens=200_000,
        drafts={
            "lookup": _LOOKUP,
            "head": DraftCost(per_position=0.6e-3, per_token=2.0e-5, idle=0.066, kv_share=0.9),
            "model": DraftCost(per_position=3.0e-3, per_token=2.0e-4, idle=0.066, kv_share=0.5),
        },
    ),
}

_CONSTANTS: Final = ("weights", "per_token", "per_kv_token", "overhead")


def constant_names() -> tuple[str, ...]:
    """Name the constants that a command line may override."""
    return _CONSTANTS


def cost_model(profile: str, *, constants: Mapping[str, float] | None = None) -> CostModel:
    """Return a profile, with some of its constants replaced.

    Raises:
        ValueError: no such profile or constant.
    """
    if profile not in PROFILES:
        raise ValueError(f"profile: {profile!r} is not one of {', '.join(PROFILES)}")
    overrides = dict(constants or {})
    unknown = overrides.keys() - set(_CONSTANTS)
    if unknown:
        raise ValueError(f"constants: {sorted(unknown)}; known are {', '.join(_CONSTANTS)}")
    return replace(PROFILES[profile], **overrides)  # type: ignore[arg-type] # names checked above
