"""A proposal that waits: for a person, for a gate, or for the owner of the workload."""

from datetime import datetime, timedelta

from specpilot.domain.changes import ChangeReason, FlagChange, Phase, Transition
from specpilot.domain.gates import GateReason, Objection
from specpilot.domain.policy import Mode
from specpilot.domain.situation import Answer, Situation, Wait


def decide_pending(change: FlagChange, s: Situation) -> Transition | Wait:
    """Return how a proposal goes on, or what it waits for."""

    def end(to: Phase, reason: ChangeReason, message: str, actor: str = "specpilot") -> Transition:
        return Transition(to=to, reason=reason, message=message, actor=actor)

    if s.policy is None:
        return end(Phase.ABORTED, ChangeReason.POLICY_DELETED, "the policy was deleted")
    if s.policy.mode in {Mode.OFF, Mode.ADVISORY}:  # neither changes anything, approved or not
        return end(Phase.ABORTED, ChangeReason.POLICY_OFF, f"spec.mode was set to {s.policy.mode}")
    if s.decision is not None and s.decision.answer is Answer.REJECT:
        return end(
            Phase.REJECTED, ChangeReason.REJECTED, f"rejected by {s.decision.by}", s.decision.by
        )
    if s.state.problem is None and s.state.declared.config == change.wanted.config:
        return _applied_by_owner(change, s)
    proposes = s.policy.mode is Mode.PROPOSE
    by = s.decision.by if s.decision is not None else ""
    own = by != "" and s.policy.limits.four_eyes and by == s.rule_author
    approved_by = "" if proposes or own else by
    if not approved_by and s.policy.mode.asks:
        if s.now - change.created_at > s.policy.limits.approval_expiry:
            return end(
                Phase.EXPIRED,
                ChangeReason.EXPIRED,
                f"nobody decided within {s.policy.limits.approval_expiry}",
            )
        if proposes:
            return Wait(message=f"waiting for the owner of the workload to apply:\n{s.patch}")
        if own:
            return Wait(
                message=f"{by} wrote the rules that ask for this and may not approve it "
                "(limits.fourEyes); it expires, and somebody else can approve the next one"
            )
        return Wait(message="waiting for approval")
    if s.objection is not None:
        return _held(change, s.objection, expires=s.policy.limits.approval_expiry, now=s.now)
    reason = ChangeReason.APPROVED if approved_by else change.reason
    return end(
        Phase.CANARY,
        reason,
        f"approved by {approved_by}" if approved_by else change.message,
        approved_by or "specpilot",
    )


def _held(
    change: FlagChange, objection: Objection, *, expires: timedelta, now: datetime
) -> Transition | Wait:
    """What could begin and is held by a gate.

    Without data it expires all the same: what was shown to whoever approved it grows old.
    """
    if objection.reason is not GateReason.NO_DATA:
        return Wait(message=objection.message)
    until = change.created_at + expires
    if now > until:
        return Transition(to=Phase.EXPIRED, reason=ChangeReason.EXPIRED, message=objection.message)
    return Wait(
        message=f"{objection.message}; it begins when that is known again, and expires at "
        f"{until:%Y-%m-%d %H:%M:%S} UTC"
    )


def _applied_by_owner(change: FlagChange, s: Situation) -> Transition | Wait:
    """Somebody else has set what is proposed: through Git, most of all."""
    config = change.wanted.config
    live = s.state.live()
    there = [r for r in live if r.declared.config == config and r.ready]
    if s.state.rolling or len(there) < max(len(live), s.state.desired_replicas):
        return Wait(
            message=f"somebody else has set {change.wanted.setting}; it runs on {len(there)} of "
            f"{s.state.desired_replicas} replicas"
        )
    keeper = s.state.keeper
    return Transition(
        to=Phase.SUCCEEDED,
        reason=ChangeReason.APPLIED_BY_OWNER,
        message=f"{change.wanted.setting} was set by somebody else and runs on all "
        f"{s.state.desired_replicas} replicas",
        actor=f"{keeper.tool} {keeper.name}" if keeper else "owner",
    )
