"""Percentiles are asked for when they are needed, and soon enough: their buckets cost the most."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from specpilot.controller.analysis import MEASURED_PHASES
from specpilot.controller.wanted import judged_signals, wanted_signals
from specpilot.domain.changes import Phase
from specpilot.domain.policy import Guardrail
from specpilot.domain.ports import Ask
from specpilot.domain.readings import Reading, Readings
from tests.unit.controller.model import Modelled
from tests.unit.domain.builders import policy

BOUND = Guardrail(signal="e2e_p99", max_value=30.0)


@pytest.mark.parametrize(
    ("guardrail", "at_rest", "reason"),
    [
        (BOUND, False, "held against the canary alone"),
        (Guardrail(signal="e2e_p99", max_increase=0.1), True, "compared with what was before"),
        (Guardrail(signal="e2e_p99", max_rise=0.1), True, "likewise"),
        (Guardrail(signal="e2e_mean", max_value=30.0), True, "costs nothing, and is shown"),
    ],
)
def test_what_a_guardrail_asks_for(guardrail: Guardrail, *, at_rest: bool, reason: str) -> None:
    guarded = policy(guardrails=(guardrail,))
    assert (guardrail.signal in wanted_signals(guarded, None)) is at_rest, reason
    assert guardrail.signal in judged_signals(guarded), reason


@dataclass
class Listening:
    """Telemetry that keeps what it was asked, in order."""

    answers: "Modelled"
    heard: list[Ask] = field(default_factory=list)
    lag_s: float = 0.0

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        self.heard += asks
        found = self.answers.numbers.collect(asks)
        return {
            ask.key: found[ask.key].merged(
                [Reading(signal=BOUND.signal, value=4.0, low=2.5, high=5.0, count=50.0, at=ask.end)]
                if ask.replicas and BOUND.signal in ask.signals
                else []
            )
            for ask in asks
        }

    def moved(self, replica: object) -> float:
        del replica
        return 0.0

    def expect(self, asks: Sequence[Ask]) -> None:
        del asks

    def track(self, replicas: Sequence[object]) -> None:
        del replicas


@pytest.fixture
def world(directory: Path) -> Modelled:
    return Modelled(directory, probe=None, guardrails=(BOUND,))


def _naming(asks: Sequence[Ask]) -> Iterator[Ask]:
    return (ask for ask in asks if BOUND.signal in ask.signals)


def test_buckets_are_asked_of_a_canary_before_it_is_judged_by_them(world: Modelled) -> None:
    listening = Listening(world)
    world.telemetry = listening  # type: ignore[assignment]
    world.boot()
    world.run(60)
    assert listening.heard
    assert not list(_naming(listening.heard)), "nothing is in flight"

    world.numbers.batch = 40.0
    world.run(900, until=lambda: any(c.phase.ended for c in world.changes()))
    (change,) = world.changes()
    assert change.phase is Phase.SUCCEEDED, change.message
    announced: set[str] = set()
    judged = 0
    for ask in _naming(listening.heard):
        names = {replica.instance for replica in ask.replicas}
        if ask.key.endswith("/flight"):
            announced |= names
            continue
        judged += 1
        assert names <= announced, f"{ask.key} judges replicas whose buckets nobody fetched"
        assert not ask.key.endswith("/control"), "a bound is not held against the others"
    assert judged > 5

    listening.heard.clear()
    world.numbers.batch = 20.0
    world.run(120)
    assert not list(_naming(listening.heard)), "nor is anything any more"


@pytest.mark.parametrize(
    ("lag_s", "most", "reason"),
    [
        (0.0, 1.0, "numbers that are there at once are asked for at each look"),
        (16.0, 0.3, "numbers come every fifteen seconds, and a change is looked at each second"),
    ],
)
def test_a_change_is_looked_at_oftener_than_its_numbers_are_asked_for(
    world: Modelled, *, lag_s: float, most: float, reason: str
) -> None:
    listening = Listening(world, lag_s=lag_s)
    world.telemetry = listening  # type: ignore[assignment]
    world.boot()
    world.numbers.batch = 40.0
    looks = 0

    def ended() -> bool:
        nonlocal looks
        looks += any(change.phase in MEASURED_PHASES for change in world.changes())
        return any(change.phase.ended for change in world.changes())

    world.run(900, step=1.0, until=ended)
    (change,) = world.changes()
    assert change.phase is Phase.SUCCEEDED, change.message
    asked = [ask for ask in listening.heard if ask.key.endswith("/whole")]
    starts = [ask for ask in listening.heard if ask.key.endswith("/canary")]
    assert len(starts) > 5, "slices are closed as ever"
    assert 0.1 * looks < len(asked) <= most * looks + len(starts), reason
