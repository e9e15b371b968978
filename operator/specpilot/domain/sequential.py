"""A test that may be looked at after every slice.

Who looks again and again at a test made for one look will sooner or later see noise as a
difference. Here each look has an error of its own, stated beforehand, and the errors of all looks
add up to the one that is promised (Bonferroni over the looks, with a spending function as Lan and
DeMets have it, Biometrika 1983). It holds for any number of looks, whichever of them are missed,
and ends with a stated last one.

At each look it is Student's t: the spread is not known but estimated from the same few slices.
Slices that follow each other are alike, because long requests reach across them, and that makes
their mean less certain than the formula says. `ALIKE` is the correlation of neighbours that is
allowed for; `bench/comparison` measures what is left of the promise beyond it.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.domain.student import upper_quantile

MIN_SLICES = 3
"""Fewest slices on which anything is claimed."""

FULL = 6
"""Slices of the analysis time that a policy states."""

ALPHA = 0.05
"""Chance of a wrong claim over all looks of an analysis together, where nothing else is said."""

ALIKE = 0.3
"""Correlation of one slice with the next that is allowed for."""

EARLY = 0.8
"""Share of the error for the time in which an analysis is meant to end."""

_WIDER = math.sqrt((1 + ALIKE) / (1 - ALIKE))
"""By how much it widens an interval: the variance of a mean of an AR(1) process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """How often one may look, and how wrong all looks together may be.

    Most of the error is spent over the first `whole` slices, by which nearly every analysis has
    ended, the rest over those that follow where numbers were missing.

    Attributes:
        longest: Slices after which nothing is claimed any more.
        alpha: Chance of a wrong claim over all of them.
        whole: Slices in which the analysis is meant to end.
    """

    longest: int
    alpha: float = ALPHA
    whole: int = FULL

    def spent(self, seen: int) -> float:
        """The error spent when so many slices have been looked at."""
        if self.longest <= self.whole:
            return self.alpha * min(1.0, seen / self.longest)
        early = min(1.0, seen / self.whole)
        late = min(1.0, max(0.0, (seen - self.whole) / (self.longest - self.whole)))
        return self.alpha * (EARLY * early + (1 - EARLY) * late)

    def level(self, seen: int) -> float:
        """The error of the look at so many slices; 0 claims nothing."""
        if seen < MIN_SLICES:
            return 0.0
        before = self.spent(seen - 1) if seen > MIN_SLICES else 0.0
        return max(0.0, self.spent(seen) - before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean with what it may be.

    Attributes:
        mean: Of the values; NaN without any.
        low: What it is hardly below, by the error of this look.
        high: What it is hardly above, by the same error.
    """

    mean: float
    low: float = -math.inf
    high: float = math.inf


def interval(values: Sequence[float], *, level: float) -> Interval:
    """Bounds of a mean, one-sided each.

    Args:
        values: One a slice.
        level: Chance that the mean is beyond a bound; 0 gives bounds that say nothing.
    """
    if not values:
        return Interval(mean=math.nan)
    mean = statistics.fmean(values)
    if len(values) < MIN_SLICES or level <= 0:
        return Interval(mean=mean)
    degrees = len(values) - 1
    # statistics.stdev adds fractions, to be right for any numbers, and takes twenty times as long.
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / degrees / len(values))
    half = upper_quantile(level, degrees) * _WIDER * spread
    return Interval(mean=mean, low=mean - half, high=mean + half)
