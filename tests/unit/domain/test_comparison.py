"""Canary against control: a claim only where the data support it."""

import math

import pytest

from specpilot.domain.changes import Slice
from specpilot.domain.comparison import Outcome, beats, ratio, rise
from specpilot.domain.sequential import MIN_SLICES, Looks
from tests.unit.domain.builders import at, slices

LOOKS = Looks(longest=36)


@pytest.mark.parametrize(
    ("ratios", "want", "reason"),
    [
        ((0.7, 0.72, 0.69, 0.71), Outcome.YES, "clearly faster"),
        ((0.985, 0.99) * 3, Outcome.NO, "faster, but by less than the margin"),
        ((1.3, 1.28, 1.31, 1.29), Outcome.NO, "clearly slower"),
        ((0.6, 1.4, 0.8, 1.2), Outcome.UNCLEAR, "noise decides nothing"),
        ((0.5, 0.5), Outcome.UNCLEAR, "two slices decide nothing, however clear"),
        ((), Outcome.UNCLEAR, "no slice decides nothing"),
    ],
)
def test_beats(ratios: tuple[float, ...], want: Outcome, reason: str) -> None:
    assert beats(slices(*ratios), margin=0.05, looks=LOOKS)[0] is want, reason


def test_a_slice_that_lacks_an_arm_does_not_count() -> None:
    one_armed = Slice(start=at(90), end=at(100), canary={"tpot_mean": 9.0}, control={})
    estimate = ratio((*slices(0.7, 0.7, 0.7), one_armed), "tpot_mean", LOOKS)
    assert estimate.slices == MIN_SLICES
    assert math.isclose(estimate.mean, 0.7)


def test_speed_that_contradicts_leaves_it_unclear() -> None:
    told = tuple(
        Slice(
            start=s.start, end=s.end,
            canary=dict(s.canary) | {"tokens_per_second_per_request": 20.0 + s.start.second / 100},
            control=s.control,
        )
        for s in slices(0.7, 0.71, 0.7, 0.69)
    )  # fmt: skip
    assert beats(told, margin=0.05, looks=LOOKS)[0] is Outcome.UNCLEAR


def test_either_view_suffices_when_the_other_is_silent() -> None:
    still_running = tuple(
        Slice(
            start=s.start, end=s.end,
            canary={"tokens_per_second_per_request": 90.0 + s.start.second / 10},
            control={"tokens_per_second_per_request": 50.0},
        )
        for s in slices(0.5, 0.5, 0.5, 0.5)
    )  # fmt: skip
    assert beats(still_running, margin=0.05, looks=LOOKS)[0] is Outcome.YES


def test_a_rise_needs_no_ratio() -> None:
    """No error on the control arm: a ratio would be infinite, the difference is what it is."""
    refused = tuple(
        Slice(
            start=s.start, end=s.end,
            canary={"error_rate": 0.1 + s.start.second / 10_000}, control={"error_rate": 0.0},
        )
        for s in slices(1.0, 1.0, 1.0, 1.0)
    )  # fmt: skip
    assert ratio(refused, "error_rate", LOOKS).slices == 0
    risen = rise(refused, "error_rate", LOOKS)
    assert risen.slices == 4
    assert risen.low > 0.02
    assert math.isclose(risen.mean, 0.1, abs_tol=0.01)
