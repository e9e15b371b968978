"""How well drafts fit a request: the part of the economics that depends on what users ask.

A prompt may say so itself, which is how tests and demos choose a workload::

    [accept=0.8]            every method's tokens are accepted with probability 0.8 each
    [accept.eagle3=0.7]     one method's
    [match=0.9]             part of the steps in which a lookup finds something to propose

Otherwise a lookup (n-gram, suffix) is judged by how repetitive the prompt is, with constants that
give what real vLLM 0.32.0 showed for a phrase repeated eight times (drafts in 0.64 of the steps,
acceptance 0.6, mean length 2.9) and for random words (drafts in a tenth, nothing accepted); any
other drafter accepts at a constant rate, as a head trained on ordinary text does.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from typing import Final

from specpilot.sim.costs import FAMILIES

_MARK: Final = re.compile(r"\[(accept|match)(?:\.([a-z0-9_]+))?=([0-9]*\.?[0-9]+)\]")
_WORDS_LOOKED_AT: Final = 2000


@dataclass(frozen=True, slots=True)
class DraftQuality:
    """Drafts of one method for one request.

    Attributes:
        accept: probability that a drafted token is accepted, given that those before it were.
        match: probability that there is a draft at all in a step; 1 for a model-based drafter.
        short: probability that a draft is shorter than asked, as a lookup's is near the text's end.
    """

    accept: float
    match: float = 1.0
    short: float = 0.0

    def draft(self, depth: int, *, rng: random.Random) -> int:
        """Draw how many tokens are proposed when up to ``depth`` are asked for."""
        if depth <= 0 or (self.match < 1.0 and rng.random() >= self.match):
            return 0
        if depth > 1 and self.short and rng.random() < self.short:
            return rng.randint(1, depth - 1)
        return depth

    def accepted(self, drafted: int, *, rng: random.Random, factor: float = 1.0) -> int:
        """Draw how many of ``drafted`` tokens are accepted: a run that ends at the first miss."""
        accept = self.accept * factor
        if drafted <= 0 or accept <= 0.0:
            return 0
        if accept >= 1.0:
            return drafted
        # One draw of the geometric distribution instead of one per token.
        run = math.log(1.0 - rng.random()) / math.log(accept)
        return min(drafted, int(run))


def expected_length(accept: float, *, depth: int) -> float:
    """Return the mean tokens of a step with a full draft, the bonus token included."""
    if accept >= 1.0:
        return depth + 1.0
    return float((1.0 - accept ** (depth + 1)) / (1.0 - accept))


def repetitiveness(text: str) -> float:
    """Return the part of three-word sequences that occurred before, from 0 to 1."""
    words = text.split(maxsplit=_WORDS_LOOKED_AT)[:_WORDS_LOOKED_AT]
    triples = [(words[i], words[i + 1], words[i + 2]) for i in range(len(words) - 2)]
    return 1.0 - len(set(triples)) / len(triples) if triples else 0.0


def quality(prompt: str, *, method: str | None, acceptance: float) -> DraftQuality:
    """Judge the drafts of ``method`` on a prompt.

    Args:
        prompt: text of the request, with or without marks.
        method: vLLM's name of the method; None when speculation is off.
        acceptance: of a model-based drafter on an unmarked prompt.
    """
    if method is None:
        return DraftQuality(accept=0.0)
    marks: dict[str, float] = {}
    if "[" in prompt:
        for name, only, number in _MARK.findall(prompt):
            if only in ("", method) and (only or name not in marks):
                marks[name] = min(float(number), 1.0)
    if FAMILIES.get(method) != "lookup":
        return DraftQuality(accept=marks.get("accept", acceptance))
    repeated = repetitiveness(prompt)
    if "accept" in marks:
        accept = marks["accept"]
        # Text in which little is accepted is text in which little is found.
        return DraftQuality(accept=accept, match=marks.get("match", 0.2 + 0.8 * accept))
    return DraftQuality(
        accept=0.02 + 0.86 * repeated,
        match=marks.get("match", 0.1 + 0.62 * repeated),
        short=0.35 * repeated,
    )
