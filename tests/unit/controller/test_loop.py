"""The loop on a real database with the world in memory: flips, holds, crashes, disputes."""

import itertools
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.domain.changes import ChangeKind, ChangeReason, Phase
from specpilot.domain.policy import AlertRoute, Event, Mode, PolicyRef, Probe
from specpilot.domain.rules import AtLeast, Rule, RuleSet
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Answer, Decision
from specpilot.store import RuleOwner
from tests.unit.controller.world import World
from tests.unit.domain.builders import T0

FLIP = ["Canary", "Analysing", "Promoting", "Watching", "Succeeded"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ended(world: World) -> bool:
    changes = world.changes()
    return bool(changes) and all(c.phase.ended for c in changes)


def test_a_busy_target_is_switched_off_one_replica_first(world: World) -> None:
    world.telemetry.batch = 40
    world.run(10)
    assert world.status().desired == "off"
    assert "batch_size 40 > 32" in world.status().verdict
    world.run(400, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.kind) == (Phase.SUCCEEDED, ChangeKind.RULE)
    assert world.phases(change.id) == FLIP
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"off"}
    assert world.fleet.least_ready == 2, "never more than one replica out of service"
    assert change.evidence[0].signal == "batch_size"
    assert (change.evidence[0].value, change.evidence[0].threshold) == (40, 32)
    with world.store.read() as unit:
        assert unit.audit.verify().ok


def test_a_setting_that_crashes_is_rolled_back_and_nobody_else_notices(world: World) -> None:
    world.telemetry.batch = 40
    world.fleet.crashing = {"off"}
    world.run(100, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ROLLED_BACK, ChangeReason.REPLICA_FAILED)
    untouched = [r for r in world.fleet.replicas.values() if r.instance.endswith(".0")]
    assert len(untouched) == 2
    world.run(25)
    assert len(world.changes()) == 1, "and it is not tried again at once"


def test_a_canary_that_is_slower_breaks_the_guardrail(world: World) -> None:
    world.telemetry.batch = 40
    world.telemetry.tpot["off"] = 0.03
    world.run(100, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ROLLED_BACK, ChangeReason.GUARDRAIL_BROKEN)
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"ngram"}


@pytest.mark.parametrize("dies_at", range(1, 31))
def test_killed_at_any_effect_it_ends_exactly_once(tmp_path: Path, dies_at: int) -> None:
    """kill -9 before and after every write to the database and every word to the fleet.

    Reloader#1144: what a process missed is done by the next one. argo-rollouts#1667, #2556, #4764:
    and told once, however many processes there were.
    """
    world = World(tmp_path, alerts=(AlertRoute(channel="all"),))
    world.telemetry.batch = 40
    world.mortality.dies_at = dies_at
    world.run(600, until=lambda: ended(world))
    world.run(20)
    assert world.mortality.effects > dies_at, "the walk is long enough to have died there"
    (change,) = world.changes()
    assert change.phase is Phase.SUCCEEDED
    assert world.phases(change.id) == FLIP, "one audit record a step"
    assert world.registry.shown[change.id] == "Succeeded", "and it is shown as it ended"
    with world.store.read() as unit:
        assert unit.memory.get("u1").last_flip == change.ended_at
        due = unit.outbox.due(now=world.clock.now(), limit=50)
    assert [d.event for d in due] == ["Started", "Flipped"]
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"off"}
    with world.store.read() as unit:
        assert unit.audit.verify().ok


@pytest.mark.parametrize("dies_at", range(1, 21))
def test_killed_at_any_effect_of_a_rollback_it_goes_back_exactly_once(
    tmp_path: Path, dies_at: int
) -> None:
    world = World(tmp_path)
    world.telemetry.batch = 40
    world.fleet.crashing = {"off"}
    world.mortality.dies_at = dies_at
    world.run(300, until=lambda: ended(world))
    change = world.changes()[0]
    assert change.phase is Phase.ROLLED_BACK
    assert world.phases(change.id) == ["Canary", "RollingBack", "RolledBack"]
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"ngram"}


def test_numbers_lost_during_the_canary_hold_and_then_go_on(world: World) -> None:
    """flagger#883, #1754: no values, and it was rolled back. argo-rollouts#1905: resume."""
    world.telemetry.batch = 40
    world.run(20)
    assert world.changes()[0].phase is Phase.ANALYSING
    world.telemetry.silent = True
    world.run(300)
    (change,) = world.changes()
    assert change.phase is Phase.ANALYSING, "nothing is known: nothing is decided"
    assert world.status().phase == "Analysing"
    world.telemetry.silent = False
    world.run(300)
    assert world.changes()[0].phase is Phase.SUCCEEDED


def test_a_fleet_that_does_not_answer_is_waited_for(world: World) -> None:
    world.telemetry.batch = 40
    world.run(20)
    world.fleet.reachable = False
    world.run(3600)
    assert world.changes()[0].phase is Phase.ANALYSING
    ready = next(c for c in world.status().conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == (False, "Unreachable")


def test_a_users_own_edit_ends_ours_and_stays(world: World) -> None:
    world.telemetry.batch = 40
    world.run(20)
    world.fleet.template = "t2"
    world.run(20)
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ABORTED, ChangeReason.EDITED_BY_USER)
    assert world.fleet.template == "t2"
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"ngram"}


def test_somebody_who_puts_another_setting_there_is_not_fought(world: World) -> None:
    world.telemetry.batch = 40
    world.run(20)
    theirs = Declared(setting="unrecognised", config='{"method":"suffix"}', change_id="")
    assert world.fleet.intent is not None
    world.fleet.declared = theirs
    world.fleet.intent = replace(world.fleet.intent, declared=theirs)
    world.run(30)
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ABORTED, ChangeReason.CONTESTED)
    assert world.fleet.declared == theirs


def test_a_policy_deleted_in_mid_flip_leaves_a_known_setting(world: World) -> None:
    world.telemetry.batch = 40
    world.run(20)
    world.policy = None
    world.run(60)
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ABORTED, ChangeReason.POLICY_DELETED)
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"ngram"}


def test_a_policy_that_became_invalid_in_mid_flip_holds_it(world: World) -> None:
    world.telemetry.batch = 40
    world.run(20)
    world.registry.invalid = True
    world.run(60)
    assert world.changes()[0].phase is Phase.ANALYSING
    world.registry.invalid = False
    world.run(300, until=lambda: ended(world))
    assert world.changes()[0].phase is Phase.SUCCEEDED


def test_a_deleted_rule_set_decides_nothing_any_more(world: World) -> None:
    with world.store.begin() as unit:
        unit.rules.release(namespace="local", name="hit-rate", owner=RuleOwner.FILE)
    world.telemetry.batch = 40
    world.run(60)
    assert world.changes() == []
    ready = next(c for c in world.status().conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == (False, "RulesInvalid")
    assert "was deleted" in ready.message


def test_the_later_of_two_policies_on_one_target_is_marked(world: World) -> None:
    assert world.policy is not None
    later = PolicyRef(namespace="local", name="later", uid="u2")
    world.registry.extra = [replace(world.policy, ref=later)]
    world.telemetry.batch = 40
    world.run(200)
    ready = next(c for c in world.registry.statuses["later"].conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == (False, "DuplicateTarget")
    assert {c.policy.name for c in world.changes()} == {"chat"}


def test_advisory_records_once_what_it_would_do(tmp_path: Path) -> None:
    world = World(tmp_path, mode=Mode.ADVISORY)
    world.telemetry.batch = 40
    world.run(300)
    (change,) = world.changes()
    assert change.phase is Phase.ADVISED
    assert world.fleet.intent is None
    world.telemetry.batch = 10
    world.run(20)
    world.telemetry.batch = 40
    world.run(20)
    assert len(world.changes()) == 2, "asked for again after it had gone: a record of its own"


def test_approve_waits_and_an_approval_starts_it(tmp_path: Path) -> None:
    world = World(tmp_path, mode=Mode.APPROVE)
    world.telemetry.batch = 40
    world.run(60)
    (change,) = world.changes()
    assert (change.phase, world.fleet.intent) == (Phase.PENDING, None)
    assert world.registry.waiting[change.id] == "waiting for approval"
    world.registry.decisions[change.id] = Decision(answer=Answer.APPROVE, by="ann")
    world.run(400, until=lambda: ended(world))
    (change,) = world.changes()
    assert world.phases(change.id) == ["Pending", *FLIP]
    with world.store.read() as unit:
        actors = [r.draft.actor for r in unit.audit.records(change_id=change.id)]
    assert actors[:2] == ["rule:hit-rate@1/off-when-busy", "ann"]


def test_a_proposal_that_waits_is_withdrawn_when_the_rules_turn(tmp_path: Path) -> None:
    world = World(tmp_path, mode=Mode.APPROVE)
    world.telemetry.batch = 40
    world.run(20)
    world.telemetry.batch = 1
    world.run(20)
    first = world.changes()[0]
    assert (first.phase, first.reason) == (Phase.ABORTED, ChangeReason.SUPERSEDED)


def test_rules_see_the_target_and_the_time(world: World) -> None:
    """At noon in UTC it is 13 o'clock in Berlin, in winter."""
    rule = Rule(
        name="a",
        when="target.name == 'chat' && target.replicas == 3 && target.release == 32 && "
        "target.labels.tier == 'gold' && time.hour == 13",
        setting="off",
    )
    with world.store.begin() as unit:
        unit.rules.apply(
            namespace="local",
            rule_set=RuleSet(name="hit-rate", rules=(rule,), time_zone="Europe/Berlin"),
            owner=RuleOwner.FILE,
            author="test",
            source="test",
            at=T0,
        )
    world.run(5)
    assert world.status().desired == "off", world.status().verdict


WINDOWS = Rule(
    name="often-busy",
    when="batch_size > 32",
    until="batch_size < 24",
    setting="off",
    at_least=AtLeast(windows=3, of=4, each=timedelta(seconds=30)),
)


def test_a_waiting_rule_goes_on_waiting_under_another_leader(world: World) -> None:
    with world.store.begin() as unit:
        unit.rules.apply(
            namespace="local",
            rule_set=RuleSet(name="hit-rate", rules=(WINDOWS,)),
            owner=RuleOwner.FILE,
            author="test",
            source="test",
            at=T0,
        )
    world.telemetry.batch = 40
    while world.clock.at < T0 + timedelta(seconds=80):
        world.run(10)
        world.telemetry.batch = 28  # between the thresholds: only memory keeps it true
        world.boot()
    assert "2 of 4 windows, 3 needed; stays true until" in world.status().verdict
    assert world.changes() == []
    world.run(15)
    (change,) = world.changes()
    assert "3 of 4 windows" in change.message


EDITED = RuleSet(
    name="hit-rate",
    rules=(Rule(name="on-unless-very-busy", when="batch_size < 100", setting="ngram"),),
)
"""Asks for the opposite of what the first version asks for at a batch of 40."""


def edit_the_rules(world: World) -> None:
    with world.store.begin() as unit:
        unit.rules.apply(
            namespace="local",
            rule_set=EDITED,
            owner=RuleOwner.FILE,
            author="test",
            source="test",
            at=world.clock.at,
        )


@pytest.mark.parametrize("kind", ["rule", "probe"])
def test_rules_edited_in_mid_flip_wait_until_it_has_ended(tmp_path: Path, kind: str) -> None:
    probe = Probe(every=timedelta(seconds=40), margin=0.05) if kind == "probe" else None
    world = World(tmp_path, probe=probe)
    world.telemetry.batch = 40
    world.run(400, until=lambda: ended(world))
    if kind == "probe":
        world.telemetry.batch = 10  # no rule asks for anything: time for a probe
        world.run(400, until=lambda: len(world.changes()) == 2)
        first = world.changes()[1]
        assert first.kind is ChangeKind.PROBE
    else:
        world.telemetry.batch = 1
        world.run(100, until=lambda: len(world.changes()) == 2)
        first = world.changes()[1]
    edit_the_rules(world)
    world.boot()  # a new leader knows no more than what is written
    seen: set[tuple[int | None, bool]] = set()

    def over() -> bool:
        flip = world.changes()[1]
        if not flip.phase.ended:
            seen.add((world.status().rule_version, flip.phase.touches_replicas))
        return flip.phase.ended

    world.run(400, until=over)
    assert seen == {(1, True)}, "the version that the flip began with, and no other"
    assert world.changes()[1].id == first.id
    assert world.changes()[1].rule == first.rule
    world.run(10)
    assert world.status().rule_version == 2, "and then the newest one"


def test_a_proposal_that_waits_is_judged_by_the_newest_rules(tmp_path: Path) -> None:
    world = World(tmp_path, mode=Mode.APPROVE)
    world.telemetry.batch = 40
    world.run(20)
    edit_the_rules(world)
    world.run(20)
    first = world.changes()[0]
    assert (first.phase, first.reason) == (Phase.ABORTED, ChangeReason.SUPERSEDED)


def test_off_is_not_for_ever(tmp_path: Path) -> None:
    """A probe that loses is undone and backs off; one that wins is kept."""
    probe = Probe(every=timedelta(seconds=120), back_off=2, longest=timedelta(seconds=480))
    world = World(tmp_path, probe=probe)
    world.telemetry.batch = 40
    world.run(300, until=lambda: ended(world))
    world.telemetry.batch = 10
    world.telemetry.tpot["ngram"] = 0.03
    world.run(1500)
    probes = [c for c in world.changes() if c.kind is ChangeKind.PROBE and c.phase.ended]
    assert len(probes) >= 3
    assert {c.phase for c in probes} == {Phase.ROLLED_BACK}
    waits = [
        (b.created_at - (a.ended_at or a.created_at)).total_seconds()
        for a, b in itertools.pairwise(probes)
    ]
    assert waits == sorted(waits), "each wait at least as long as the one before"
    assert waits[0] == pytest.approx(240, abs=11)
    world.telemetry.tpot["ngram"] = 0.012
    world.run(800)
    assert world.changes()[-1].phase is Phase.SUCCEEDED
    assert {r.declared.setting for r in world.fleet.replicas.values()} == {"ngram"}


def test_no_probe_against_a_guard_that_can_be_seen_to_hold(tmp_path: Path) -> None:
    world = World(tmp_path, probe=Probe(every=timedelta(seconds=60)))
    world.telemetry.batch = 40
    world.run(1200)
    assert [c.kind for c in world.changes()] == [ChangeKind.RULE]


def test_alerts_are_in_the_outbox_once_for_each_channel_that_asked(tmp_path: Path) -> None:
    """argo-rollouts#4764: an abort was told twice."""
    routes = (
        AlertRoute(channel="all"),
        AlertRoute(channel="oncall", events=frozenset({Event.FLIPPED, Event.ROLLED_BACK})),
    )
    world = World(tmp_path, alerts=routes)
    world.telemetry.batch = 40
    world.run(400, until=lambda: ended(world))
    with world.store.read() as unit:
        due = unit.outbox.due(now=world.clock.now(), limit=50)
    assert sorted((d.channel, d.event) for d in due) == [
        ("local/all", "Flipped"),
        ("local/all", "Started"),
        ("local/oncall", "Flipped"),
    ]


def test_silence_of_all_signals_is_an_alert_of_its_own(tmp_path: Path) -> None:
    """keda#965: keep the last state while Prometheus is away, and say so."""
    world = World(tmp_path, alerts=(AlertRoute(channel="all"),))
    world.telemetry.silent = True
    world.run(600)
    assert world.changes() == []
    assert world.status().phase == "Blind"
    with world.store.read() as unit:
        events = [d.event for d in unit.outbox.due(now=world.clock.now(), limit=50)]
    assert events == ["SignalsLost"]
