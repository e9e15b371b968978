"""Simulated analyses, and two ways of judging them when they are looked at after every slice."""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specpilot.domain.sequential import FULL, MIN_SLICES, Looks, interval
from specpilot.domain.student import upper_quantile

SWING = 0.3
"""Standard deviation of what the load does to both arms alike, as a logarithm."""

_FREEDOM = 3
"""Degrees of freedom of heavy-tailed noise: a slice now and then is far off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """How slices come about.

    Attributes:
        longest: Slices when patience ends.
        alike: Correlation of an arm's noise with that of the slice before.
        heavy: Noise by Student's t with three degrees of freedom instead of the normal's.
        spread: Standard deviation of the logarithm of canary over control in a slice.
        effect: True logarithm of canary over control, counted from the bound that is tested.
    """

    longest: int
    alike: float
    heavy: bool
    spread: float
    effect: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What became of one analysis.

    Attributes:
        at: Slices when the claim was made, None when patience ended first.
    """

    at: int | None


Claim: TypeAlias = Callable[[Sequence[float]], bool]
"""Whether the mean of these logarithms is claimed to be above 0."""


def peeking(logs: Sequence[float]) -> bool:
    """Student's t for one look, at every look: 99 % before the analysis is whole, then 95 %."""
    probability = 0.01 if len(logs) < FULL else 0.05
    half = upper_quantile(probability, len(logs) - 1) * statistics.stdev(logs)
    return statistics.fmean(logs) - half / math.sqrt(len(logs)) > 0


def sequential(looks: Looks) -> Claim:
    """The product's own."""
    return lambda logs: interval(logs, level=looks.level(len(logs))).low > 0


def simulate(analysis: Analysis, method: Claim, *, count: int, seed: int) -> list[Claimed]:
    """Judge that many analyses. The same seed gives every method the same slices."""
    rng = random.Random(seed)
    return [_judged(_logs(rng, analysis), method) for _ in range(count)]


def _judged(logs: Sequence[float], method: Claim) -> Claimed:
    looks = range(MIN_SLICES, len(logs) + 1)
    return Claimed(at=next((n for n in looks if method(logs[:n])), None))


def _logs(rng: random.Random, analysis: Analysis) -> list[float]:
    """Logarithms of canary over control: the load cancels, each arm's own noise does not."""
    each = analysis.spread / math.sqrt(2)
    load = _walk(rng, analysis, spread=SWING, alike=0.9, heavy=False)
    arms = [
        _walk(rng, analysis, spread=each, alike=analysis.alike, heavy=analysis.heavy)
        for _ in range(2)
    ]
    canary = [
        math.exp(swing + own + analysis.effect) for swing, own in zip(load, arms[0], strict=True)
    ]
    control = [math.exp(swing + own) for swing, own in zip(load, arms[1], strict=True)]
    return [math.log(a / b) for a, b in zip(canary, control, strict=True)]


def _walk(
    rng: random.Random, analysis: Analysis, *, spread: float, alike: float, heavy: bool
) -> list[float]:
    """An autoregressive process of first order in its stationary state."""
    found: list[float] = []
    for _ in range(analysis.longest):
        step = rng.gauss(0, 1)
        if heavy:
            chi = rng.gammavariate(_FREEDOM / 2, 2 / _FREEDOM)
            step *= math.sqrt((_FREEDOM - 2) / _FREEDOM / chi)
        before = found[-1] if found else None
        value = step if before is None else alike * before + math.sqrt(1 - alike**2) * step
        found.append(value)
    return [spread * value for value in found]
