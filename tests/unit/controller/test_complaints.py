"""What users of similar operators complain about, on the real loop: flapping, stuck, undone, deaf.

Each docstring names the issue. Numbers that are missing have a table of their own
(`test_telemetry_faults`), what is undone at rest is in `test_guarding`.
"""

import itertools
import random
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.controller.registry import Condition
from specpilot.domain.changes import ChangeReason, FlagChange, Phase
from specpilot.domain.policy import AlertRoute, Limits, Mode, Policy
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica
from specpilot.store import RuleOwner
from tests.unit.controller.model import START, Modelled

HOUR_S = 3600.0


@pytest.fixture
def world(directory: Path) -> Modelled:
    return Modelled(directory, probe=None)


def busy(world: Modelled) -> None:
    """The load rises above what a rule bears."""
    world.numbers.batch = 40.0


def newest(world: Modelled) -> FlagChange | None:
    changes = world.changes()
    return changes[-1] if changes else None


def until(world: Modelled, phase: Phase, *, changes: int = 1, within_s: float = 900) -> FlagChange:
    """Go on until that many changes were begun and the newest is in that phase."""

    def there() -> bool:
        found = world.changes()
        return len(found) == changes and found[-1].phase is phase

    world.run(within_s, until=there)
    found = world.changes()
    assert len(found) == changes, [f"{c.phase}: {c.message}" for c in found]
    assert found[-1].phase is phase, found[-1].message
    return found[-1]


def until_ended(world: Modelled, *, changes: int = 1, within_s: float = 900) -> FlagChange:
    def there() -> bool:
        found = world.changes()
        return len(found) == changes and found[-1].phase.ended

    world.run(within_s, until=there)
    found = world.changes()
    assert len(found) == changes, [f"{c.phase}: {c.message}" for c in found]
    assert found[-1].phase.ended, f"{found[-1].phase}: {found[-1].message}"
    return found[-1]


def steered(world: Modelled) -> Policy:
    assert world.policy is not None
    return world.policy


def condition(world: Modelled, kind: str) -> Condition:
    return next(c for c in world.status().conditions if c.type == kind)


def run(world: Modelled) -> set[Declared]:
    """What the replicas run."""
    return {pod.replica.declared for pod in world.model.pods}


def arm(world: Modelled, setting: str) -> list[Replica]:
    return [p.replica for p in world.model.pods if p.replica.declared.setting == setting]


# --- undone, taken away, stopped


@pytest.mark.parametrize(
    "phase", [Phase.CANARY, Phase.ANALYSING, Phase.PROMOTING, Phase.WATCHING], ids=str
)
def test_a_roll_that_an_owner_undoes_half_way_is_not_taken_for_done(
    world: Modelled, phase: Phase
) -> None:
    """An owner rebuilds the template and the roll stops after a pod or two, looking finished.

    opentelemetry-operator#1300, grafana/agent#4495, gardener#8463, nginx-gateway-fabric#5627.
    """
    if phase is Phase.CANARY:
        world.model.slow = {"off"}
    busy(world)
    until(world, phase)
    world.run(5)
    world.model.slow = set()
    world.model.take_over(START)
    told = len(world.model.spoken)
    change = until_ended(world)
    assert (change.phase, change.undo_reason) == (Phase.ABORTED, ChangeReason.CONTESTED)
    assert "somebody replaced our setting" in change.message
    assert {i.declared for i in world.model.spoken[told:]} <= {START}, "ours is not put back"
    world.run(20)
    assert run(world) == {START}
    assert not world.model.held


def test_what_is_undone_faster_than_it_can_be_seen_is_not_written_for_ever(
    world: Modelled,
) -> None:
    """opentelemetry-operator#1300: an owner that watches is faster than any look of ours."""
    world.model.undone_at_once = True
    busy(world)
    change = until_ended(world)
    assert (change.phase, change.undo_reason) == (Phase.ABORTED, ChangeReason.CONTESTED)
    assert "was written 4 times and was gone again each time" in change.message
    assert run(world) == {START}
    world.run(HOUR_S)
    assert len(world.changes()) == 3
    assert condition(world, "Held").reason == "Contested"


def test_a_pause_that_a_gitops_tool_takes_away_is_set_again(world: Modelled) -> None:
    """keda#5572, #7774, argo-cd#12967: self-heal puts back what it finds, a pause of ours too."""
    busy(world)
    until(world, Phase.ANALYSING)
    world.model.held = False
    world.run(5)
    assert world.model.held
    assert len(arm(world, "off")) < 3, "there are others left to compare with"
    assert until_ended(world).phase is Phase.SUCCEEDED


def test_a_pause_that_is_taken_away_again_and_again_ends_in_the_old_setting(
    world: Modelled,
) -> None:
    """argo-cd#12967: the roll runs away from its analysis; what was not compared does not stay."""
    busy(world)
    until(world, Phase.ANALYSING)
    for _ in range(6):
        world.model.held = False
        world.run(5)
    assert len(arm(world, "off")) == 3
    change = until_ended(world, within_s=2 * HOUR_S)
    assert (change.phase, change.undo_reason) == (Phase.ROLLED_BACK, ChangeReason.INCONCLUSIVE)
    assert "requests on the others" in change.message
    assert run(world) == {START}


def test_a_pause_that_was_lifted_while_nobody_looked_is_lifted(world: Modelled) -> None:
    """keda#5490, #5572, #7774: after a restart an unpaused object was taken for paused."""
    world.policy = replace(steered(world), paused=True)
    busy(world)
    world.run(60)
    assert condition(world, "Held").reason == "Paused"
    world.policy = replace(steered(world), paused=False)
    world.boot()
    world.run(5)
    assert condition(world, "Held").status is False
    assert until_ended(world).phase is Phase.SUCCEEDED


def test_a_lost_database_does_not_make_what_runs_a_mistake(directory: Path) -> None:
    """flagger#1577: after a rebuild nothing knew of the promotion, and it was undone."""
    before = Modelled(directory, probe=None)
    busy(before)
    promoted = until_ended(before).wanted
    (directory / "new").mkdir()
    world = Modelled(directory / "new", probe=None)
    world.model = before.model
    world.fleet = before.model  # type: ignore[assignment]
    world.boot()
    told = list(world.model.spoken)
    busy(world)
    world.run(300)
    assert world.status().active == "off"
    assert world.changes() == []
    assert (run(world), world.model.spoken) == ({promoted}, told)


# --- deaf


def test_what_happened_while_nobody_led_is_acted_on(world: Modelled) -> None:
    """Reloader#1144: events missed at a hand-over of leadership, and the restart never came."""
    world.run(30)
    busy(world)
    world.model.desired = 4
    while len(world.model.pods) < 4:
        world.model.move()
    world.clock.at += timedelta(minutes=10)
    world.boot()
    world.run(5)
    assert until_ended(world).phase is Phase.SUCCEEDED
    assert [r.declared.setting for r in arm(world, "off")] == ["off"] * 4


def test_an_edit_in_mid_flip_that_no_leader_saw_counts(world: Modelled) -> None:
    """Reloader#1144: the same, while a canary stands."""
    busy(world)
    until(world, Phase.ANALYSING)
    world.model.edit()
    world.clock.at += timedelta(minutes=10)
    world.boot()
    world.run(5)
    change = until_ended(world)
    assert (change.phase, change.undo_reason) == (Phase.ABORTED, ChangeReason.EDITED_BY_USER)


# --- flapping and lag


@dataclass(frozen=True, kw_only=True)
class Noise:
    reason: str
    rules: tuple[Rule, ...]
    most: int
    """Changes in three hours."""


EAGER = (
    Rule(name="off-when-busy", when="batch_size > 32", setting="off"),
    Rule(name="on-when-not", when="batch_size <= 32", setting="ngram"),
)
NOISE = [
    Noise(reason="the most eager rules flip no more often than the budget", rules=EAGER, most=6),
    Noise(
        reason="held for five minutes it is no reason at all",
        rules=tuple(replace(r, hold=timedelta(minutes=5)) for r in EAGER),
        most=0,
    ),
    Noise(
        reason="two thresholds: once, and not back",
        rules=(
            Rule(name="off-when-busy", when="batch_size > 32", until="batch_size < 24",
                 setting="off"),
            Rule(name="on-when-quiet", when="batch_size < 24", setting="ngram"),
        ),
        most=1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", NOISE, ids=lambda case: case.reason)
def test_noise_around_a_threshold(world: Modelled, case: Noise) -> None:
    """llm-d#1427: noise in a queue's length turned the answer round every 15 s.

    vllm#49548: thrashing around a threshold made throughput collapse.
    """
    with world.store.begin() as unit:
        unit.rules.apply(
            namespace="local",
            rule_set=RuleSet(name="hit-rate", rules=case.rules),
            owner=RuleOwner.FILE,
            author="test",
            source="test",
            at=world.clock.at,
        )
    world.policy = replace(steered(world), limits=Limits())
    drawn = random.Random(1)
    for _ in range(int(3 * HOUR_S / 15)):
        world.numbers.batch = drawn.choice([30.0, 34.0])
        world.run(15, step=15)
    changes = world.changes()
    assert len(changes) <= case.most
    assert (len(changes) > 0) == (case.most > 0), "and it is not deaf"
    starts = [c.created_at for c in changes]
    for start in starts:
        assert sum(start <= at < start + timedelta(hours=1) for at in starts) <= 2


def test_a_new_replica_is_not_judged_by_its_first_minute(directory: Path) -> None:
    """argo-rollouts#291, #1360: an analysis that begins with the roll sees pods warming up."""
    world = Modelled(directory, probe=None, warm_up=timedelta(seconds=60))
    busy(world)
    until(world, Phase.ANALYSING)
    ready = arm(world, "off")[0].ready_since
    assert ready is not None
    world.numbers.tpot["off"] = 0.2
    world.run(55)
    world.numbers.tpot["off"] = 0.02
    change = until_ended(world)
    assert change.phase is Phase.SUCCEEDED
    assert change.slices[0].start >= ready + timedelta(seconds=60)


# --- stuck


@pytest.mark.parametrize("phase", [Phase.CANARY, Phase.PROMOTING], ids=str)
def test_pods_that_never_get_ready_end_at_the_deadline(world: Modelled, phase: Phase) -> None:
    """flagger#1578, #1591: a roll stuck beyond its deadline, progressing for ever."""
    if phase is Phase.CANARY:
        world.model.slow = {"off"}
    busy(world)
    until(world, phase)
    world.model.slow = {"off"}
    change = until_ended(world)
    assert (change.phase, change.undo_reason) == (Phase.ROLLED_BACK, ChangeReason.READY_DEADLINE)
    world.run(20)
    assert run(world) == {START}


def test_others_that_break_in_mid_canary_do_not_hold_it_for_ever(world: Modelled) -> None:
    """argo-rollouts#1774: stuck when the stable version is the bad one."""
    canary = replace(steered(world).canary, give_up=timedelta(minutes=5))
    world.policy = replace(steered(world), canary=canary)
    busy(world)
    until(world, Phase.ANALYSING)
    world.model.crashing = {"ngram"}
    for place, pod in enumerate(world.model.pods):
        if pod.replica.declared.setting == "ngram":
            world.model.flap(place)
    change = until(world, Phase.ROLLING_BACK)
    assert change.undo_reason is ChangeReason.INCONCLUSIVE
    world.run(60)
    assert [r.ready for r in arm(world, "off")] == [True], "the one that serves goes last"
    assert "exited with 1" in condition(world, "TargetReady").message
    world.model.crashing = set()
    assert until_ended(world).phase is Phase.ROLLED_BACK
    assert not world.model.held


def test_none_that_is_ready_means_nothing_is_tried_and_says_so(world: Modelled) -> None:
    """argo-rollouts#1774: nothing to compare with is no reason to begin."""
    world.model.crashing = {"ngram"}
    for place in range(3):
        world.model.flap(place)
    busy(world)
    world.run(60)
    assert world.changes() == []
    ready = condition(world, "Ready")
    assert ready.status is False
    assert "exited with 1" in condition(world, "TargetReady").message


def test_a_proposal_that_nobody_decides_about_expires(directory: Path) -> None:
    """flagger#1450: WaitingPromotion for ever."""
    limits = Limits(approval_expiry=timedelta(minutes=10))
    world = Modelled(directory, probe=None, mode=Mode.APPROVE)
    world.policy = replace(steered(world), limits=limits)
    busy(world)
    world.run(650)
    first, second = world.changes()
    assert (first.phase, first.reason) == (Phase.EXPIRED, ChangeReason.EXPIRED)
    assert second.phase is Phase.PENDING, "what is still asked for is asked again"
    assert world.model.spoken == []


def test_after_an_abort_it_is_tried_again_without_a_word(world: Modelled) -> None:
    """argo-rollouts#841: an aborted change had to be retried by hand."""
    busy(world)
    until(world, Phase.ANALYSING)
    world.model.edit()
    assert until_ended(world).phase is Phase.ABORTED
    change = until_ended(world, changes=2)
    assert change.phase is Phase.SUCCEEDED


def test_an_analysis_without_traffic_is_not_repeated_for_ever(world: Modelled) -> None:
    """argo-rollouts#3015, #3850, #261: inconclusive, and again, and again."""
    canary = replace(steered(world).canary, give_up=timedelta(minutes=5))
    limits = Limits(flips_per_hour=50, flips_per_day=50)
    world.policy = replace(steered(world), canary=canary, limits=limits)
    world.numbers.idle = {"off"}
    busy(world)
    world.run(6 * HOUR_S, step=30)
    changes = world.changes()
    assert {c.undo_reason for c in changes if c.phase.ended} == {ChangeReason.INCONCLUSIVE}
    waits = [
        b.created_at - a.ended_at for a, b in itertools.pairwise(changes) if a.ended_at is not None
    ]
    assert 3 <= len(changes) <= 5
    assert all(b >= 1.9 * a for a, b in itertools.pairwise(waits)), "each time later"
    held = condition(world, "Held")
    assert (held.status, held.reason) == (True, "RecentlyFailed")
    assert "(Inconclusive)" in held.message


# --- told


def test_a_failure_outside_the_analysis_is_told_once(directory: Path) -> None:
    """flagger#1663: nothing was sent for failures outside the analysis.

    argo-rollouts#4764: an abort was sent twice, for two events said the same.
    """
    world = Modelled(directory, probe=None, alerts=(AlertRoute(channel="all"),))
    busy(world)
    until(world, Phase.PROMOTING)
    world.model.crashing = {"off"}
    change = until_ended(world)
    assert (change.phase, change.undo_reason) == (Phase.ROLLED_BACK, ChangeReason.REPLICA_FAILED)
    world.run(20)
    with world.store.read() as unit:
        due = unit.outbox.due(now=world.clock.now(), limit=50)
    assert [d.event for d in due] == ["Started", "RolledBack"]
