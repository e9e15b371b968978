"""What stops a flip, undoes it and keeps it from coming back, on the real loop and database."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.domain.changes import ChangeReason, FlagChange, Phase
from specpilot.domain.engine_run import EngineRun, Generation, ModelRunner
from specpilot.domain.policy import AlertRoute, Event, Guardrail, Limits, Mode, Policy
from specpilot.domain.readings import Readings
from specpilot.domain.settings import OFF, Declared
from specpilot.domain.situation import Answer, Decision
from specpilot.engines import render_for
from tests.unit.controller.model import START, Modelled, Numbers
from tests.unit.domain.builders import NGRAM

THEIRS = Declared(setting="unrecognised", config='{"method":"suffix"}', change_id="")


@pytest.fixture
def world(tmp_path: Path) -> Modelled:
    return Modelled(tmp_path, probe=None)


def ended(world: Modelled) -> bool:
    changes = world.changes()
    return bool(changes) and changes[-1].phase.ended


def steered(world: Modelled) -> Policy:
    assert world.policy is not None
    return world.policy


def test_a_setting_that_refuses_requests_is_undone(world: Modelled) -> None:
    """min_p and logit_bias turn 400 when speculation goes on: the guardrail nobody asked for."""
    world.numbers.batch = 40.0
    world.run(400, until=lambda: ended(world))
    world.numbers.batch = 1.0
    world.numbers.refuses["ngram"] = 0.2
    world.run(400, until=lambda: len(world.changes()) == 2 and ended(world))
    change = world.changes()[-1]
    assert (change.phase, change.reason) == (Phase.ROLLED_BACK, ChangeReason.GUARDRAIL_BROKEN)
    assert "error_rate canary-control 0.200" in change.message
    assert {pod.replica.declared.setting for pod in world.model.pods} == {"off"}


def test_a_batch_limit_that_the_engine_does_not_know_is_kept_to_all_the_same(
    tmp_path: Path,
) -> None:
    """vLLM 0.17 crashes on the key and has no schedule yet: the intent is a rule nobody wrote."""
    limited = replace(NGRAM, disable_above_batch_size=10)
    world = Modelled(tmp_path, probe=None, settings={"off": OFF, "ngram": limited})
    world.model.run = EngineRun(version="0.17.0")
    world.numbers.batch = 15.0  # the user's own rules say nothing of it
    world.run(150)
    assert not world.changes(), "three windows of a minute have not passed"
    world.run(400, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.wanted.setting) == (Phase.SUCCEEDED, "off")
    assert change.rule.rule == "disableAboveBatchSize:ngram"
    assert "batch_size 15" in change.message or "15" in str(change.evidence)
    world.run(300)
    assert len(world.changes()) == 1
    world.numbers.batch = 1.0
    world.run(400, until=lambda: len(world.changes()) == 2 and ended(world))
    assert world.changes()[-1].wanted.setting == "ngram"


@pytest.mark.parametrize(
    ("run", "kept_by", "reason"),
    [
        (EngineRun(version="0.24.0", runner=ModelRunner.DEFAULT, data_parallel=1), "engine",
         "a schedule is followed"),
        (EngineRun(version="0.24.0", runner=ModelRunner.DEFAULT, data_parallel=2), "rule",
         "with data parallelism it may hang"),
        (EngineRun(version="0.24.0", runner=ModelRunner.DEFAULT), "rule",
         "whether there is data parallelism is not known"),
        (EngineRun(version="0.9.1", generation=Generation.V0), "engine", "V0 reads the key"),
        (EngineRun(version="0.9.1", generation=Generation.V1), "rule", "V1 does not"),
    ],
)  # fmt: skip
def test_who_keeps_a_batch_limit_depends_on_how_the_engine_is_run(
    run: EngineRun, kept_by: str, reason: str, tmp_path: Path
) -> None:
    limited = replace(NGRAM, disable_above_batch_size=10)
    world = Modelled(tmp_path, probe=None, settings={"off": OFF, "ngram": limited})
    world.model.run = run
    told = render_for(limited, run).config
    start = Declared(setting="ngram", config=told, change_id="")
    world.model.declared = start
    for pod in world.model.pods:
        pod.replica = replace(pod.replica, declared=start)
    world.numbers.batch = 15.0  # the user's own rules say nothing of it
    world.run(400, until=lambda: ended(world))
    rules = [change.rule.rule for change in world.changes()]
    assert rules == (["disableAboveBatchSize:ngram"] if kept_by == "rule" else []), reason
    assert world.status().active == ("off" if kept_by == "rule" else "ngram")


def test_a_canary_that_flaps_is_undone_though_its_numbers_are_fine(world: Modelled) -> None:
    world.numbers.batch = 40.0
    world.run(
        60, until=lambda: bool(world.changes()) and world.changes()[0].phase.name == "ANALYSING"
    )
    for _ in range(2):
        world.run(5)
        place = next(
            i for i, p in enumerate(world.model.pods) if p.replica.declared.setting == "off"
        )
        world.model.flap(place)
        world.reconciler.run()
        world.run(5)
    world.run(60, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ROLLED_BACK, ChangeReason.REPLICA_FLAPS)


def test_a_bound_that_breaks_after_the_roll_is_undone_within_the_watch(tmp_path: Path) -> None:
    rails = (Guardrail(signal="tpot_mean", max_value=0.03),)
    world = Modelled(tmp_path, probe=None, guardrails=rails, watch=timedelta(minutes=10))
    world.numbers.batch = 40.0
    world.run(
        400, until=lambda: bool(world.changes()) and world.changes()[0].phase is Phase.WATCHING
    )
    world.run(120)
    assert world.changes()[0].phase is Phase.WATCHING, "and not yet over"
    world.numbers.tpot["off"] = 0.05
    world.run(300, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ROLLED_BACK, ChangeReason.GUARDRAIL_BROKEN)
    assert {pod.replica.declared for pod in world.model.pods} == {START}, "to the letter"


def test_what_failed_is_tried_again_when_the_engine_has_changed(world: Modelled) -> None:
    """argo-rollouts#841: what was aborted had to be retried by hand."""
    world.numbers.batch = 40.0
    world.model.crashing = {"off"}
    world.run(200, until=lambda: ended(world))
    world.run(40)
    held = next(c for c in world.status().conditions if c.type == "Held")
    assert (held.status, held.reason) == (True, "RecentlyFailed")
    assert "on 0.32.0 (ReplicaFailed)" in held.message
    assert len(world.changes()) == 1
    world.model.crashing = set()
    world.model.run = EngineRun(version="0.33.0")
    world.run(400, until=lambda: len(world.changes()) == 2 and ended(world))
    assert world.changes()[-1].phase is Phase.SUCCEEDED


def test_a_value_that_is_undone_three_times_is_left_alone_until_the_policy_is_edited(
    tmp_path: Path,
) -> None:
    """Flux and Argo CD undo foreign annotations (flux2 #2526, argo-cd #28769): no endless rolls.

    argo-cd#12967, flagger#1504: self-heal reverts what was promoted.
    """
    world = Modelled(tmp_path, probe=None, alerts=(AlertRoute(channel="all"),))
    world.numbers.batch = 40.0
    for times in range(1, 4):
        world.run(400, until=lambda: len(world.changes()) == times and ended(world))  # noqa: B023
        assert world.changes()[-1].phase is Phase.SUCCEEDED
        world.model.take_over(START)
        world.run(20)
    changes = len(world.changes())
    world.run(1200)
    assert len(world.changes()) == changes == 3
    held = next(c for c in world.status().conditions if c.type == "Held")
    assert (held.status, held.reason) == (True, "Contested")
    assert "edit the policy" in held.message
    with world.store.read() as unit:
        events = [d.event for d in unit.outbox.due(now=world.clock.now(), limit=100)]
    assert events.count(str(Event.CONTESTED)) == 1, "and once is enough"
    world.policy = replace(steered(world), generation=2)
    world.run(400, until=lambda: len(world.changes()) == 4 and ended(world))
    assert world.changes()[-1].phase is Phase.SUCCEEDED


def test_what_is_only_proposed_is_recognised_when_git_applies_it(tmp_path: Path) -> None:
    """flagger #1577, argo-cd #12967: who changes through Git wants the patch, not the change."""
    world = Modelled(tmp_path, probe=None, mode=Mode.PROPOSE)
    world.numbers.batch = 40.0
    world.run(60)
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.PENDING, ChangeReason.PROPOSED)
    assert "speculative config none (off)" in world.registry.waiting[change.id]
    assert world.model.spoken == [], "nothing was written"
    world.model.take_over(replace(change.wanted, change_id=""))
    world.run(60, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.SUCCEEDED, ChangeReason.APPLIED_BY_OWNER)
    assert world.phases(change.id) == ["Pending", "Succeeded"]
    assert world.model.spoken == []
    world.run(60)
    assert len(world.changes()) == 1
    assert world.status().active == "off"


def test_an_approval_is_one_of_what_was_shown(tmp_path: Path) -> None:
    """The setting of the same name is edited while a person thinks: the proposal starts afresh."""
    world = Modelled(tmp_path, probe=None)
    world.numbers.batch = 40.0
    world.run(400, until=lambda: ended(world))
    world.policy = replace(steered(world), mode=Mode.APPROVE)
    world.numbers.batch = 1.0
    world.run(60)
    first = world.changes()[-1]
    deeper = replace(steered(world).settings["ngram"], num_speculative_tokens=7)
    world.policy = replace(steered(world), settings={**steered(world).settings, "ngram": deeper})
    world.run(60)
    old, new = world.changes()[-2:]
    assert (old.id, old.phase, old.reason) == (first.id, Phase.ABORTED, ChangeReason.SUPERSEDED)
    assert (new.phase, '"num_speculative_tokens":7' in new.wanted.config) == (Phase.PENDING, True)


def waiting_for_ann(directory: Path, **limits: timedelta) -> tuple[Modelled, FlagChange]:
    """A proposal to turn off, approved when Prometheus has just gone silent."""
    fields = {"limits": Limits(cooldown=timedelta(seconds=30), **limits)} if limits else {}
    world = Modelled(directory, probe=None)
    world.policy = replace(steered(world), mode=Mode.APPROVE, **fields)
    world.numbers.batch = 40.0
    world.run(30)
    (change,) = world.changes()
    assert change.phase is Phase.PENDING
    world.numbers.numbers = Numbers.SILENT
    world.registry.decisions[change.id] = Decision(answer=Answer.APPROVE, by="ann")
    return world, change


def test_an_approved_change_does_not_begin_blind(tmp_path: Path) -> None:
    world, change = waiting_for_ann(tmp_path)
    world.run(600)
    assert world.changes()[-1].phase is Phase.PENDING
    words = world.registry.waiting[change.id]
    assert "what it was proposed on is not known now: batch_size is Unknown (SourceError" in words
    assert "it begins when that is known again, and expires at 2026-03-03" in words
    assert not world.model.spoken, "no replica was touched"
    world.numbers.numbers = Numbers.KNOWN
    world.run(600, until=lambda: ended(world))
    (change,) = world.changes()
    assert (change.phase, change.decided_by) == (Phase.SUCCEEDED, "ann")


def test_an_approval_without_data_expires(tmp_path: Path) -> None:
    world, _ = waiting_for_ann(tmp_path, approval_expiry=timedelta(minutes=10))
    world.run(660)
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.EXPIRED, ChangeReason.EXPIRED)
    assert "batch_size is Unknown" in change.message
    assert not world.model.spoken


def test_what_a_change_does_not_rest_on_may_be_unknown(tmp_path: Path) -> None:
    """The rule asked for the batch alone; nobody waits for a latency that has no samples."""
    world, _ = waiting_for_ann(tmp_path)
    world.numbers.numbers = Numbers.KNOWN
    answer = world.numbers.collect
    world.numbers.collect = lambda asks: {  # type: ignore[method-assign]
        key: Readings.of(r for r in found.values() if r.signal != "e2e_mean")
        for key, found in answer(asks).items()
    }
    world.run(60, until=lambda: world.changes()[-1].phase is Phase.CANARY)
    assert world.changes()[-1].phase.touches_replicas


def test_going_back_needs_no_data(tmp_path: Path) -> None:
    world, _ = waiting_for_ann(tmp_path)
    world.numbers.numbers = Numbers.KNOWN
    world.run(60, until=lambda: world.changes()[-1].phase is Phase.ANALYSING)
    world.numbers.numbers = Numbers.SILENT
    world.model.crashing = {"off"}
    world.model.flap(
        next(i for i, p in enumerate(world.model.pods) if p.replica.declared.setting == "off")
    )
    world.run(600, until=lambda: ended(world))
    (change,) = world.changes()
    assert change.phase is Phase.ROLLED_BACK
    assert {pod.replica.declared for pod in world.model.pods} == {START}


def test_a_proposal_whose_rule_no_longer_holds_is_withdrawn(tmp_path: Path) -> None:
    world = Modelled(tmp_path, probe=None, mode=Mode.APPROVE)
    world.numbers.batch = 40.0
    world.run(30)
    world.numbers.batch = 10.0
    world.run(30)
    (change,) = world.changes()
    assert (change.phase, change.reason) == (Phase.ABORTED, ChangeReason.SUPERSEDED)
    assert "off-when-busy does not hold any more" in change.message


def test_a_clock_that_is_set_back_is_said_in_the_status(world: Modelled) -> None:
    world.numbers.batch = 40.0
    world.run(60)
    world.clock.at -= timedelta(minutes=10)
    world.run(10)
    ready = next(c for c in world.status().conditions if c.type == "Ready")
    assert (ready.status, ready.reason) == (False, "ClockSetBack")
    (change,) = world.changes()
    assert "the clock was set back" in world.registry.waiting[change.id]
    world.run(1000, until=lambda: ended(world))
    assert world.changes()[0].phase is Phase.SUCCEEDED
    world.run(10)
    ready = next(c for c in world.status().conditions if c.type == "Ready")
    assert ready.status is True


def test_the_operator_allows_no_more_changes_at_a_time_than_it_is_told(world: Modelled) -> None:
    world.most_concurrent = 0
    world.boot()
    world.numbers.batch = 40.0
    world.run(60)
    held = next(c for c in world.status().conditions if c.type == "Held")
    assert (held.status, held.reason) == (True, "ConcurrentLimit")
    assert world.changes() == []
    world.most_concurrent = 1
    world.boot()
    world.run(400, until=lambda: ended(world))
    assert world.changes()[-1].phase is Phase.SUCCEEDED
