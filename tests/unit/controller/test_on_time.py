"""Lateness is told: to who has kubectl, and to who has the operator's metrics."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

from specpilot.controller.beat import Beat
from specpilot.controller.metrics import registry
from specpilot.store import Store
from tests.unit.controller.world import World


@pytest.mark.parametrize(
    ("late", "status", "reason"),
    [("", True, "OnTime"), ("every 34 s instead of every 15 s", False, "TicksLate")],
)
def test_each_policy_says_whether_it_is_evaluated_on_time(
    tmp_path: Path, late: str, status: bool, reason: str
) -> None:
    world = World(tmp_path)
    with closing(world.store):
        world.evaluator.tick(late=late)
        found = {c.type: c for c in world.status().conditions}
    assert (found["OnTime"].status, found["OnTime"].reason) == (status, reason)
    assert found["OnTime"].message == late
    assert found["Ready"].status is True, "late is not broken"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(f"sqlite:///{tmp_path / 'x.sqlite'}")) as opened:
        yield opened


def exposed(store: Store, runner: Any) -> str:
    return generate_latest(registry(store=store, runner=lambda: runner)).decode()


def test_a_standby_shows_no_numbers_of_ticks(store: Store) -> None:
    page = exposed(store, None)
    assert "specpilot_leader 0.0" in page
    assert "specpilot_tick_" not in page
    assert "specpilot_ticks_total" not in page


def test_a_leader_shows_the_interval_it_keeps_and_the_one_it_should(store: Store) -> None:
    at = iter([100.0, 102.0, 134.0, 137.0, 140.0])
    beat = Beat(interval_s=15.0, clock=lambda: next(at))
    for _ in range(2):
        beat.begin()
        beat.end()
    page = exposed(store, SimpleNamespace(late_ticks=1, beat=beat)).splitlines()
    assert {
        "specpilot_ticks_total 2.0",
        "specpilot_ticks_late_total 1.0",
        "specpilot_tick_seconds_total 5.0",
        "specpilot_tick_interval_seconds 34.0",
        "specpilot_tick_interval_wanted_seconds 15.0",
        "specpilot_tick_age_seconds 6.0",
    } <= set(page)
