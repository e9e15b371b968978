"""How regularly ticks begin, on a clock that the test moves."""

from collections.abc import Sequence

import pytest

from specpilot.controller.beat import Beat, Beats
from tests.unit.controller.cut import Cut


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def ticking(gaps: Sequence[float], *, each_s: float = 2.0) -> tuple[Beat, Clock]:
    """A beat of 15 s with a tick at the start and one after each gap."""
    clock = Clock()
    beat = Beat(interval_s=15.0, clock=clock)
    for gap in (0.0, *gaps):
        clock.at += gap
        beat.begin()
        clock.at += each_s
        beat.end()
        clock.at -= each_s
    return beat, clock


def test_nothing_is_said_before_there_are_two() -> None:
    clock = Clock()
    beat = Beat(interval_s=15.0, clock=clock)
    assert beat.pulse().age_s is None
    beat.begin()
    clock.at += 3
    pulse = beat.pulse()
    assert (pulse.real_s, pulse.late, pulse.ended, pulse.busy_s) == (None, False, 0, 0.0)
    assert pulse.age_s == 3


def test_it_counts_and_times() -> None:
    beat, clock = ticking([15.0, 15.0])
    clock.at += 4
    pulse = beat.pulse()
    assert (pulse.ended, pulse.busy_s, pulse.real_s, pulse.age_s) == (3, 6.0, 15.0, 4.0)
    assert pulse.words == ""


@pytest.mark.parametrize(
    ("gaps", "late", "reason"),
    [
        ([15, 15, 15, 15], False, "on time"),
        ([15, 15, 15, 30], False, "one slow tick is no news"),
        ([30, 30], True, "every other one is skipped"),
        ([30, 30, 30, 30, 20, 20], True, "better, and not yet good: it would flicker"),
        ([30, 30, 30, 30, 15, 15, 15, 15], False, "four good ones end it"),
    ],
)
def test_late(gaps: list[float], late: bool, reason: str) -> None:
    beat, _ = ticking(gaps)
    assert beat.pulse().late is late, reason


def test_the_words_name_both_intervals_and_a_remedy() -> None:
    beat, _ = ticking([30, 32])
    words = beat.pulse().words
    assert "every 31 s instead of every 15 s" in words
    assert "evaluation.intervalSeconds" in words


def test_a_fleet_in_portions_is_as_late_as_its_latest_and_counts_once() -> None:
    clock, cut = Clock(), Cut(3)
    beats = Beats(interval_s=15.0, portions=cut, clock=clock)
    for interval in range(4):
        for portion in range(3):
            clock.at += 5.0
            if portion == 1 and interval % 2:
                continue  # every other one is skipped
            beats.of(portion).begin()
            clock.at += 1.0
            beats.of(portion).end()
            clock.at -= 1.0
    pulse = beats.pulse()
    assert (pulse.ended, pulse.busy_s) == (4, 10.0)
    assert pulse.real_s == 30.0
    assert pulse.late
    assert pulse.age_s == 20.0, "the second portion's, at 105; it is 125 now"
    cut.count = 1
    whole = beats.pulse()
    assert (whole.real_s, whole.late, whole.age_s) == (15.0, False, 10.0)
    assert whole.busy_s == 10.0, "what was spent is not taken back"


def test_a_portion_that_comes_back_is_not_late() -> None:
    beat, clock = ticking([15.0])
    beat.rest()
    clock.at += 3600
    beat.begin()
    beat.end()
    clock.at += 15
    beat.begin()
    assert beat.pulse().real_s == 15.0
    assert not beat.pulse().late
