"""A request on its way through an engine, and what it gains in a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specpilot.sim.drafts import DraftQuality

CHARACTERS_PER_TOKEN: Final = 4
"""The usual rule of thumb; the load generator writes prompts that fit it exactly."""


def count_tokens(text: str) -> int:
    """Return the length of a prompt in tokens, at least 1."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


class Request:
    """One request as the engine sees it; times are on the driver's clock, in seconds."""

    __slots__ = (
        "aborted",
        "arrived",
        "blocks",
        "computed",
        "draft",
        "drafts_off",
        "finish_reason",
        "finished",
        "first_token",
        "generated",
        "last_token",
        "max_tokens",
        "natural_stop",
        "preemptions",
        "prompt_tokens",
        "quality",
        "scheduled",
    )

    def __init__(
        self,
        *,
        prompt_tokens: int,
        max_tokens: int,
        drafts: DraftQuality,
        natural_stop: bool = False,
    ) -> None:
        """Describe a request.

        Args:
            prompt_tokens: length of the prompt, at least 1.
            max_tokens: tokens to generate, at least 1.
            drafts: how well drafts fit it.
            natural_stop: it ends with ``stop`` rather than ``length``.
        """
        self.prompt_tokens = max(1, prompt_tokens)
        self.max_tokens = max(1, max_tokens)
        self.quality = drafts
        self.natural_stop = natural_stop
        self.arrived = 0.0
        self.scheduled: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.finished: float | None = None
        self.finish_reason: str | None = None
        self.computed = 0
        self.generated = 0
        self.draft = 0
        self.drafts_off = False
        self.preemptions = 0
        self.blocks = 0
        self.aborted = False

    @property
    def total(self) -> int:
        """Tokens of the prompt and of what was generated."""
        return self.prompt_tokens + self.generated


@dataclass(frozen=True, slots=True)
class Output:
    """New tokens of one request in one step."""

    request: Request
    tokens: int
    finished: bool
