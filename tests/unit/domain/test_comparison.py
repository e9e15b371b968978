"""Canary against control: a claim only where the data support it."""

import math
import random

import pytest

from specpilot.domain.changes import Slice
from specpilot.domain.comparison import MIN_SLICES, Outcome, beats, exceeds, ratio
from tests.unit.domain.builders import at, slices


@pytest.mark.parametrize(
    ("ratios", "want", "reason"),
    [
        ((0.7, 0.72, 0.69, 0.71), Outcome.YES, "clearly faster"),
        ((0.97, 0.98, 0.97, 0.98), Outcome.NO, "faster, but by less than the margin"),
        ((1.3, 1.28, 1.31, 1.29), Outcome.NO, "clearly slower"),
        ((0.6, 1.4, 0.8, 1.2), Outcome.UNCLEAR, "noise decides nothing"),
        ((0.5, 0.5), Outcome.UNCLEAR, "two slices decide nothing, however clear"),
        ((), Outcome.UNCLEAR, "no slice decides nothing"),
    ],
)
def test_beats(ratios: tuple[float, ...], want: Outcome, reason: str) -> None:
    assert beats(slices(*ratios), margin=0.05)[0] is want, reason


def test_a_slice_that_lacks_an_arm_does_not_count() -> None:
    one_armed = Slice(start=at(90), end=at(100), canary={"tpot_mean": 9.0}, control={})
    estimate = ratio((*slices(0.7, 0.7, 0.7), one_armed), "tpot_mean")
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
    assert beats(told, margin=0.05)[0] is Outcome.UNCLEAR


def test_either_view_suffices_when_the_other_is_silent() -> None:
    still_running = tuple(
        Slice(
            start=s.start, end=s.end,
            canary={"tokens_per_second_per_request": 90.0 + s.start.second / 10},
            control={"tokens_per_second_per_request": 50.0},
        )
        for s in slices(0.5, 0.5, 0.5, 0.5)
    )  # fmt: skip
    assert beats(still_running, margin=0.05)[0] is Outcome.YES


def test_equal_arms_are_seldom_called_different_however_often_one_looks() -> None:
    """Looked at after each slice from the third on, as an analysis is; few may claim anything."""
    rng = random.Random(7)
    false = 0
    for _ in range(400):
        noisy = slices(*[math.exp(rng.gauss(0, 0.2)) for _ in range(6)])
        false += any(
            exceeds(ratio(noisy[:n], "tpot_mean"), 1.0) is Outcome.YES for n in range(3, 7)
        )
    assert false / 400 < 0.08, "one-sided 99 %, three times, then 95 % once"
