"""Running the loop: what goes wrong is said once, and the other jobs go on."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from specpilot.controller.clockwatch import ClockWatch
from specpilot.controller.runner import Runner
from specpilot.store import StoreError
from tests.cluster.waiting import wait_for
from tests.unit.controller.cut import Cut


class Jobs:
    """Stands in for evaluator and reconciler: counts, and fails while told to."""

    def __init__(self, *, lingers_s: float = 0.0, failing: bool = False) -> None:
        self.lingers_s = lingers_s
        self.runs = 0
        self.failing = failing
        self.enough = threading.Event()

    def tick(self, portion: int = 0, *, late: str = "") -> None:
        del portion, late
        self.runs += 1
        if self.runs >= 5:
            self.enough.set()
        if self.failing:
            raise StoreError("database or disk is full")

    def run(self, *, between: Callable[[], object]) -> None:
        self.tick()
        time.sleep(self.lingers_s)
        between()
        time.sleep(self.lingers_s)

    def numbers_came(self, portion: int) -> None:
        pass


def _runner(evaluator: Jobs, reconciler: Jobs, **rest: Any) -> Runner:
    return Runner(
        evaluator=evaluator,  # type: ignore[arg-type]
        reconciler=reconciler,  # type: ignore[arg-type]
        deliver=lambda: None,
        **rest,
    )


def test_a_database_that_is_away_is_said_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing, working = Jobs(failing=True), Jobs()
    with (
        caplog.at_level(logging.INFO, logger="specpilot"),
        _runner(
            failing,
            working,
            interval_s=0.05,
            pace_s=0.05,
        ),
    ):
        assert failing.enough.wait(30)
        assert working.enough.wait(30)
        failing.failing = False
        failing.enough.clear()
        assert failing.enough.wait(30)
    said = [r.getMessage() for r in caplog.records if r.name == "specpilot.controller.runner"]
    said = [words for words in said if "ticks take longer" not in words]
    assert said == ["tick: database or disk is full; trying again", "tick: works again"]


@pytest.mark.parametrize(
    ("wall", "back", "reason"),
    [
        ([100, 105, 110], [0, 0], "both go on"),
        ([100, 45, 50], [60, 0], "set back by a minute: told once"),
        ([100, 4000, 4005], [0, 0], "ahead: jobs that are due run by themselves"),
        ([100, 104.5, 109.2], [0, 0], "slewed by a time server"),
        ([100, 4000, 405], [0, 3600], "ahead, and back again"),
    ],
)
def test_a_clock_that_is_set_back(wall: list[float], back: list[float], reason: str) -> None:
    walls, steady = iter(wall), iter([0.0, 5.0, 10.0])
    watch = ClockWatch(wall=lambda: next(walls), steady=lambda: next(steady))
    assert [watch.set_back_s() for _ in back] == back, reason


def test_jobs_that_would_wait_for_the_clock_are_run_at_once() -> None:
    jobs = Jobs()
    with _runner(
        jobs,
        jobs,
        interval_s=3600,
        pace_s=3600,
    ) as runner:
        for _ in range(3):
            runs = jobs.runs
            runner.run_now()
            wait_for(lambda: jobs.runs > runs, describe="another run")  # noqa: B023


@pytest.mark.parametrize(
    ("lingers_s", "reason"),
    [(0.0, "nothing is under way"), (0.5, "the tick comes in the middle of a run")],
)
def test_what_a_tick_opened_is_taken_up_at_once(lingers_s: float, reason: str) -> None:
    """Not at the next beat, which is an hour away here."""
    ticking, reconciling = Jobs(), Jobs(lingers_s=lingers_s)
    with _runner(
        ticking,
        reconciling,
        look=lambda _: wait_for(lambda: reconciling.runs == 1, describe="the run at the start"),
        interval_s=3600,
        pace_s=3600,
    ):
        wait_for(lambda: reconciling.runs == 2, describe=f"the run after the tick: {reason}")
    assert ticking.runs == 1


class Ticks(Jobs):
    """Notes which portions were ticked."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def tick(self, portion: int = 0, *, late: str = "") -> None:
        super().tick(portion, late=late)
        self.seen.append(portion)


@pytest.mark.parametrize(
    ("count", "portions", "reason"),
    [
        (1, {0}, "a small fleet is ticked once an interval"),
        (3, {0, 1, 2}, "each portion of a large one has its own tick"),
    ],
)
def test_each_portion_is_looked_at_and_ticked_in_its_turn(
    count: int, portions: set[int], reason: str
) -> None:
    ticks, reconciling, looked = Ticks(), Jobs(), []
    with _runner(
        ticks,
        reconciling,
        look=looked.append,
        interval_s=0.6,
        pace_s=3600,
        portions=Cut(count),
    ) as runner:
        wait_for(lambda: runner.beat.pulse().ended >= 3, describe="three ticks of the first")
        wait_for(lambda: {*ticks.seen} == portions, describe="a tick of each portion")
    assert sorted(looked) == sorted(ticks.seen), "each tick follows a look at its portion"
    assert runner.beat.pulse().ended == ticks.seen.count(0), reason


def test_portions_stay_apart_when_all_is_run_at_once() -> None:
    """A clock that was set back is no reason to look at everything at one moment ever after."""
    ticks, reconciling = Ticks(), Jobs()
    with _runner(
        ticks,
        reconciling,
        interval_s=3600,
        pace_s=3600,
        portions=Cut(3),
    ) as runner:
        wait_for(lambda: ticks.seen == [0], describe="the first portion's tick")
        runner.run_now()
        jobs = [runner._scheduler.get_job(f"tick-{portion}") for portion in range(3)]
        due = [job.next_run_time for job in jobs]
    apart = [(at - due[0]).total_seconds() % 3600 for at in due]
    assert apart == [0, 1200, 2400]


def test_ticks_are_spread_anew_when_there_are_more_portions_or_fewer() -> None:
    ticks, reconciling, portions = Ticks(), Jobs(), Cut(1)
    with _runner(ticks, reconciling, interval_s=3600, pace_s=0.05, portions=portions) as runner:

        def apart() -> list[float]:
            jobs = [runner._scheduler.get_job(f"tick-{p}") for p in range(portions.count)]
            first = jobs[0].next_run_time
            return [(job.next_run_time - first).total_seconds() % 3600 for job in jobs]

        for count, expected in ((2, [0, 1800]), (3, [0, 1200, 2400]), (2, [0, 1800])):
            portions.count = count
            wait_for(lambda: apart() == expected, describe=apart)  # noqa: B023
            assert runner._scheduler.get_job("tick-1").next_run_time > datetime.now(UTC)


@pytest.mark.parametrize(
    ("late", "offers", "reason"),
    [
        (False, 40, "a tick waits for one change at most"),
        (True, 5, "of many portions one is always waiting: changes are carried on all the same"),
    ],
)
def test_changes_are_carried_on_though_ticks_are_late(
    monkeypatch: pytest.MonkeyPatch, late: bool, offers: int, reason: str
) -> None:
    jobs = Jobs()
    runner = _runner(
        jobs,
        jobs,
        interval_s=15.0,
    )
    at = 100.0
    monkeypatch.setattr("specpilot.controller.runner.time.monotonic", lambda: at)
    pulse = replace(runner.beat.pulse(), late=late)
    monkeypatch.setattr(runner.beat, "pulse", lambda: pulse)
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    monkeypatch.setattr(runner._turns, "offer", count)
    offer = runner._offering()
    for _ in range(40):
        at += 0.125
        offer()
    assert counted == offers, reason
