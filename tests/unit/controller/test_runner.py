"""Running the loop: what goes wrong is said once, and the other jobs go on."""

import logging
import threading
from collections.abc import Callable

import pytest

from specpilot.controller.runner import Runner
from specpilot.store import StoreError


class Jobs:
    """Stands in for evaluator and reconciler: counts, and fails while told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.failing = True
        self.enough = threading.Event()

    def tick(self, *, late: str = "") -> None:
        del late
        self.runs += 1
        if self.runs >= 5:
            self.enough.set()
        if self.failing:
            raise StoreError("database or disk is full")

    def run(self, *, between: Callable[[], object]) -> None:
        self.tick()
        between()


def test_a_database_that_is_away_is_said_once_and_so_is_its_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing, working = Jobs(), Jobs()
    working.failing = False
    with (
        caplog.at_level(logging.INFO, logger="specpilot"),
        Runner(
            evaluator=failing,  # type: ignore[arg-type]
            reconciler=working,  # type: ignore[arg-type]
            deliver=lambda: None,
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
