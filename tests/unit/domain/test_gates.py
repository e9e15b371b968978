"""Gates: each objection in its case, in the order a user can act on."""

import itertools
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.changes import ChangeKind, ChangeReason, FlagChange, Phase
from specpilot.domain.engine_run import EngineRun
from specpilot.domain.gates import GateReason, Proposal, check
from specpilot.domain.policy import Limits, Mode
from specpilot.domain.readings import UnknownReason, unknown
from specpilot.domain.settings import OFF
from specpilot.domain.targets import Problem, TargetProblem
from tests.unit.domain.builders import NEW, NGRAM, OLD, at, change, policy, replica, state

TWO = state(OLD, replica("a", OLD), replica("b", OLD))
LIMITS = Limits(cooldown=timedelta(minutes=10), flips_per_hour=2, flips_per_day=4)


def proposal(**fields: Any) -> Proposal:
    base: dict[str, Any] = {
        "policy": policy(limits=LIMITS), "state": TWO, "setting": NGRAM, "active": OFF,
        "config": "", "refused": "",
        "kind": ChangeKind.RULE, "history": (), "frozen": "", "now": at(0),
    }  # fmt: skip
    return Proposal(**(base | fields))


def ended(
    phase: Phase,
    minutes_ago: float,
    *,
    kind: ChangeKind = ChangeKind.RULE,
    to: str = "off",
    **fields: Any,
) -> FlagChange:
    when = at(-60 * minutes_ago)
    wanted = replace(NEW, setting=to)
    return change(phase, kind=kind, ended_at=when, created_at=when, wanted=wanted, **fields)


@dataclass(frozen=True)
class Case:
    reason: str
    want: GateReason | None
    fields: dict[str, Any] = field(default_factory=dict)
    says: str = ""


P = Problem(reason=TargetProblem.NOT_WIRED, message="add this env")
CASES = [
    Case("nothing objects", None),
    Case("mode Off", GateReason.MODE_OFF, {"policy": policy(mode=Mode.OFF)}),
    Case("paused", GateReason.PAUSED, {"policy": policy(paused=True)}, "spec.paused"),
    Case("the target cannot be steered", GateReason.TARGET_PROBLEM,
         {"state": state(OLD, problem=P)}, "add this env"),
    Case("an owner would replace all replicas at once", GateReason.NEEDS_DOWNTIME,
         {"state": replace(TWO, unheld="a Model has no canary")},
         "a Model has no canary, so all 2 replicas would be replaced"),
    Case("... with the user's word it may", None,
         {"state": replace(TWO, unheld="x", can_add_replica=False),
          "policy": policy(limits=LIMITS, allow_downtime=True)}),
    Case("... and one replica is compared with before, as anywhere", None,
         {"state": replace(state(OLD, replica("a", OLD)), unheld="x")}),
    Case("another roll is under way", GateReason.ROLLOUT_IN_PROGRESS,
         {"state": replace(TWO, rolling="1 of 2 updated")}, "1 of 2"),
    Case("a roll is held", GateReason.ROLLOUT_IN_PROGRESS, {"state": replace(TWO, halted=True)}),
    Case("nothing to compare with", GateReason.NO_REPLICAS,
         {"state": state(OLD, replica("a", OLD, ready=False))}),
    Case("what it was proposed on is not known any more", GateReason.NO_DATA,
         {"unknown": [unknown("batch_size", UnknownReason.SOURCE_ERROR, "Prometheus is down"),
                      unknown("tpot_mean", UnknownReason.STALE)]},
         "batch_size is Unknown (SourceError: Prometheus is down); tpot_mean is Unknown (Stale)"),
    Case("... nor can it be while nothing is ready", GateReason.NO_REPLICAS,
         {"state": state(OLD, replica("a", OLD, ready=False)),
          "unknown": [unknown("batch_size", UnknownReason.NO_DATA)]}),
    Case("... before a limit of which nobody knows how near it is", GateReason.NO_DATA,
         {"unknown": [unknown("batch_size", UnknownReason.NO_DATA)], "frozen": "until Monday"}),
    Case("the engine version cannot run it", GateReason.SETTING_REFUSED,
         {"refused": "needs 0.24"}, "needs 0.24"),
    Case("a batch above the setting's own limit", GateReason.BATCH_LIMIT,
         {"limit": 32, "batch": 41.0}, "above a batch of 32"),
    Case("... within the dead band below it", GateReason.BATCH_LIMIT,
         {"limit": 32, "batch": 25.6}, "below 25.6"),
    Case("... well below it", None, {"limit": 32, "batch": 25.5}),
    Case("... not known: that is for the rules", None, {"limit": 32}),
    Case("... a limit that the engine keeps to", None, {"batch": 900.0}),
    Case("a pair that hands its KV cache over: another method", GateReason.DISAGGREGATED,
         {"state": replace(TWO, kv_transfer=True)}, "--kv-transfer-config"),
    Case("... another drafter", GateReason.DISAGGREGATED,
         {"state": replace(TWO, kv_transfer=True), "active": replace(NGRAM, model="other")}),
    Case("... another depth", None,
         {"state": replace(TWO, kv_transfer=True),
          "active": replace(NGRAM, num_speculative_tokens=7)}),
    Case("an autoscaler at work", GateReason.SCALING,
         {"state": replace(TWO, scaling="from 2 to 5")}, "from 2 to 5"),
    Case("our value was undone too often", GateReason.CONTESTED,
         {"contested": "edit the policy to go on"}, "edit the policy"),
    Case("too many changes at a time", GateReason.CONCURRENT_LIMIT,
         {"elsewhere": 3, "most": 3}, "3 changes of other targets"),
    Case("... one fewer", None, {"elsewhere": 2, "most": 3}),
    Case("... no limit", None, {"elsewhere": 900}),
    Case("a freeze window", GateReason.FROZEN, {"frozen": "frozen until Monday"}, "Monday"),
    Case("cooling down after a flip", GateReason.COOLDOWN,
         {"history": [ended(Phase.SUCCEEDED, 5)]}, f"until {at(300):%Y-%m-%d %H:%M:%S}"),
    Case("cooled down", None, {"history": [ended(Phase.SUCCEEDED, 10)]}),
    Case("a rollback cools down too", GateReason.COOLDOWN,
         {"history": [ended(Phase.ROLLED_BACK, 5)]}),
    Case("advice does not", None, {"history": [ended(Phase.ADVISED, 1)]}),
    Case("a setting that failed is not tried at once", GateReason.RECENTLY_FAILED,
         {"history": [ended(Phase.ROLLED_BACK, 15, to="ngram")]}),
    Case("... its wait doubles with each failure", GateReason.RECENTLY_FAILED,
         {"history": [ended(Phase.ROLLED_BACK, 30, to="ngram"),
                      ended(Phase.ROLLED_BACK, 600, to="ngram")]}, "2 time"),
    Case("... and ends", None, {"history": [ended(Phase.ROLLED_BACK, 21, to="ngram")]}),
    Case("... up to a week", GateReason.RECENTLY_FAILED,
         {"history": [ended(Phase.ROLLED_BACK, 60 * 24 * 6, to="ngram")] * 20}),
    Case("... and is told with its engine and its reason", GateReason.RECENTLY_FAILED,
         {"history": [ended(Phase.ROLLED_BACK, 15, to="ngram", engine="0.32.0",
                            undo_reason=ChangeReason.REPLICA_FAILED)],
          "state": replace(TWO, engine=EngineRun(version="0.32.0"))}, "on 0.32.0 (ReplicaFailed)"),
    Case("another engine version starts afresh", None,
         {"history": [ended(Phase.ROLLED_BACK, 15, to="ngram", engine="0.31.0")],
          "state": replace(TWO, engine=EngineRun(version="0.32.0"))}),
    Case("... as does an edited setting", None, {"config": '{"method":"ngram"}',
          "history": [ended(Phase.ROLLED_BACK, 15, to="ngram")]}),
    Case("... and an edited workload: image, memory, anything", None,
         {"history": [ended(Phase.ROLLED_BACK, 15, to="ngram", base_template="t0")]}),
    Case("what a person rejected is not proposed again at once", GateReason.RECENTLY_FAILED,
         {"history": [ended(Phase.REJECTED, 15, to="ngram")]}, "rejected"),
    Case("... a success in between forgives the older one", None,
         {"policy": policy(limits=replace(LIMITS, flips_per_hour=9)),
          "history": [ended(Phase.SUCCEEDED, 15, to="ngram"),
                      ended(Phase.ROLLED_BACK, 19, to="ngram")]}),
    Case("flips of the hour are spent", GateReason.BUDGET_SPENT,
         {"history": [ended(Phase.SUCCEEDED, 20), ended(Phase.SUCCEEDED, 50)]}, "flipsPerHour"),
    Case("flips of the day are spent", GateReason.BUDGET_SPENT,
         {"history": [ended(Phase.SUCCEEDED, 60 * h) for h in (2, 4, 6, 8)]}, "flipsPerDay"),
    Case("probes have a budget of their own", None,
         {"kind": ChangeKind.PROBE,
          "history": [ended(Phase.SUCCEEDED, 20), ended(Phase.SUCCEEDED, 50)]}),
    Case("a probe that lost is no flip", None,
         {"history": [ended(Phase.ROLLED_BACK, m, kind=ChangeKind.PROBE) for m in (15, 30, 45)]}),
    Case("no node has room for the replica that must come first", GateReason.WOULD_DEADLOCK,
         {"state": state(OLD, replica("a", OLD), can_add_replica=False, deadlock="no node has 1"),
          "policy": policy(allow_downtime=True)}, "no node has 1"),
    Case("the only replica would have to stop", GateReason.NEEDS_DOWNTIME,
         {"state": state(OLD, replica("a", OLD), can_add_replica=False)}, "allowDowntime"),
    Case("a strategy that stops all at once, or no room for one more", GateReason.NEEDS_DOWNTIME,
         {"state": replace(TWO, can_add_replica=False)}, "stops all of them first"),
    Case("... which the user accepts", None,
         {"state": state(OLD, replica("a", OLD), can_add_replica=False),
          "policy": policy(allow_downtime=True)}),
    Case("... or another can stand in", None, {"state": state(OLD, replica("a", OLD))}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_gate(case: Case) -> None:
    """kubernetes#98914, #72775: an autoscaler in mid-roll. Reloader#1199: freeze windows."""
    found = check(proposal(**case.fields))
    assert (found.reason if found else None) is case.want, f"{case.reason}: {found}"
    assert case.says in (found.message if found else "")


@given(gaps=st.lists(st.floats(0.1, 400), min_size=1, max_size=200))
def test_no_sequence_of_wishes_makes_more_flips_than_the_budget(gaps: list[float]) -> None:
    """Whenever a flip is wished for, the gates keep it to the cooldown and both budgets.

    llm-d#1427: noise flipped the answer every 15 s.
    """
    minute, done = 0.0, []
    history: list[FlagChange] = []
    for gap in gaps:
        minute += gap
        if check(proposal(history=tuple(reversed(history)), now=at(60 * minute))) is None:
            done.append(minute)
            when = at(60 * minute)
            history.append(change(Phase.SUCCEEDED, ended_at=when, created_at=when))
    for span, most in ((60, LIMITS.flips_per_hour), (24 * 60, LIMITS.flips_per_day)):
        for start in done:
            assert sum(start <= m < start + span for m in done) <= most
    assert all(b - a >= 10 - 1e-6 for a, b in itertools.pairwise(done))
