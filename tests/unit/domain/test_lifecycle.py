"""The steps of a flag change: a table of situations, and a walk through random ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specpilot.domain.changes import (
    ABORTING,
    ChangeKind,
    ChangeReason,
    Extent,
    FlagChange,
    IllegalTransitionError,
    Phase,
    Slice,
    Transition,
    advance,
    intent,
)
from specpilot.domain.gates import GateReason, Objection
from specpilot.domain.lifecycle import decide
from specpilot.domain.policy import Guardrail, Limits, Mode, Policy
from specpilot.domain.readiness import Seen
from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.settings import Declared
from specpilot.domain.situation import Answer, Decision, Situation, Wait
from specpilot.domain.targets import Problem, TargetProblem, TargetState
from tests.unit.domain.builders import NEW, OLD, at, change, policy, replica, slices, state

A_NEW = replica("a", NEW)
B_OLD = replica("b", OLD)
CANARIED = state(NEW, A_NEW, B_OLD, halted=True)
GONE = Problem(reason=TargetProblem.NOT_FOUND, message="no such workload")
CUT = Problem(reason=TargetProblem.UNREACHABLE, message="the API server does not answer")
OTHER = Declared(setting="unrecognised", config='{"method":"eagle"}', change_id="")


@dataclass(frozen=True)
class Case:
    reason: str
    change: FlagChange
    state: TargetState = CANARIED
    policy: Policy | None = field(default_factory=policy)
    seconds: float = 5
    want: tuple[Phase, ChangeReason] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


def probe(phase: Phase, **fields: Any) -> FlagChange:
    return change(phase, kind=ChangeKind.PROBE, origin=NEW, wanted=OLD, **fields)


RAIL = policy(guardrails=(Guardrail(signal="e2e_p99", max_value=4.0),))
P99 = Readings.of([Reading(signal="e2e_p99", value=6, low=5, high=10)])
UNSEEN = unknown("e2e_p99", UnknownReason.TOO_FEW_SAMPLES)


BLANK = (Slice(start=at(40), end=at(50)),)
ONE_ARM = (Slice(start=at(40), end=at(50), canary={"tpot_mean": 0.02}, canary_requests=20),)


def bounded(*values: float, requests: float = 20) -> tuple[Slice, ...]:
    """One slice per 99th percentile of the canary, beside arms that are equal in time per token."""
    return tuple(
        replace(part, canary={**part.canary, "e2e_p99": value})
        for part, value in zip(slices(*[1.0] * len(values), requests=requests), values, strict=True)
    )


def refusing(*rates: float) -> tuple[Slice, ...]:
    return tuple(
        replace(
            part,
            canary={**part.canary, "error_rate": rate},
            control={**part.control, "error_rate": 0.0},
        )
        for part, rate in zip(slices(*[0.95] * len(rates)), rates, strict=True)
    )


PENDING = change(Phase.PENDING, seen_applied=False)
BEFORE = state(OLD, B_OLD)
APPROVE = policy(mode=Mode.APPROVE)
FOUR_EYES = policy(mode=Mode.APPROVE, limits=Limits(four_eyes=True))
PROPOSE = policy(mode=Mode.PROPOSE)
HELD = {
    "decision": Decision(answer=Answer.APPROVE, by="ann"),
    "objection": Objection(reason=GateReason.FROZEN, message="frozen"),
}
BLIND = {**HELD, "objection": Objection(reason=GateReason.NO_DATA, message="batch_size is Unknown")}


CASES = [
    # --- waiting for a person
    Case("approve mode waits", PENDING, BEFORE, policy=APPROVE),
    Case("an approval starts it", PENDING, BEFORE, policy=APPROVE,
         extra={"decision": Decision(answer=Answer.APPROVE, by="ann")},
         want=(Phase.CANARY, ChangeReason.APPROVED)),
    Case("an approval waits for the gates", PENDING, BEFORE, policy=APPROVE, extra=HELD),
    Case("... for as long as they are closed", PENDING, BEFORE, policy=APPROVE, seconds=86_401,
         extra=HELD),
    Case("an approval waits for the data it was given on", PENDING, BEFORE, policy=APPROVE,
         extra=BLIND),
    Case("... until it expires: what was approved has grown old", PENDING, BEFORE, policy=APPROVE,
         seconds=86_401, extra=BLIND, want=(Phase.EXPIRED, ChangeReason.EXPIRED)),
    Case("a rejection needs no data", PENDING, BEFORE, policy=APPROVE,
         extra={**BLIND, "decision": Decision(answer=Answer.REJECT, by="ann")},
         want=(Phase.REJECTED, ChangeReason.REJECTED)),
    Case("a policy set to Advisory meanwhile changes nothing, approved or not", PENDING, BEFORE,
         policy=policy(mode=Mode.ADVISORY),
         extra={"decision": Decision(answer=Answer.APPROVE, by="ann")},
         want=(Phase.ABORTED, ChangeReason.POLICY_OFF)),
    Case("nobody approves what their own rules ask for, where four eyes are asked for",
         PENDING, BEFORE, policy=FOUR_EYES,
         extra={"decision": Decision(answer=Answer.APPROVE, by="ann"), "rule_author": "ann"}),
    Case("... but what another's do", PENDING, BEFORE, policy=FOUR_EYES,
         extra={"decision": Decision(answer=Answer.APPROVE, by="ann"), "rule_author": "bob"},
         want=(Phase.CANARY, ChangeReason.APPROVED)),
    Case("... and it expires like any other", PENDING, BEFORE, policy=FOUR_EYES, seconds=86_401,
         extra={"decision": Decision(answer=Answer.APPROVE, by="ann"), "rule_author": "ann"},
         want=(Phase.EXPIRED, ChangeReason.EXPIRED)),
    Case("a rejection ends it", PENDING, BEFORE, policy=APPROVE,
         extra={"decision": Decision(answer=Answer.REJECT, by="ann")},
         want=(Phase.REJECTED, ChangeReason.REJECTED)),
    Case("nobody decides: it expires", PENDING, BEFORE, policy=APPROVE,
         seconds=86_401, want=(Phase.EXPIRED, ChangeReason.EXPIRED)),
    Case("a policy set to Auto meanwhile needs no approval", PENDING, BEFORE,
         want=(Phase.CANARY, ChangeReason.RULE_FIRED)),
    Case("a deleted policy ends a pending change", PENDING, BEFORE, policy=None,
         want=(Phase.ABORTED, ChangeReason.POLICY_DELETED)),
    # --- proposing only
    Case("a proposal is for the owner to apply", PENDING, BEFORE, policy=PROPOSE,
         extra={"patch": "annotations: ..."}),
    Case("... and no approval makes us do it", PENDING, BEFORE, policy=PROPOSE,
         extra={"decision": Decision(answer=Answer.APPROVE, by="ann")}),
    Case("... nor after it has expired", PENDING, BEFORE, policy=PROPOSE, seconds=86_401,
         extra={"decision": Decision(answer=Answer.APPROVE, by="ann")},
         want=(Phase.EXPIRED, ChangeReason.EXPIRED)),
    Case("the owner has applied it and it rolls", PENDING, policy=PROPOSE),
    Case("the owner has applied it: recognised, though without our change id", PENDING,
         state(replace(NEW, change_id=""), replica("a", replace(NEW, change_id=""))),
         policy=PROPOSE, want=(Phase.SUCCEEDED, ChangeReason.APPLIED_BY_OWNER)),
    Case("what is proposed was set by hand while a person thought about it", PENDING,
         state(NEW, A_NEW), policy=APPROVE, want=(Phase.SUCCEEDED, ChangeReason.APPLIED_BY_OWNER)),
    # --- canary
    Case("no replica yet: wait", change(seen_applied=False), state=state(OLD, B_OLD)),
    Case("a ready canary is analysed", change(),
         want=(Phase.ANALYSING, ChangeReason.CANARY_READY)),
    Case("a canary that is loading is waited for", change(),
         state=state(NEW, replica("a", NEW, ready=False), B_OLD)),
    Case("... but not for ever", change(), seconds=121,
         state=state(NEW, replica("a", NEW, ready=False), B_OLD),
         want=(Phase.ROLLING_BACK, ChangeReason.READY_DEADLINE)),
    Case("a ready canary of a roll that nobody has held yet: it is held first", change(),
         state=state(NEW, A_NEW, B_OLD)),
    Case("... within the same time", change(), seconds=121, state=state(NEW, A_NEW, B_OLD),
         want=(Phase.ROLLING_BACK, ChangeReason.READY_DEADLINE)),
    Case("... and not at all where there is nobody left to keep", change(),
         state=state(NEW, A_NEW, replica("b", NEW)),
         want=(Phase.ANALYSING, ChangeReason.CANARY_READY)),
    Case("a roll that is not held is compared when all replicas run it", change(Phase.CANARY),
         state=state(NEW, A_NEW, B_OLD, unheld="it cannot be held")),
    Case("... and then it is", change(Phase.CANARY),
         state=state(NEW, A_NEW, replica("b", NEW), unheld="it cannot be held"),
         want=(Phase.ANALYSING, ChangeReason.CANARY_READY)),
    Case("... within the time of all, one after the other", change(Phase.CANARY), seconds=200,
         state=state(NEW, A_NEW, B_OLD, unheld="it cannot be held")),
    Case("... and no longer", change(Phase.CANARY), seconds=250,
         state=state(NEW, A_NEW, B_OLD, unheld="it cannot be held"),
         want=(Phase.ROLLING_BACK, ChangeReason.READY_DEADLINE)),
    Case("a canary that crash-loops is undone", change(),
         state=state(NEW, replica("a", NEW, ready=False, restarts=2, failure="exit 2"), B_OLD),
         want=(Phase.ROLLING_BACK, ChangeReason.REPLICA_FAILED)),
    Case("a canary that no GPU has room for is waited for", change(),
         state=state(NEW, replica("a", NEW, ready=False, failure="Unschedulable"), B_OLD)),
    Case("a lost node says nothing about the setting", change(),
         state=state(NEW, replica("a", NEW, ready=False, restarts=3, failure="node lost",
                                  lost=True), B_OLD)),
    Case("a terminating replica is no canary", change(),
         state=state(NEW, replica("a", NEW, terminating=True), B_OLD)),
    # --- interruptions
    Case("a user's own edit ends ours", change(), state=replace(CANARIED, user_template="t2"),
         want=(Phase.ROLLING_BACK, ChangeReason.EDITED_BY_USER)),
    Case("an edit before ours was seen applied is no interruption",
         change(seen_applied=False), state=replace(CANARIED, user_template="t2", replicas=(B_OLD,)),
         ),
    Case("our value replaced by somebody: never fight", change(),
         state=replace(CANARIED, declared=OTHER),
         want=(Phase.ROLLING_BACK, ChangeReason.CONTESTED)),
    Case("somebody else was faster: not overwritten",
         change(seen_applied=False), state=replace(CANARIED, declared=OTHER),
         want=(Phase.ROLLING_BACK, ChangeReason.CONTESTED)),
    Case("our value gone before it was seen, once too often",
         change(seen_applied=False), state=state(OLD, B_OLD), extra={"written": 4},
         want=(Phase.ROLLING_BACK, ChangeReason.CONTESTED)),
    Case("... a few times may be chance", change(seen_applied=False), state=state(OLD, B_OLD),
         extra={"written": 3}),
    Case("... and seen in the end it is no contest", change(), extra={"written": 4},
         want=(Phase.ANALYSING, ChangeReason.CANARY_READY)),
    Case("policy deleted in mid-flip: back to a known setting", change(), policy=None,
         want=(Phase.ROLLING_BACK, ChangeReason.POLICY_DELETED)),
    Case("mode Off in mid-flip: back to a known setting", change(), policy=policy(mode=Mode.OFF),
         want=(Phase.ROLLING_BACK, ChangeReason.POLICY_OFF)),
    Case("a pause lets a change in flight end", change(), policy=policy(paused=True),
         want=(Phase.ANALYSING, ChangeReason.CANARY_READY)),
    Case("the target is gone", change(), state=state(OLD, problem=GONE),
         want=(Phase.ROLLING_BACK, ChangeReason.TARGET_GONE)),
    Case("the API is away: hold", change(), state=state(OLD, problem=CUT)),
    # --- analysis
    Case("time and data enough: promote", change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9)),
         seconds=60, want=(Phase.PROMOTING, ChangeReason.ANALYSIS_PASSED)),
    Case("time without data is not enough", change(Phase.ANALYSING), seconds=600),
    Case("data without time is not enough",
         change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9)), seconds=30),
    Case("too few requests are not enough",
         change(Phase.ANALYSING, slices=slices(0.9, 0.9, requests=2)), seconds=90),
    Case("two slices cannot judge a guardrail",
         change(Phase.ANALYSING, slices=slices(0.9, 0.9)), seconds=90),
    Case("a bound that could not be read has not held",
         change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9)), policy=RAIL, seconds=90),
    Case("a bound that was read and held", change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9)),
         policy=RAIL, seconds=90,
         extra={"canary": Readings.of([Reading(signal="e2e_p99", value=2, low=1, high=2.5)])},
         want=(Phase.PROMOTING, ChangeReason.ANALYSIS_PASSED)),
    Case("patience ends, undone as inconclusive", change(Phase.ANALYSING), seconds=1801,
         want=(Phase.ROLLING_BACK, ChangeReason.INCONCLUSIVE)),
    Case("slower than the others beyond the guardrail",
         change(Phase.ANALYSING, slices=slices(1.4, 1.41, 1.39)), seconds=30,
         want=(Phase.ROLLING_BACK, ChangeReason.GUARDRAIL_BROKEN)),
    Case("slower, but within the guardrail",
         change(Phase.ANALYSING, slices=slices(1.05, 1.04, 1.06)), seconds=60,
         want=(Phase.PROMOTING, ChangeReason.ANALYSIS_PASSED)),
    Case("noise does not break a guardrail",
         change(Phase.ANALYSING, slices=slices(2.0, 0.8, 1.5)), seconds=30),
    Case("an absolute bound is broken", change(Phase.ANALYSING, slices=bounded(6.0, 6.2, 6.1)),
         policy=RAIL, seconds=30, extra={"canary": P99},
         want=(Phase.ROLLING_BACK, ChangeReason.GUARDRAIL_BROKEN)),
    Case("one bad slice is no broken bound", change(Phase.ANALYSING, slices=bounded(9.0, 3.0, 3.1)),
         policy=RAIL, seconds=30, extra={"canary": P99}),
    Case("two slices are not enough for a bound", change(Phase.ANALYSING, slices=bounded(9.0, 9.1)),
         policy=RAIL, seconds=30, extra={"canary": P99}),
    Case("a bound needs a minimum of requests",
         change(Phase.ANALYSING, slices=bounded(6.0, 6.2, 6.1, requests=1)),
         policy=RAIL, seconds=30, extra={"canary": P99}),
    Case("a bound that looks broken is not rolled out for want of proof",
         change(Phase.ANALYSING, slices=bounded(4.2, 6.9, 4.1, 9.0)), policy=RAIL, seconds=90,
         extra={"canary": P99}),
    Case("slower than allowed as it looks, and not clearly so: not rolled out",
         change(Phase.ANALYSING, slices=slices(1.0, 1.3, 1.2, 1.1)), seconds=90),
    Case("refuses requests that the others take",
         change(Phase.ANALYSING, slices=refusing(0.1, 0.11, 0.1, 0.12)), seconds=30,
         want=(Phase.ROLLING_BACK, ChangeReason.GUARDRAIL_BROKEN)),
    Case("an engine without an error rate is judged without",
         change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9)), seconds=60,
         extra={"canary": Readings.of([unknown("error_rate", UnknownReason.NOT_EXPORTED)])},
         want=(Phase.PROMOTING, ChangeReason.ANALYSIS_PASSED)),
    Case("an error rate that could not be read has not held",
         change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9)), seconds=60,
         extra={"canary": Readings.of([unknown("error_rate", UnknownReason.SOURCE_ERROR)])}),
    Case("a canary that flaps, as the others do not", change(Phase.ANALYSING, seen={
             "a-1": Seen(ready_since=at(4), losses=2)}),
         want=(Phase.ROLLING_BACK, ChangeReason.REPLICA_FLAPS)),
    Case("readiness lost once is waited for", change(Phase.ANALYSING, seen={
             "a-1": Seen(ready_since=at(4), losses=1)})),
    Case("... but not for long", change(Phase.ANALYSING, seen={
             "a-1": Seen(ready_since=at(4), losses=1, away_since=at(5))}), seconds=130,
         want=(Phase.ROLLING_BACK, ChangeReason.REPLICA_FLAPS)),
    Case("all flap: it is the cluster", change(Phase.ANALYSING, seen={
             "a-1": Seen(ready_since=at(4), losses=2), "b-1": Seen(ready_since=at(3), losses=1)})),
    Case("a quantile whose bucket straddles the bound does not break it",
         change(Phase.ANALYSING), policy=RAIL, seconds=30,
         extra={"canary": Readings.of([Reading(signal="e2e_p99", value=5, low=2.5, high=10)])}),
    Case("an Unknown guardrail breaks nothing", change(Phase.ANALYSING), policy=RAIL, seconds=30),
    # --- probe
    Case("a probe that wins is kept before its time",
         probe(Phase.ANALYSING, slices=slices(0.7, 0.71, 0.7, drafts=90)),
         state=state(OLD, replica("a", OLD), replica("b", NEW)), seconds=30,
         want=(Phase.PROMOTING, ChangeReason.PROBE_WON)),
    Case("not failing is not winning",
         probe(Phase.ANALYSING, slices=slices(1.0, 1.01, 0.99, 1.0, 1.01, drafts=90)),
         state=state(OLD, replica("a", OLD), replica("b", NEW)), seconds=30,
         want=(Phase.ROLLING_BACK, ChangeReason.PROBE_LOST)),
    Case("a probe with too few drafts waits",
         probe(Phase.ANALYSING, slices=slices(0.7, 0.71, 0.7, drafts=3)),
         state=state(OLD, replica("a", OLD), replica("b", NEW)), seconds=30),
    # --- numbers that were there and are gone
    Case("enough, and then nothing more is seen: time alone ends no analysis",
         change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9) + BLANK), seconds=60),
    Case("... nor one in which the others are not seen any more",
         change(Phase.ANALYSING, slices=slices(0.9, 0.91, 0.9) + ONE_ARM), seconds=60),
    Case("... until it is seen again",
         change(Phase.ANALYSING, slices=BLANK + slices(0.9, 0.91, 0.9)), seconds=90,
         want=(Phase.PROMOTING, ChangeReason.ANALYSIS_PASSED)),
    Case("a probe is not lost while nobody can see it",
         probe(Phase.ANALYSING, slices=slices(0.96, 0.93, 0.98, 0.91, drafts=90) + BLANK),
         state=state(OLD, replica("a", OLD), replica("b", NEW)), seconds=150),
    Case("... and is, when it can be seen not to win",
         probe(Phase.ANALYSING, slices=BLANK + slices(0.96, 0.93, 0.98, 0.91, drafts=90)),
         state=state(OLD, replica("a", OLD), replica("b", NEW)), seconds=150,
         want=(Phase.ROLLING_BACK, ChangeReason.PROBE_LOST)),
    Case("a watch does not end while its bound cannot be read", change(Phase.WATCHING),
         state=state(NEW, A_NEW), policy=RAIL, seconds=70,
         extra={"canary": Readings.of([unknown("e2e_p99", UnknownReason.SOURCE_ERROR)])}),
    Case("... nor while it looks broken", change(Phase.WATCHING), state=state(NEW, A_NEW),
         policy=RAIL, seconds=70, extra={"canary": P99}),
    Case("... but not for ever", change(Phase.WATCHING), state=state(NEW, A_NEW), policy=RAIL,
         seconds=1900, want=(Phase.SUCCEEDED, ChangeReason.SETTLED)),
    Case("... and at once where nothing happens that could break it", change(Phase.WATCHING),
         state=state(NEW, A_NEW), policy=RAIL, seconds=60,
         extra={"canary": Readings.of([replace(UNSEEN, count=0.0)])},
         want=(Phase.SUCCEEDED, ChangeReason.SETTLED)),
    Case("... which is not so where it has only just been looked at", change(Phase.WATCHING),
         state=state(NEW, A_NEW), policy=RAIL, seconds=60,
         extra={"canary": Readings.of([UNSEEN])}),
    Case("... or where no watch is asked for", change(Phase.WATCHING), state=state(NEW, A_NEW),
         policy=replace(RAIL, watch=timedelta(0)), seconds=1,
         want=(Phase.SUCCEEDED, ChangeReason.SETTLED)),
    # --- promotion, watching, rolling back
    Case("half rolled out: wait", change(Phase.PROMOTING), state=state(NEW, A_NEW, B_OLD)),
    Case("all run it: watch", change(Phase.PROMOTING),
         state=state(NEW, A_NEW, replica("b", NEW)),
         want=(Phase.WATCHING, ChangeReason.ROLLED_OUT)),
    Case("a replica that breaks while the rest rolls", change(Phase.PROMOTING),
         state=state(NEW, A_NEW, replica("b", NEW, ready=False, restarts=1, failure="exit 1")),
         want=(Phase.ROLLING_BACK, ChangeReason.REPLICA_FAILED)),
    Case("watched long enough", change(Phase.WATCHING), state=state(NEW, A_NEW), seconds=60,
         want=(Phase.SUCCEEDED, ChangeReason.SETTLED)),
    Case("a bound that breaks while it is watched", change(Phase.WATCHING,
             watched=bounded(6.0, 6.2, 6.1)), state=state(NEW, A_NEW), policy=RAIL, seconds=30,
         extra={"canary": P99}, want=(Phase.ROLLING_BACK, ChangeReason.GUARDRAIL_BROKEN)),
    Case("... or while it is rolled out", change(Phase.PROMOTING, watched=bounded(6.0, 6.2, 6.1)),
         state=state(NEW, A_NEW, B_OLD), policy=RAIL, seconds=30,
         extra={"canary": P99}, want=(Phase.ROLLING_BACK, ChangeReason.GUARDRAIL_BROKEN)),
    Case("watched for as long as the policy says", change(Phase.WATCHING), state=state(NEW, A_NEW),
         policy=policy(watch=timedelta(hours=2)), seconds=7000),
    Case("... and not longer", change(Phase.WATCHING), state=state(NEW, A_NEW),
         policy=policy(watch=timedelta(hours=2)), seconds=7200,
         want=(Phase.SUCCEEDED, ChangeReason.SETTLED)),
    Case("a user's edit while it is watched is theirs to make", change(Phase.WATCHING),
         state=state(NEW, A_NEW, user_template="t2"), seconds=10),
    Case("still on the way back", change(Phase.ROLLING_BACK, undo_reason=ChangeReason.PROBE_LOST),
         state=state(OLD, A_NEW, B_OLD)),
    Case("back", change(Phase.ROLLING_BACK, undo_reason=ChangeReason.GUARDRAIL_BROKEN),
         state=state(OLD, B_OLD), want=(Phase.ROLLED_BACK, ChangeReason.GUARDRAIL_BROKEN)),
    Case("back, though the user's own edit does not start",
         change(Phase.ROLLING_BACK, undo_reason=ChangeReason.EDITED_BY_USER),
         state=state(OLD, replica("c", OLD, ready=False, failure="ImagePullBackOff"),
                     user_template="t2"),
         want=(Phase.ABORTED, ChangeReason.EDITED_BY_USER)),
    Case("taken over by somebody on the way back: theirs now, and not waited for",
         change(Phase.ROLLING_BACK, undo_reason=ChangeReason.GUARDRAIL_BROKEN),
         state=state(OTHER, replica("a", OTHER, ready=False), B_OLD),
         want=(Phase.ROLLED_BACK, ChangeReason.GUARDRAIL_BROKEN)),
    Case("held after the first replicas is not back",
         change(Phase.ROLLING_BACK, undo_reason=ChangeReason.PROBE_LOST),
         state=state(OLD, B_OLD, halted=True)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_step(case: Case) -> None:
    step = decide(
        case.change,
        Situation(policy=case.policy, state=case.state, now=at(case.seconds), **case.extra),
    )
    if case.want is None:
        assert isinstance(step, Wait), f"{case.reason}: {step}"
        assert step.message
    else:
        assert isinstance(step, Transition), f"{case.reason}: {step}"
        assert (step.to, step.reason) == case.want, f"{case.reason}: {step.message}"
        advance(case.change, step, now=at(case.seconds))  # and it is a legal one


def test_what_is_asked_of_the_workload_follows_from_the_phase() -> None:
    asked = {
        p: intent(change(p), canary_replicas=1, present=NEW)
        for p in Phase
    }  # fmt: skip
    wanted = {p: (i.declared, i.extent) for p, i in asked.items() if i is not None}
    assert wanted == {
        Phase.CANARY: (NEW, Extent.CANARY),
        Phase.ANALYSING: (NEW, Extent.CANARY),
        Phase.PROMOTING: (NEW, Extent.ALL),
        Phase.WATCHING: (NEW, Extent.ALL),
        Phase.ROLLING_BACK: (OLD, Extent.ALL),
    }


def test_a_watch_that_could_not_see_says_so() -> None:
    """argo-rollouts#4479: a run was Successful although all measurements had failed."""
    blind = Readings.of([unknown("e2e_p99", UnknownReason.STALE)])
    for seconds, says in ((100, "watching on"), (1900, "as far as can be told")):
        step = decide(
            change(Phase.WATCHING),
            Situation(policy=RAIL, state=state(NEW, A_NEW), canary=blind, now=at(seconds)),
        )
        assert says in step.message
        assert "e2e_p99 is Unknown (Stale)" in step.message


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (OTHER, "by unrecognised in mid-flip"),
        (replace(NEW, change_id="chat-of-theirs"), "(flag change chat-of-theirs): an older"),
        (replace(NEW, change_id="chat-of-theirs"), "another installation of Specpilot"),
    ],
)
def test_whose_value_replaced_ours_is_said(found: Declared, says: str) -> None:
    step = decide(
        change(), Situation(now=at(5), policy=policy(), state=replace(CANARIED, declared=found))
    )
    assert isinstance(step, Transition)
    assert step.reason is ChangeReason.CONTESTED
    assert says in step.message
    assert ("another installation" in step.message) == bool(found.change_id)


def test_rolling_back_leaves_what_somebody_else_put_there() -> None:
    undone = change(Phase.ROLLING_BACK, undo_reason=ChangeReason.CONTESTED)
    asked = intent(undone, canary_replicas=1, present=OTHER)
    assert asked is not None
    assert asked.declared == OTHER


def test_an_illegal_step_is_refused() -> None:
    step = Transition(to=Phase.SUCCEEDED, reason=ChangeReason.SETTLED, message="")
    with pytest.raises(IllegalTransitionError):
        advance(change(Phase.CANARY), step, now=at(1))


replicas = st.builds(
    lambda name, new, ready, restarts, failure, going: replica(
        name, NEW if new else OLD, ready=ready, restarts=restarts, failure=failure,
        terminating=going,
    ),
    name=st.sampled_from("abcd"), new=st.booleans(), ready=st.booleans(),
    restarts=st.integers(0, 2), failure=st.sampled_from(["", "exit 1"]), going=st.booleans(),
)  # fmt: skip
states = st.builds(
    lambda declared, some, template, problem, rolling, halted: state(
        declared, *some, user_template=template, problem=problem, rolling=rolling, halted=halted
    ),
    declared=st.sampled_from([NEW, OLD, OTHER]), some=st.lists(replicas, max_size=4),
    template=st.sampled_from(["t1", "t2"]), problem=st.sampled_from([None, None, None, GONE, CUT]),
    rolling=st.sampled_from(["", "1 of 2 updated"]), halted=st.booleans(),
)  # fmt: skip
policies = st.sampled_from([policy(), policy(), policy(), policy(mode=Mode.OFF), None, RAIL])


@settings(max_examples=300)
@given(
    walk=st.lists(st.tuples(states, policies, st.floats(0, 400)), max_size=20),
    probing=st.booleans(),
)
def test_no_walk_takes_an_illegal_step(
    walk: Sequence[tuple[TargetState, Policy | None, float]], probing: bool
) -> None:
    """Whatever is seen in whatever order: legal steps only, a record number each, a known end."""
    now = 0.0
    current = change(kind=ChangeKind.PROBE if probing else ChangeKind.RULE)
    for seen, steering, seconds in walk:
        now += seconds
        situation = Situation(policy=steering, state=seen, now=at(now))
        while not current.phase.ended:
            step = decide(current, situation)
            if isinstance(step, Wait):
                break
            before, current = current, advance(current, step, now=at(now))
            assert current.step == before.step + 1
            if current.phase is Phase.SUCCEEDED:
                assert not seen.problem
            if current.phase is Phase.ROLLED_BACK:
                assert current.undo_reason not in ABORTING
        assert current.phase.ended == (current.ended_at is not None)


def test_a_clock_that_was_set_back_is_said() -> None:
    seen = Situation(policy=policy(), state=CANARIED, now=at(-600))
    step = decide(change(Phase.ANALYSING), seen)
    assert isinstance(step, Wait)
    assert f"the clock was set back, and time counts again from {at(0):%H:%M:%S}" in step.message


@given(seen=states, steering=policies)
def test_what_is_not_known_undoes_nothing(seen: TargetState, steering: Policy | None) -> None:
    """With the API away every phase in flight holds, however long."""
    if steering is None or steering.mode is Mode.OFF:
        return
    for phase in (Phase.CANARY, Phase.ANALYSING, Phase.PROMOTING, Phase.WATCHING):
        step = decide(
            change(phase, slices=slices(1.4, 1.4, 1.4)),
            Situation(
                policy=steering,
                state=replace(seen, problem=CUT),
                now=at(0) + timedelta(days=3),
            ),
        )
        assert isinstance(step, Wait)
