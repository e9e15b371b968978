"""Two minutes without numbers, in every phase: nothing changes, and the status says why at once.

What users of similar operators met: production shrank to its minimum because an outage read as 0
(keda#3065, #965), healthy canaries were rolled back for want of values (flagger#883, #1754), a
Prometheus that was down at the start broke the first analysis (flagger#664), an empty answer was
an indexing error (argo-rollouts#1466) or good news (#3503), a run was Successful although every
measurement had failed (#4479), and nothing went on by itself afterwards (#1905).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.controller.registry import Condition, ReplicaCount
from specpilot.domain.changes import ChangeKind, FlagChange, Phase
from specpilot.domain.policy import Guardrail, Mode, Probe
from specpilot.domain.situation import Answer, Decision
from tests.unit.controller.model import Modelled, Numbers

OUTAGE_S = 120
BUSY, USUAL, QUIET = 40.0, 10.0, 1.0
RAILS = (
    Guardrail(signal="tpot_mean", max_increase=0.10),
    Guardrail(signal="tpot_mean", max_value=0.03),
)

FAULTS = {
    Numbers.EMPTY: "NoData",
    Numbers.NAN: "NaN",
    Numbers.STALE: "Stale",
    Numbers.TWICE: "Ambiguous",
    Numbers.SILENT: "SourceError",
}
"""What the source answers, and what the status must call it."""


def newest(world: Modelled) -> FlagChange | None:
    changes = world.changes()
    return changes[-1] if changes else None


def until(world: Modelled, phase: Phase, *, more_s: float = 0) -> None:
    """Go on until the newest change is in that phase, and for a while longer."""
    world.run(900, until=lambda: (c := newest(world)) is not None and c.phase is phase)
    found = newest(world)
    assert found is not None, "there is a change"
    assert found.phase is phase, found.message
    world.run(more_s)


def nothing(world: Modelled) -> None:
    del world


def at_rest(world: Modelled) -> None:
    world.run(60)
    world.numbers.batch = BUSY  # which nobody sees before the numbers are back


def at_the_start(world: Modelled) -> None:
    world.numbers.batch = BUSY


def cooling_down(world: Modelled) -> None:
    patient(world)
    world.numbers.batch = BUSY
    until(world, Phase.SUCCEEDED)
    world.numbers.batch = QUIET
    world.run(20)
    assert condition(world, "Held").reason == "Cooldown"


def patient(world: Modelled) -> None:
    assert world.policy is not None
    canary = replace(world.policy.canary, ready_within=timedelta(minutes=20))
    limits = replace(world.policy.limits, cooldown=timedelta(minutes=10))
    world.policy = replace(world.policy, canary=canary, limits=limits)


def waiting_for_approval(world: Modelled) -> None:
    assert world.policy is not None
    world.policy = replace(world.policy, mode=Mode.APPROVE)
    world.numbers.batch = BUSY
    until(world, Phase.PENDING)


def approve(world: Modelled) -> None:
    change = newest(world)
    assert change is not None
    world.registry.decisions[change.id] = Decision(answer=Answer.APPROVE, by="ann")


def loading_the_canary(world: Modelled) -> None:
    patient(world)
    world.model.slow = {"off"}
    world.numbers.batch = BUSY
    until(world, Phase.CANARY, more_s=20)


def load(world: Modelled) -> None:
    world.model.slow = set()


def begun_to_analyse(world: Modelled) -> None:
    world.numbers.batch = BUSY
    until(world, Phase.ANALYSING)


def almost_analysed(world: Modelled) -> None:
    """Four slices of six: enough of everything but time."""
    world.numbers.batch = BUSY
    until(world, Phase.ANALYSING, more_s=45)


def probing(world: Modelled) -> None:
    assert world.policy is not None
    world.policy = replace(world.policy, probe=Probe(every=timedelta(seconds=60)))
    world.numbers.batch = BUSY
    until(world, Phase.SUCCEEDED)
    world.numbers.batch = USUAL
    world.numbers.tpot["ngram"] = 0.015
    until(world, Phase.ANALYSING, more_s=25)
    change = newest(world)
    assert change is not None
    assert change.kind is ChangeKind.PROBE


def rolling_out(world: Modelled) -> None:
    patient(world)
    world.numbers.batch = BUSY
    until(world, Phase.PROMOTING)
    world.model.slow = {"off"}
    world.run(10)


def watching(world: Modelled) -> None:
    world.numbers.batch = BUSY
    until(world, Phase.WATCHING)


def unguarded(world: Modelled) -> None:
    assert world.policy is not None
    world.policy = replace(world.policy, guardrails=RAILS[:1])
    watching(world)


def breaks_unseen(world: Modelled) -> None:
    world.numbers.tpot["off"] = 0.06


def going_back(world: Modelled) -> None:
    assert world.policy is not None
    world.policy = replace(world.policy, watch=timedelta(minutes=10))
    watching(world)
    world.numbers.tpot["off"] = 0.06
    until(world, Phase.ROLLING_BACK)
    world.run(60, until=lambda: any(r.setting == "ngram" and r.ready for r in counted(world)))
    world.model.slow = {"ngram"}
    world.run(10)


def counted(world: Modelled) -> tuple[ReplicaCount, ...]:
    return world.status().replicas


@dataclass(frozen=True, kw_only=True)
class Row:
    """One moment at which the numbers are lost.

    Attributes:
        reason: What it is about.
        reach: Brings the world there.
        meanwhile: Happens one tick into the outage.
        phases: The phases that the status may show during the outage, in order.
        after: Happens when the numbers are back.
        changes: How many there are in the end.
        ends: How the newest of them ends then.
        runs: What all replicas run then.
    """

    reason: str
    reach: Callable[[Modelled], None]
    meanwhile: Callable[[Modelled], None] = nothing
    phases: tuple[str, ...]
    after: Callable[[Modelled], None] = nothing
    changes: int = 1
    ends: Phase = Phase.SUCCEEDED
    runs: str = "off"


ROWS = [
    Row(reason="at rest: the load that is not seen starts nothing", reach=at_rest,
        phases=("Blind",)),
    Row(reason="from the first tick on (flagger#664)", reach=at_the_start, phases=("Blind",)),
    Row(reason="while it cools down", reach=cooling_down, phases=("Blind",), changes=2,
        runs="ngram"),
    Row(reason="while a person thinks", reach=waiting_for_approval, phases=("Pending",),
        after=approve),
    Row(reason="approved meanwhile: it begins when it can be judged", reach=waiting_for_approval,
        meanwhile=approve, phases=("Pending",)),
    Row(reason="while the canary loads", reach=loading_the_canary, phases=("Canary",), after=load),
    Row(reason="the canary is ready meanwhile, and waits to be compared", reach=loading_the_canary,
        meanwhile=load, phases=("Canary", "Analysing")),
    Row(reason="when the analysis has just begun", reach=begun_to_analyse, phases=("Analysing",)),
    Row(reason="the time of the analysis ends meanwhile", reach=almost_analysed,
        phases=("Analysing",)),
    Row(reason="a probe is not lost for not being seen", reach=probing, phases=("Analysing",),
        changes=2, runs="ngram"),
    Row(reason="while it is rolled out", reach=rolling_out, phases=("Promoting",), after=load),
    Row(reason="the roll that was decided on ends meanwhile", reach=rolling_out, meanwhile=load,
        phases=("Promoting", "Watching")),
    Row(reason="the watch does not end unseen (argo-rollouts#4479)", reach=watching,
        phases=("Watching",)),
    Row(reason="what broke unseen is undone when it is seen", reach=watching,
        meanwhile=breaks_unseen, phases=("Watching",), ends=Phase.ROLLED_BACK, runs="ngram"),
    Row(reason="a watch without a bound has nothing to wait for", reach=unguarded,
        phases=("Watching", "Blind")),
    Row(reason="on the way back", reach=going_back, phases=("RollingBack",), after=load,
        ends=Phase.ROLLED_BACK, runs="ngram"),
    Row(reason="back meanwhile, and not tried again blind", reach=going_back, meanwhile=load,
        phases=("RollingBack", "Blind"), ends=Phase.ROLLED_BACK, runs="ngram"),
]  # fmt: skip


def condition(world: Modelled, kind: str) -> Condition:
    return next(c for c in world.status().conditions if c.type == kind)


@pytest.mark.parametrize("numbers", FAULTS, ids=str)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.reason)
def test_two_minutes_without_numbers(directory: Path, row: Row, numbers: Numbers) -> None:
    world = Modelled(directory, probe=None, guardrails=RAILS)
    row.reach(world)
    said, changes, undone = set(world.model.spoken), world.changes(), reasons(world)
    seen: list[str] = []

    world.numbers.numbers = numbers
    for tick in range(OUTAGE_S // 5):
        world.run(5)
        if tick == 1:
            row.meanwhile(world)
        available, ready = condition(world, "MetricsAvailable"), condition(world, "Ready")
        assert (available.status, available.reason) == (False, FAULTS[numbers])
        assert f"batch_size is Unknown ({FAULTS[numbers]})" in available.message
        assert (ready.status, ready.message) == (False, available.message)
        if world.status().phase not in seen[-1:]:
            seen.append(world.status().phase)

    assert tuple(seen) == row.phases
    assert set(world.model.spoken) == said, "the workload was told nothing new"
    assert len(world.changes()) == len(changes), "nothing was proposed"
    assert reasons(world) == undone, "nothing was undone"

    world.numbers.numbers = Numbers.KNOWN
    row.after(world)
    world.run(5)
    assert condition(world, "MetricsAvailable").status is True
    world.run(
        900, until=lambda: len(found := world.changes()) == row.changes and found[-1].phase.ended
    )
    change = newest(world)
    assert change is not None
    assert change.phase is row.ends, f"{change.phase}: {change.message}"
    assert {pod.replica.declared.setting for pod in world.model.pods} == {row.runs}
    with world.store.read() as unit:
        assert unit.audit.verify().ok


def reasons(world: Modelled) -> list[object]:
    """Why changes were undone, those that were."""
    return [c.undo_reason for c in world.changes() if c.undo_reason is not None]
