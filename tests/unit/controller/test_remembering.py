"""What a comparison leaves behind, and what a later tick makes of it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.controller.status_object import status_object
from specpilot.domain.changes import ChangeKind, FlagChange, Phase
from specpilot.domain.economics import Measurement
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.policy import AlertRoute, CostPoint, Mode, Probe
from specpilot.domain.readings import Reading, UnknownReason
from specpilot.domain.recall import AcceptanceHour
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import Declared
from specpilot.store import AcceptanceSample, RuleOwner
from tests.unit.controller.world import REF, World
from tests.unit.domain.builders import T0

BREAK_EVEN = RuleSet(
    name="hit-rate",
    rules=(
        Rule(
            name="off-when-it-costs-more-than-it-brings",
            when="mean_acceptance_length < cost_ratio * 1.05",
            setting="off",
            hold=timedelta(seconds=15),
        ),
    ),
)
PROBE = Probe(every=timedelta(seconds=60), longest=timedelta(hours=1))


def world_that_breaks_even(directory: Path, *, off: bool = True, **fields: object) -> World:
    """Speculation is off; a step with it costs twice one without and brings 2.5 tokens."""
    world = World(directory, **fields)
    use(world, BREAK_EVEN)
    if off:
        declared = Declared(setting="off", config="", change_id="")
        world.fleet.declared = declared
        world.fleet.replicas = {
            name: replace(r, declared=declared) for name, r in world.fleet.replicas.items()
        }
    world.telemetry.tpot = {"off": 0.020, "ngram": 0.020 * 2.0 / 2.5}
    return world


def use(world: World, rules: RuleSet) -> None:
    with world.store.begin() as unit:
        unit.rules.apply(
            namespace="local",
            rule_set=rules,
            owner=RuleOwner.FILE,
            author="test",
            source="test",
            at=T0,
        )


def measurements(world: World) -> list[Measurement]:
    with world.store.read() as unit:
        return unit.measurements.of([str(REF)]).get(str(REF), [])


def reading(world: World, signal: str) -> Reading:
    return world.status().readings[signal]


def changes_ended(world: World, count: int) -> bool:
    changes = world.changes()
    return len(changes) >= count and all(c.phase.ended for c in changes)


def kept_probe(world: World) -> FlagChange:
    world.run(900, until=lambda: changes_ended(world, 1))
    (probe,) = world.changes()
    assert (probe.kind, probe.phase) == (ChangeKind.PROBE, Phase.SUCCEEDED)
    return probe


def test_a_probe_leaves_a_cost_and_a_later_tick_turns_speculation_off_on_it(
    tmp_path: Path,
) -> None:
    world = world_that_breaks_even(tmp_path, probe=PROBE)
    world.run(20)
    unmeasured = reading(world, "cost_ratio")
    assert unmeasured.reason is UnknownReason.NO_DATA
    assert "never measured for ngram at a batch near 10; let a probe run" in unmeasured.message
    probe = kept_probe(world)
    (found,) = measurements(world)
    assert found.change_id == probe.id
    assert (found.setting, found.engine) == ("ngram", "0.32.0")
    assert (found.ratio, found.batch) == (pytest.approx(2.0), pytest.approx(10.0))
    assert found.speedup == pytest.approx(1.25)

    world.run(60)
    assert reading(world, "cost_ratio").value == pytest.approx(2.0)
    assert len(world.changes()) == 1, "2.5 tokens a step pay for a step of 2.0"

    world.telemetry.length = 2.05
    world.telemetry.tpot["ngram"] = 0.020 * 2.0 / 2.05
    world.run(900, until=lambda: changes_ended(world, 2))
    _, flip = world.changes()
    assert (flip.kind, flip.phase) == (ChangeKind.RULE, Phase.SUCCEEDED)
    assert flip.rule.rule == "off-when-it-costs-more-than-it-brings"
    behind = {e.signal: e.value for e in flip.evidence}
    assert behind["mean_acceptance_length"] == pytest.approx(2.05)
    assert behind["cost_ratio"] == pytest.approx(2.0)
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"off"}
    again = measurements(world)[-1]
    assert again.change_id == flip.id, "switching off measures as well"
    assert again.ratio == pytest.approx(2.0, rel=0.01)


def test_the_audit_of_the_step_has_the_number_and_what_it_rests_on(tmp_path: Path) -> None:
    world = world_that_breaks_even(tmp_path, probe=PROBE)
    probe = kept_probe(world)
    with world.store.read() as unit:
        records = unit.audit.records(change_id=probe.id, limit=50)
    [promoting] = [r.draft for r in records if r.draft.action == "Promoting"]
    [cost] = [e for e in promoting.evidence if e["signal"] == "cost_ratio"]
    assert cost["value"] == pytest.approx(2.0)
    assert cost["count"] == pytest.approx(
        sum(s.canary_requests + s.control_requests for s in probe.slices)
    )


def test_a_probe_that_lost_measures_as_well(tmp_path: Path) -> None:
    world = world_that_breaks_even(tmp_path, probe=PROBE)
    world.telemetry.length, world.telemetry.tpot["ngram"] = 1.5, 0.020 * 2.0 / 1.5
    world.run(600, until=lambda: changes_ended(world, 1))
    assert world.changes()[0].phase is Phase.ROLLED_BACK
    assert [m.ratio for m in measurements(world)] == [pytest.approx(2.0)]
    world.run(20)
    assert reading(world, "cost_ratio").value == pytest.approx(2.0), "of what would be tried"


def test_a_comparison_that_says_nothing_leaves_no_measurement_but_its_reason(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.telemetry.batch = 40
    world.fleet.crashing = {"off"}
    world.run(300, until=lambda: changes_ended(world, 1))
    assert world.changes()[0].phase is Phase.ROLLED_BACK
    assert measurements(world) == []


@pytest.mark.parametrize("dies_at", range(1, 36))
def test_killed_at_any_effect_a_probe_is_measured_exactly_once(
    tmp_path: Path, dies_at: int
) -> None:
    world = world_that_breaks_even(tmp_path, probe=PROBE)
    world.mortality.dies_at = dies_at
    probe = kept_probe(world)
    assert world.mortality.effects >= dies_at
    assert [m.change_id for m in measurements(world)] == [probe.id]
    assert measurements(world)[0].ratio == pytest.approx(2.0)
    phases = world.phases(probe.id)
    assert phases.count("Promoting") == 1


def test_what_was_measured_survives_a_new_process(tmp_path: Path) -> None:
    world = world_that_breaks_even(tmp_path, probe=PROBE)
    kept_probe(world)
    world.boot()
    world.run(10)
    assert reading(world, "cost_ratio").value == pytest.approx(2.0)


def test_another_engine_version_knows_nothing_of_the_old_one(tmp_path: Path) -> None:
    world = world_that_breaks_even(tmp_path, probe=PROBE)
    kept_probe(world)
    observe = world.fleet.observe
    world.fleet.observe = lambda ref: replace(  # type: ignore[method-assign]
        observe(ref), engine=EngineRun(version="0.33.0")
    )
    world.run(10)
    found = reading(world, "cost_ratio")
    assert found.value is None
    assert "never measured for ngram on 0.33.0, only on 0.32.0" in found.message


def test_a_cost_stated_by_the_policy_is_used_until_one_is_measured(tmp_path: Path) -> None:
    world = world_that_breaks_even(
        tmp_path, off=False, cost_ratios={"ngram": (CostPoint(ratio=3.0),)}
    )
    world.run(15)
    assert reading(world, "cost_ratio").value == 3.0
    world.run(900, until=lambda: changes_ended(world, 1))
    (change,) = world.changes()
    assert change.rule.rule == "off-when-it-costs-more-than-it-brings"
    assert measurements(world)[0].ratio == pytest.approx(2.0)
    world.run(20)
    assert reading(world, "cost_ratio").value == pytest.approx(2.0)


def test_what_was_never_measured_is_not_lost(tmp_path: Path) -> None:
    route = AlertRoute(channel="ops")
    world = world_that_breaks_even(tmp_path, off=False, mode=Mode.ADVISORY, alerts=(route,))
    world.run(300)
    with world.store.read() as unit:
        assert unit.outbox.due(now=world.clock.now() + timedelta(days=1), limit=10) == []
    assert "the next change from ngram to off, or back, measures it" in (
        reading(world, "cost_ratio").message
    )
    world.telemetry.silent = True
    world.run(300)
    with world.store.read() as unit:
        due = unit.outbox.due(now=world.clock.now() + timedelta(days=1), limit=10)
    assert [item.event for item in due] == ["SignalsLost"]


def test_the_status_says_what_would_make_it_known(tmp_path: Path) -> None:
    world = world_that_breaks_even(tmp_path)
    world.run(10)
    shown = status_object(world.status(), previous={}, now=world.clock.now())
    (cost,) = [r for r in shown["readings"] if r["signal"] == "cost_ratio"]
    assert cost["reason"] == "NoData"
    assert "state settings[ngram].costRatio" in cost["message"]


def acceptance(world: World) -> list[AcceptanceHour]:
    with world.store.read() as unit:
        found = unit.acceptance.of([str(REF)], since=T0 - timedelta(days=9))
    return [hour for hours in found.values() for hour in hours]


def test_acceptance_is_noted_once_a_minute_and_makes_a_baseline_in_six_hours(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.telemetry.length = 2.4
    world.run(600)
    (first,) = acceptance(world)
    assert first.samples == pytest.approx(10, abs=1)
    assert reading(world, "acceptance_baseline").reason is UnknownReason.TOO_FEW_SAMPLES
    world.run(6 * 3600, step=60)
    assert reading(world, "acceptance_baseline").value == pytest.approx(2.4)
    world.telemetry.length = 2.0
    world.boot()
    world.run(600)
    assert reading(world, "acceptance_baseline").value == pytest.approx(2.4), (
        "a new process has it, and the hour that runs does not count"
    )
    assert sum(h.samples for h in acceptance(world)) == pytest.approx(380, abs=10)


def test_hours_are_bounded(tmp_path: Path) -> None:
    world = World(tmp_path)
    old = [T0 - timedelta(hours=n) for n in range(100)]
    with world.store.begin() as unit:
        for at in old:
            unit.acceptance.add([AcceptanceSample(target=str(REF), config="old", at=at, value=2.0)])
    world.run(120)
    kept = acceptance(world)
    assert len(kept) == 49 + 1, "48 hours and the one that runs, and the first of this setting"
    assert min(h.hour for h in kept) == T0 - timedelta(hours=48)


def test_nothing_is_noted_while_off(tmp_path: Path) -> None:
    world = world_that_breaks_even(tmp_path)
    world.run(180)
    assert acceptance(world) == []
