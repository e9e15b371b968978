"""A change that waits is left alone as long as a look would find what the last one found."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.controller.resting import SHARE, Ground, Resting
from specpilot.domain.changes import Phase
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Answer, Decision
from tests.unit.controller.world import NGRAM_CONFIG, Steady, World
from tests.unit.domain.builders import NEW, at, change, policy, replica, state

LAG_S = 15.0
SECOND = timedelta(seconds=1)
NOW = at(0)
CHANGE, POLICY, STATE = change(), policy(), state(NEW, replica("r0", NEW))
GROUND = Ground(revision=CHANGE.revision, policy=POLICY, state=STATE, decision=None)


@pytest.mark.parametrize(
    ("ground", "after", "lag_s", "rests", "reason"),
    [
        (GROUND, SECOND, LAG_S, True, "nothing has happened"),
        (GROUND, SECOND, 0.0, False, "numbers come at any time"),
        (GROUND, timedelta(seconds=SHARE * LAG_S), LAG_S, False, "time itself may decide"),
        (GROUND, -SECOND, LAG_S, False, "the clock was set back"),
        (replace(GROUND, revision=99), SECOND, LAG_S, False, "somebody moved it on"),
        (replace(GROUND, policy=replace(POLICY)), SECOND, LAG_S, False, "the policy was edited"),
        (replace(GROUND, policy=None), SECOND, LAG_S, False, "the policy is gone"),
        (replace(GROUND, state=replace(STATE)), SECOND, LAG_S, False, "the target has changed"),
        (
            replace(GROUND, decision=Decision(answer=Answer.APPROVE, by="ann")),
            SECOND,
            LAG_S,
            False,
            "a person decided",
        ),
    ],
)
def test_what_wakes_a_change(
    ground: Ground, after: timedelta, lag_s: float, rests: bool, reason: str
) -> None:
    resting = Resting()
    assert not resting.rests(CHANGE, GROUND, lag_s=lag_s, now=NOW), "nobody has looked yet"
    resting.lay(CHANGE.id, GROUND, now=NOW)
    assert resting.rests(CHANGE, ground, lag_s=lag_s, now=NOW + after) is rests, reason


def test_whoever_did_something_wakes_one_and_new_numbers_wake_all() -> None:
    other = replace(CHANGE, id="other")
    resting = Resting()
    for each in (CHANGE, other):
        resting.lay(each.id, GROUND, now=NOW)

    resting.wake(CHANGE.id)
    assert not resting.rests(CHANGE, GROUND, lag_s=LAG_S, now=NOW + SECOND)
    assert resting.rests(other, GROUND, lag_s=LAG_S, now=NOW + SECOND)

    resting.wake_all()
    assert not resting.rests(other, GROUND, lag_s=LAG_S, now=NOW + SECOND)


def test_a_canary_that_hangs_on_its_first_request_is_found_to(tmp_path: Path) -> None:
    """It was ready when the analysis began, and seconds later it is not any more."""
    world = World(tmp_path)
    world.telemetry.lag_s = 20.0
    start = Declared(setting="ngram", config=NGRAM_CONFIG, change_id="")
    fleet = world.fleet = Steady(world.clock, size=3, declared=start)
    world.boot()
    world.telemetry.batch = 50.0
    began: timedelta | None = None
    for second in range(300):
        world.clock.at += SECOND
        if began is None and second % 5 == 0:
            fleet.move()
        if second % 15 == 0:
            world.evaluator.tick()
            world.reconciler.numbers_came()
        world.reconciler.run()
        changes = world.changes()
        phase = changes[-1].phase if changes else None
        if phase is Phase.ANALYSING and began is None:
            began = second * SECOND
        if began is not None and second * SECOND == began + 2 * SECOND:
            name = next(n for n, r in fleet.replicas.items() if r.declared.setting == "off")
            fleet.replicas[name] = replace(fleet.replicas[name], ready=False, ready_since=None)
        if phase is Phase.ROLLING_BACK:
            break
    (change,) = world.changes()
    assert change.phase is Phase.ROLLING_BACK
    assert "is not since" in change.message
