"""Comparing a canary with the control arm of the same window.

Absolute figures of one arm swing with the traffic; the ratio of two arms in the same slice of
time does not. So the analysis is cut into slices, each gives one paired ratio, and a claim is
made only where the test of `sequential`, on the logarithms of the ratios, supports it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from specpilot.domain.changes import Slice
from specpilot.domain.sequential import MIN_SLICES, Interval, Looks, interval


class Outcome(StrEnum):
    """What the data say of a claim."""

    YES = "Yes"
    NO = "No"
    UNCLEAR = "Unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The canary compared with the control arm for one signal.

    Attributes:
        signal: The signal.
        arms: `canary/control` for a ratio; `canary-control` for a difference in the signal's unit,
            of what is often 0 and has no ratio.
        slices: Paired slices behind it.
        mean: Mean of the differences, geometric mean of the ratios; NaN without slices.
        low: Lower bound, one-sided, by the error of this look.
        high: Upper bound, likewise.
    """

    signal: str
    arms: str
    slices: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if not self.slices:
            return f"{self.signal}: no slice has both arms"
        words = f"{self.signal} {self.arms} {self.mean:.3f}"
        if self.slices < MIN_SLICES:
            return f"{words} (in {self.slices} slices, too few to tell)"
        return f"{words} ({self.low:.3f} to {self.high:.3f}, {self.slices} slices)"


def paired(slices: Iterable[Slice], signal: str) -> list[tuple[float, float]]:
    """What canary and control say, of the slices in which both are known."""
    return [
        (s.canary[signal], s.control[signal])
        for s in slices
        if signal in s.canary and signal in s.control
    ]


def ratio(slices: Iterable[Slice], signal: str, looks: Looks) -> Estimate:
    """Estimate canary over control; a slice in which either arm is unknown or 0 does not count."""
    logs = [math.log(a / b) for a, b in paired(slices, signal) if a > 0 and b > 0]
    found = interval(logs, level=looks.level(len(logs)))
    return Estimate(
        signal=signal,
        arms="canary/control",
        slices=len(logs),
        mean=math.exp(found.mean),
        low=math.exp(found.low),
        high=_exp(found.high),
    )


def rise(slices: Iterable[Slice], signal: str, looks: Looks) -> Estimate:
    """Estimate canary minus control."""
    gaps = [a - b for a, b in paired(slices, signal)]
    found = interval(gaps, level=looks.level(len(gaps)))
    return Estimate(
        signal=signal,
        arms="canary-control",
        slices=len(gaps),
        mean=found.mean,
        low=found.low,
        high=found.high,
    )


def level_of(slices: Iterable[Slice], signal: str, looks: Looks) -> tuple[int, Interval]:
    """Estimate the canary's own mean over the slices that have it, and how many do."""
    values = [s.canary[signal] for s in slices if signal in s.canary]
    return len(values), interval(values, level=looks.level(len(values)))


def _exp(value: float) -> float:
    """Never an overflow: three slices may leave bounds that mean nothing."""
    return math.exp(value) if value < 700 else math.inf  # noqa: PLR2004 - the largest float


def exceeds(estimate: Estimate, bound: float) -> Outcome:
    """Whether the estimate is above a bound: Yes and No only when it is wholly on one side."""
    if estimate.slices < MIN_SLICES:
        return Outcome.UNCLEAR
    if estimate.low > bound:
        return Outcome.YES
    return Outcome.NO if estimate.high <= bound else Outcome.UNCLEAR


def beats(slices: Sequence[Slice], *, margin: float, looks: Looks) -> tuple[Outcome, str]:
    """Whether the canary's tokens come faster than the control arm's by a margin.

    Two views of the same: the mean time per output token of finished requests, which is exact but
    blind to requests that still run, and tokens per second of a running request, which sees them.
    One of them must show it clearly, and the other must not clearly show the opposite. As either
    may, each has half of the error.

    Args:
        slices: The analysis so far.
        margin: 0.05 asks for 5 % more speed.
        looks: How often one may look, and how wrong a win may be.
    """
    each = replace(looks, alpha=looks.alpha / 2)
    tpot = ratio(slices, "tpot_mean", each)
    speed = ratio(slices, "tokens_per_second_per_request", each)
    shorter = exceeds(tpot, 1 / (1 + margin))
    faster = exceeds(speed, 1 + margin)
    wins = shorter is Outcome.NO or faster is Outcome.YES
    slower = exceeds(tpot, 1.0) is Outcome.YES or exceeds(speed, 1.0) is Outcome.NO
    fails = shorter is Outcome.YES or faster is Outcome.NO
    if wins and not slower:
        outcome = Outcome.YES
    elif fails and not wins:
        outcome = Outcome.NO
    else:
        outcome = Outcome.UNCLEAR
    return outcome, f"{tpot}; {speed}"


def requests(slices: Iterable[Slice]) -> tuple[float, float]:
    """Requests finished in all slices, on the canary and on the control arm."""
    kept = list(slices)
    return sum(s.canary_requests for s in kept), sum(s.control_requests for s in kept)
