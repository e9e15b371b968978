"""Looking when told to: fresh numbers for who asks, and no round too many."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from specpilot.telemetry.background import Background, Looking, look_at_all
from tests.cluster.waiting import wait_for

LONG_S = 3600.0


class Rounds(Background):
    """Counts its rounds; each lasts until it is let go."""

    def __init__(self, *, interval_s: float = LONG_S) -> None:
        super().__init__(name="rounds", interval_s=interval_s, patience_s=1.0)
        self.count = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.fails = False

    def sample(self) -> None:
        self.count += 1
        self.may_end.wait(30)
        if self.fails:
            raise RuntimeError("as told")

    def age(self, *, seconds: float) -> None:
        """As if the newest round had begun so much earlier."""
        with self._rounds:
            self._began -= seconds


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    with Rounds() as source:
        assert source.look(timeout_s=30), "the first round, which begins at the start"
        yield source


def test_it_looks_when_told_to(rounds: Rounds) -> None:
    rounds.age(seconds=LONG_S / 2)
    assert rounds.look(timeout_s=30)
    assert rounds.count == 2


def test_a_round_of_a_moment_ago_will_do(rounds: Rounds) -> None:
    for _ in range(3):
        assert rounds.look(timeout_s=30)
    assert rounds.count == 1


def test_a_round_of_some_time_ago_will_not(rounds: Rounds) -> None:
    rounds.age(seconds=LONG_S / 10)
    assert rounds.look(timeout_s=30)
    assert rounds.count == 2


class Waits(threading.Event):
    """Notes how long it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        return super().wait(timeout)


def test_who_is_told_to_look_waits_to_be_told_again() -> None:
    """At a pace of its own it would look just before, and see what has changed an interval late."""
    source = Rounds()
    source._wake = waits = Waits()
    with source:
        for number in range(3):
            assert source.look(timeout_s=30)
            wait_for(lambda: len(waits.waits) > number, describe="it waits")  # noqa: B023
            source.age(seconds=LONG_S)
    own, *told = waits.waits[:3]
    assert own == pytest.approx(LONG_S, rel=0.01)
    assert told == pytest.approx([1.5 * LONG_S] * 2, rel=0.01)


def test_a_round_that_is_on_is_waited_for_and_not_doubled(rounds: Rounds) -> None:
    rounds.age(seconds=LONG_S / 2)
    rounds.may_end.clear()
    assert not rounds.look(timeout_s=0.01), "not in time"
    wait_for(lambda: rounds.count == 2, deadline=30, describe="the round has begun")
    assert not rounds.look(timeout_s=0.01)
    rounds.may_end.set()
    assert rounds.look(timeout_s=30)
    assert rounds.count == 2


def test_a_round_that_fails_is_over_too(rounds: Rounds) -> None:
    rounds.fails = True
    rounds.age(seconds=LONG_S / 2)
    assert rounds.look(timeout_s=30)


def test_before_it_is_started_nothing_is_promised() -> None:
    assert not Rounds().look(timeout_s=0.01)


def test_it_is_what_a_tick_looks_for(rounds: Rounds) -> None:
    assert isinstance(rounds, Looking)


class Meeting(Rounds):
    """Its rounds end when another one's are under way too."""

    def __init__(self, meeting: threading.Barrier) -> None:
        super().__init__()
        self.meeting = meeting

    def sample(self) -> None:
        super().sample()
        self.meeting.wait(30)


def test_several_sources_look_at_the_same_time() -> None:
    meeting = threading.Barrier(2)
    with Meeting(meeting) as first, Meeting(meeting) as second:
        assert look_at_all((first, None, second), timeout_s=30)
        first.age(seconds=LONG_S / 2)
        second.age(seconds=LONG_S / 2)
        assert look_at_all((first, "a source that looks by itself", second), timeout_s=30)
        assert (first.count, second.count) == (2, 2), "and each looks once"


def test_all_are_waited_for_and_one_that_is_late_is_told_of(rounds: Rounds) -> None:
    rounds.age(seconds=LONG_S / 2)
    rounds.may_end.clear()
    with Rounds() as quick:
        assert not look_at_all((rounds, quick), timeout_s=0.01)
        rounds.may_end.set()
        assert look_at_all((rounds, quick), timeout_s=30)
