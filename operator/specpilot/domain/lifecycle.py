"""Deciding the next step of a flag change from its phase and from what is observed.

Pure: the same change, the same situation, the same step. Unknown never decides; it waits, and
only a stated limit of patience ends the waiting, by going back to what ran before.
"""

from datetime import timedelta

from specpilot.domain.changes import (
    ABORTING,
    ChangeKind,
    ChangeReason,
    FlagChange,
    Phase,
    Transition,
)
from specpilot.domain.comparison import Outcome, beats
from specpilot.domain.judging import (
    PROBE_LENGTH,
    Trial,
    arm_evidence,
    broken_guardrail,
    doubtful,
    enough,
    looks,
    summary,
    undo,
    watch_looks,
)
from specpilot.domain.pending import decide_pending
from specpilot.domain.policy import Mode, Policy
from specpilot.domain.readiness import flapping
from specpilot.domain.readings import Readings
from specpilot.domain.sight import unread_bounds, unseen
from specpilot.domain.situation import CLOCK_ROOM, Situation, Wait
from specpilot.domain.targets import Replica, TargetProblem, TargetState

DEFAULT_READY_WITHIN = timedelta(minutes=20)
"""For a target that states no limit of its own: twice the ten minutes a large model may load."""

MOST_WRITTEN = 3
"""Times that a setting is written before it is seen; each may start a pod that is then ended."""


def decide(change: FlagChange, situation: Situation) -> Transition | Wait:
    """Return the step to take now, or what is being waited for.

    Where the clock was set back behind the beginning of the phase, whatever rests on time waits
    until it has caught up, and says so.
    """
    step = _decide(change, situation)
    if isinstance(step, Wait) and change.phase_since - situation.now > CLOCK_ROOM:
        return Wait(
            message=f"{step.message}; the clock was set back, and time counts again from "
            f"{change.phase_since:%H:%M:%S} UTC on"
        )
    return step


def _decide(change: FlagChange, situation: Situation) -> Transition | Wait:
    match change.phase:
        case Phase.PENDING:
            return decide_pending(change, situation)
        case Phase.CANARY:
            return _interrupted(change, situation) or _canary(change, situation)
        case Phase.ANALYSING:
            return _interrupted(change, situation) or _analysing(change, situation)
        case Phase.PROMOTING:
            return _interrupted(change, situation) or _promoting(change, situation)
        case Phase.WATCHING:
            return _watching(change, situation)
        case Phase.ROLLING_BACK:
            return _rolling_back(change, situation)
        case _:
            return Wait(message=f"{change.phase} is final")


def _interrupted(change: FlagChange, s: Situation) -> Transition | Wait | None:
    """What ends a change in flight, whatever its phase."""
    if s.state.problem is not None and s.state.problem.reason is TargetProblem.NOT_FOUND:
        return undo(ChangeReason.TARGET_GONE, s.state.problem.message)
    if s.policy is None:
        return undo(ChangeReason.POLICY_DELETED, "the policy was deleted in mid-flip")
    if s.policy.mode is Mode.OFF:
        return undo(ChangeReason.POLICY_OFF, "spec.mode was set to Off in mid-flip")
    if s.state.problem is not None and s.state.problem.reason is TargetProblem.UNREACHABLE:
        return Wait(message=s.state.problem.message)
    if change.seen_applied and s.state.user_template != change.base_template:
        return undo(
            ChangeReason.EDITED_BY_USER,
            "the workload's template was edited by somebody else in mid-flip; "
            "their edit stays, ours is undone",
        )
    if not change.seen_applied and s.written > MOST_WRITTEN and s.state.declared == change.origin:
        return undo(ChangeReason.CONTESTED, _gone_at_once(change, s.written))
    expected = (change.wanted,) if change.seen_applied else (change.wanted, change.origin)
    if s.state.declared not in expected:
        return undo(ChangeReason.CONTESTED, _replaced(change, s.state))
    return _broken(change, s)


def _gone_at_once(change: FlagChange, times: int) -> str:
    return (
        f"our setting {change.wanted.setting} was written {times} times and was gone again each "
        f"time before it was seen: somebody replaces it at once by {change.origin.setting}"
    )


def _replaced(change: FlagChange, state: TargetState) -> str:
    """What became of our setting in mid-flip, in words."""
    found = state.declared
    # Beside another's value the name may still be the one that we gave to ours.
    name = found.config or "off" if found.change_id == change.id else found.setting
    why = f"somebody replaced our setting {change.wanted.setting} by {name} in mid-flip"
    if found.change_id not in {"", change.id, change.origin.change_id}:
        why += (
            f" (flag change {found.change_id}): an older revision was brought back, or another "
            f"installation of Specpilot steers this namespace; leave it to one of them "
            f"(watchNamespaces, ignoreNamespaces)"
        )
    return why


def _broken(change: FlagChange, s: Situation) -> Transition | None:
    """The way back where a replica of the new setting breaks or does not stay ready."""
    setting = change.wanted.setting
    failed = _failed(change, s.state)
    if failed is not None:
        return undo(
            ChangeReason.REPLICA_FAILED,
            f"{failed.id} does not run with {setting}: {failed.failure}",
        )
    canary = s.state.arm(change.wanted)
    control = s.state.others(change.wanted)
    words = flapping(change.seen, canary=canary, control=control, now=s.now)
    if words:
        return undo(ChangeReason.REPLICA_FLAPS, f"with {setting} {words}")
    return None


def _failed(change: FlagChange, state: TargetState) -> Replica | None:
    """A replica of the new setting that broke by itself; a lost node is not a verdict on it."""
    for replica in state.arm(change.wanted):
        if replica.failure and not replica.lost and replica.restarts > 0 and not replica.ready:
            return replica
    return None


def _ready_within(s: Situation) -> timedelta:
    assert s.policy is not None
    if s.policy.canary.ready_within is not None:
        return s.policy.canary.ready_within
    return max(DEFAULT_READY_WITHIN, timedelta(seconds=s.state.progress_deadline_s))


def _canary(change: FlagChange, s: Situation) -> Transition | Wait:
    assert s.policy is not None
    arm = s.state.arm(change.wanted)
    ready = [r for r in arm if r.ready]
    needed = s.state.first_wave(s.policy.canary.replicas)
    # Else the roll would take the control arm away: what wrote the setting may have died before it
    # held the roll, and this is the first that sees it.
    kept = s.state.halted or s.state.unheld or not s.state.others(change.wanted)
    if len(ready) >= needed and kept:
        names = ", ".join(r.id for r in ready)
        return Transition(
            to=Phase.ANALYSING,
            reason=ChangeReason.CANARY_READY,
            message=f"{names} runs {change.wanted.setting} and is ready",
        )
    # Where the roll is not held its replicas may be replaced one after the other.
    limit = _ready_within(s) * (needed if s.state.unheld else 1)
    if s.now - change.phase_since > limit:
        stuck = next((f"; {r.id}: {r.failure}" for r in arm if r.failure), "")
        what = "the canary was not ready" if len(ready) < needed else "the roll was not held"
        return undo(
            ChangeReason.READY_DEADLINE,
            f"{what} within {limit.total_seconds():.0f} s{stuck}",
        )
    if not arm:
        return Wait(message="waiting for the first replica with the new setting")
    if len(ready) >= needed:
        return Wait(message="waiting for the roll to be held")
    stuck = next((f": {r.failure}" for r in arm if r.failure), "")
    return Wait(message=f"waiting for {arm[0].id} to become ready{stuck}")


def _analysing(change: FlagChange, s: Situation) -> Transition | Wait:
    assert s.policy is not None
    canary = s.policy.canary
    trial = Trial(
        slices=change.slices,
        looks=looks(canary, change.kind),
        canary=s.canary,
        least=canary.min_requests,
    )
    broken = broken_guardrail(s.policy.guardrails, trial)
    if broken is not None:
        return broken
    elapsed = s.now - change.phase_since
    sufficient, short = enough(change, s.policy, trial)
    if sufficient:
        lost = unseen(change.slices, s.policy.guardrails)
        sufficient, short = not lost, lost or doubtful(s.policy.guardrails, trial)
    if change.kind is ChangeKind.PROBE:
        step = _probe(change, s.policy, elapsed, enough=sufficient, doubt=short)
        if step is not None:
            return step
    elif elapsed >= canary.analysis and sufficient and not short:
        return Transition(
            to=Phase.PROMOTING,
            reason=ChangeReason.ANALYSIS_PASSED,
            message=f"no guardrail broke in {elapsed.total_seconds():.0f} s; "
            f"{summary(change, s.policy)}",
            evidence=arm_evidence(change.slices),
        )
    if elapsed > canary.patience:
        return undo(
            ChangeReason.PROBE_LOST
            if change.kind is ChangeKind.PROBE and sufficient
            else ChangeReason.INCONCLUSIVE,
            f"after {elapsed.total_seconds():.0f} s it is still not clear; "
            f"{short or summary(change, s.policy)}",
            arm_evidence(change.slices),
        )
    return Wait(
        message=f"comparing the canary with the others: {short or summary(change, s.policy)}"
    )


def _probe(
    change: FlagChange, policy: Policy, elapsed: timedelta, *, enough: bool, doubt: str
) -> Transition | None:
    """A probe is judged by winning, not by merely not failing; it ends early when clear.

    Args:
        change: The probe.
        policy: Its policy.
        elapsed: Since the analysis began.
        enough: Whether there is enough to judge it.
        doubt: A guardrail that looks broken, "" when none does: such a probe does not win.
    """
    if not enough:
        return None
    margin = policy.probe.margin if policy.probe is not None else 0.05
    outcome, words = beats(
        change.slices, margin=margin, looks=looks(policy.canary, ChangeKind.PROBE)
    )
    if outcome is Outcome.YES and not doubt:
        return Transition(
            to=Phase.PROMOTING,
            reason=ChangeReason.PROBE_WON,
            message=f"the canary beats the others by more than {margin:.0%}: {words}",
            evidence=arm_evidence(change.slices),
        )
    if outcome is Outcome.NO:
        return undo(
            ChangeReason.PROBE_LOST,
            f"the canary does not beat the others by {margin:.0%}: {words}",
            arm_evidence(change.slices),
        )
    if elapsed > PROBE_LENGTH * policy.canary.analysis:
        return undo(
            ChangeReason.PROBE_LOST,
            f"no clear win within {elapsed.total_seconds():.0f} s: {doubt or words}",
            arm_evidence(change.slices),
        )
    return None


def _promoting(change: FlagChange, s: Situation) -> Transition | Wait:
    assert s.policy is not None
    if s.state.all_run(change.wanted):
        return Transition(
            to=Phase.WATCHING,
            reason=ChangeReason.ROLLED_OUT,
            message=f"all {s.state.desired_replicas} replicas run {change.wanted.setting}",
        )
    limit = _ready_within(s) * max(s.state.desired_replicas, 1)
    trial = _after(change, s.policy, s.canary, lasting=limit)
    broken = broken_guardrail(s.policy.guardrails, trial)
    if broken is not None:
        return broken
    if s.now - change.phase_since > limit:
        return undo(
            ChangeReason.READY_DEADLINE,
            f"the roll did not finish within {limit.total_seconds():.0f} s: {s.state.rolling}",
        )
    done = sum(r.ready for r in s.state.arm(change.wanted))
    return Wait(message=f"{done} of {s.state.desired_replicas} replicas run the new setting")


def _after(change: FlagChange, policy: Policy, canary: Readings, *, lasting: timedelta) -> Trial:
    """What bounds are judged on after the analysis; with whom to compare is no more."""
    return Trial(
        slices=change.watched,
        looks=watch_looks(policy.canary, lasting),
        canary=canary,
        least=policy.canary.min_requests,
        compared=False,
    )


def _watching(change: FlagChange, s: Situation) -> Transition | Wait:
    """Everything runs the new setting: keep an eye on it for as long as the policy says."""
    if s.state.problem is not None and s.state.problem.reason is TargetProblem.UNREACHABLE:
        return Wait(message=s.state.problem.message)
    gone = s.state.problem is not None and s.state.problem.reason is TargetProblem.NOT_FOUND
    if gone or (change.seen_applied and s.state.declared != change.wanted):
        return undo(
            ChangeReason.TARGET_GONE if gone else ChangeReason.CONTESTED,
            "the target is gone"
            if gone
            else f"somebody replaced our setting by {s.state.declared.setting}",
        )
    if s.policy is None or s.policy.mode is Mode.OFF:
        return Transition(
            to=Phase.SUCCEEDED,
            reason=ChangeReason.SETTLED,
            message=f"{change.wanted.setting} runs everywhere; the policy no longer steers it",
        )
    watch = s.policy.watch if s.policy.watch is not None else s.policy.canary.analysis
    rails, trial = s.policy.guardrails, _after(change, s.policy, s.canary, lasting=watch)
    broken = _broken(change, s) or broken_guardrail(rails, trial)
    if broken is not None:
        return broken
    until = change.phase_since + watch
    if s.now >= until:
        # Neither a bound that cannot be read nor one that looks broken has held.
        doubt = (unread_bounds(s.canary, rails) or doubtful(rails, trial)) if watch else ""
        last = until + s.policy.canary.patience
        if doubt and s.now < last:
            return Wait(message=f"watching on, until {last:%H:%M:%S} UTC at most: {doubt}")
        return Transition(
            to=Phase.SUCCEEDED,
            reason=ChangeReason.SETTLED,
            message=f"{change.wanted.setting} runs everywhere and no guardrail broke"
            + (f", as far as can be told: {doubt}" if doubt else ""),
        )
    # A moment, not a countdown: each new text is a write to the API server.
    return Wait(message=f"watching until {until:%H:%M:%S} UTC")


def _rolling_back(change: FlagChange, s: Situation) -> Transition | Wait:
    reason = change.undo_reason or ChangeReason.RESTORED
    end = Phase.ABORTED if reason in ABORTING else Phase.ROLLED_BACK
    if s.state.problem is not None and s.state.problem.reason is TargetProblem.NOT_FOUND:
        return Transition(to=Phase.ABORTED, reason=reason, message="the target is gone")
    if s.state.problem is not None and s.state.problem.reason is TargetProblem.UNREACHABLE:
        return Wait(message=s.state.problem.message)
    # What somebody else put there meanwhile is theirs: neither waited for nor overwritten.
    undone = s.state.declared != change.wanted
    leftover = s.state.arm(change.wanted)
    if undone and not leftover and not s.state.halted:
        return Transition(
            to=end,
            reason=reason,
            message=f"{change.message}; {s.state.declared.setting} runs again",
        )
    names = ", ".join(r.id for r in leftover) or "the workload"
    return Wait(message=f"waiting for {names} to go back to {change.origin.setting}")
