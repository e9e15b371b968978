"""Comparing a canary with the control arm of the same window.

Absolute figures of one arm swing with the traffic; the ratio of two arms in the same slice of
time does not. So the analysis is cut into slices, each gives one paired ratio, and a claim is
made only where Student's t on the logarithms of the ratios supports it.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from specpilot.domain.changes import Slice

MIN_SLICES = 3
"""Fewest paired slices on which anything is claimed."""

FULL = 6
"""Paired slices of a whole analysis. Before that the data are looked at again and again, so that a
claim needs one-sided 99 % instead of 95 %; otherwise noise would be called a difference too often.
"""

# One-sided quantiles of Student's t by degrees of freedom; beyond the table the normal's.
_T99 = (31.821, 6.965, 4.541, 3.747)
_T95 = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
    1.703, 1.701, 1.699, 1.697,
)  # fmt: skip
_NORMAL95 = 1.645


def _quantile(slices: int) -> float:
    degrees = slices - 1
    if slices < FULL:
        return _T99[degrees - 1]
    return _T95[degrees - 1] if degrees <= len(_T95) else _NORMAL95


class Outcome(StrEnum):
    """What the data say of a claim."""

    YES = "Yes"
    NO = "No"
    UNCLEAR = "Unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Canary over control for one signal.

    Attributes:
        signal: The signal.
        slices: Paired slices behind it.
        mean: Geometric mean of the ratios; NaN without slices.
        low: Lower bound, one-sided 95 % (99 % before the analysis is whole).
        high: Upper bound, likewise.
    """

    signal: str
    slices: int
    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if not self.slices:
            return f"{self.signal}: no slice has both arms"
        if self.slices < MIN_SLICES:
            return (
                f"{self.signal} canary/control {self.mean:.3f} "
                f"(in {self.slices} slices, too few to tell)"
            )
        return (
            f"{self.signal} canary/control {self.mean:.3f} "
            f"({self.low:.3f} to {self.high:.3f}, {self.slices} slices)"
        )


def ratio(slices: Iterable[Slice], signal: str) -> Ratio:
    """Estimate canary over control; a slice in which either arm is unknown or 0 does not count."""
    logs = [
        math.log(s.canary[signal] / s.control[signal])
        for s in slices
        if s.canary.get(signal, 0) > 0 and s.control.get(signal, 0) > 0
    ]
    if not logs:
        return Ratio(signal=signal, slices=0, mean=math.nan, low=0.0, high=math.inf)
    mean = statistics.fmean(logs)
    if len(logs) < MIN_SLICES:
        return Ratio(signal=signal, slices=len(logs), mean=math.exp(mean), low=0.0, high=math.inf)
    half = _quantile(len(logs)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(
        signal=signal,
        slices=len(logs),
        mean=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
    )


def exceeds(estimate: Ratio, bound: float) -> Outcome:
    """Whether the ratio is above a bound: Yes and No only when the interval is on one side."""
    if estimate.slices < MIN_SLICES:
        return Outcome.UNCLEAR
    if estimate.low > bound:
        return Outcome.YES
    return Outcome.NO if estimate.high <= bound else Outcome.UNCLEAR


def beats(slices: Sequence[Slice], *, margin: float) -> tuple[Outcome, str]:
    """Whether the canary's tokens come faster than the control arm's by a margin.

    Two views of the same: the mean time per output token of finished requests, which is exact but
    blind to requests that still run, and tokens per second of a running request, which sees them.
    One of them must show it clearly, and the other must not clearly show the opposite.

    Args:
        slices: The analysis so far.
        margin: 0.05 asks for 5 % more speed.
    """
    tpot = ratio(slices, "tpot_mean")
    speed = ratio(slices, "tokens_per_second_per_request")
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
