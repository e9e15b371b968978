"""The test that may be looked at after every slice: its promise, and that looking cost it before.

Fixed seeds, and bounds with room for the sampling of a thousand analyses (three standard errors of
a rate of 5 % are 2.1 %). `python -m bench.comparison` has the whole table.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.comparison.methods import Analysis, Claim, peeking, sequential, simulate
from specpilot.domain.sequential import ALPHA, MIN_SLICES, Looks, interval
from specpilot.domain.student import tail, upper_quantile

ROOM = 0.021


@pytest.mark.parametrize(
    ("probability", "degrees", "want"),
    [
        (0.05, 1, 6.314), (0.05, 2, 2.920), (0.05, 5, 2.015), (0.01, 3, 4.541), (0.025, 11, 2.201),
        (0.005, 30, 2.750), (0.001, 7, 4.785), (0.0005, 4, 8.610), (0.05, 120, 1.658),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_the_printed_tables(
    probability: float, degrees: int, want: float
) -> None:
    assert upper_quantile(probability, degrees) == pytest.approx(want, abs=6e-4)


@given(probability=st.floats(1e-7, 0.5), degrees=st.integers(1, 200))
def test_a_quantile_is_exceeded_as_often_as_it_says(probability: float, degrees: int) -> None:
    assert tail(upper_quantile(probability, degrees), degrees) == pytest.approx(
        probability, rel=1e-3
    )


@pytest.mark.parametrize("probability", [0.0, -0.1, 0.6])
def test_no_quantile_of_what_is_no_tail(probability: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        upper_quantile(probability, 3)


@given(longest=st.integers(1, 300), whole=st.integers(1, 24), alpha=st.floats(0.001, 0.2))
def test_the_errors_of_all_looks_add_up_to_the_promise(
    longest: int, whole: int, alpha: float
) -> None:
    looks = Looks(longest=longest, whole=whole, alpha=alpha)
    levels = [looks.level(seen) for seen in range(2 * longest + 2)]
    assert all(level >= 0 for level in levels)
    assert math.fsum(levels) <= alpha * (1 + 1e-9)
    if longest >= MIN_SLICES:
        assert math.fsum(levels) == pytest.approx(alpha)
    assert not any(levels[longest + 1 :]) or longest < MIN_SLICES


def test_after_the_last_look_nothing_is_claimed() -> None:
    looks = Looks(longest=6)
    assert looks.level(7) == 0
    found = interval([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], level=looks.level(7))
    assert (found.low, found.high) == (-math.inf, math.inf)


@pytest.mark.parametrize("longest", [12, 36])
@pytest.mark.parametrize("alike", [0.0, 0.3])
@pytest.mark.parametrize("heavy", [False, True])
def test_arms_that_do_not_differ_are_called_different_no_more_often_than_promised(
    longest: int, alike: float, heavy: bool
) -> None:
    analysis = Analysis(longest=longest, alike=alike, heavy=heavy, spread=0.05, effect=0.0)
    assert _false(analysis, sequential(Looks(longest=longest))) <= ALPHA + ROOM


def test_what_was_done_before_breaks_the_promise() -> None:
    """Student's t with 99 % before the analysis is whole and 95 % after it, at every look."""
    for alike, least in ((0.0, 0.08), (0.3, 0.15)):
        analysis = Analysis(longest=12, alike=alike, heavy=False, spread=0.05, effect=0.0)
        assert _false(analysis, peeking) > least > ALPHA + ROOM


@pytest.mark.parametrize(
    ("effect", "within", "reason"),
    [
        (0.20, 4, "a fifth, at a spread of 5 %: within four slices, as a rule"),
        (0.10, 8, "a tenth: soon after the stated analysis"),
    ],
)
def test_what_is_clear_ends_early(effect: float, within: int, reason: str) -> None:
    analysis = Analysis(longest=12, alike=0.3, heavy=False, spread=0.05, effect=effect)
    claims = simulate(analysis, sequential(Looks(longest=12, whole=12)), count=400, seed=3)
    assert sum(c.at is not None for c in claims) / len(claims) > 0.9, reason
    ends = sorted(c.at or analysis.longest for c in claims)
    assert ends[len(ends) // 2] <= within, reason


def _false(analysis: Analysis, method: Claim) -> float:
    claims = simulate(analysis, method, count=1000, seed=11)
    return sum(c.at is not None for c in claims) / len(claims)
