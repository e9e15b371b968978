"""What telemetry is asked for, so that nobody fetches buckets and devices for nothing."""

from datetime import datetime

from specpilot.controller.targets import in_force
from specpilot.domain.changes import FlagChange
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.policy import Policy
from specpilot.domain.ports import Ask
from specpilot.domain.signals import REMEMBERED, STANDING
from specpilot.domain.targets import TargetState


def wanted_signals(policy: Policy, rules: CompiledRuleSet | None) -> frozenset[str]:
    """Signals that the rules and guardrails name, and those that are always looked at.

    Without the remembered ones, which are not telemetry's to answer.

    Args:
        policy: The policy.
        rules: Its rules; None where they cannot be used.
    """
    named = {guardrail.signal for guardrail in policy.guardrails}
    return (STANDING | named | (rules.signals if rules else frozenset())) - REMEMBERED


def known_at_proposal(change: FlagChange) -> tuple[str, ...]:
    """The measured signals that were known when a change was proposed: what it rests on."""
    return tuple(
        dict.fromkeys(
            evidence.signal
            for evidence in change.evidence
            if evidence.value is not None and evidence.signal not in REMEMBERED
        )
    )


def tick_ask(
    policy: Policy,
    state: TargetState,
    in_flight: FlagChange | None,
    *,
    signals: frozenset[str],
    now: datetime,
) -> Ask:
    """Ask for the signals of a policy's window, of the replicas that run what is in force."""
    replicas = tuple(r for r in state.arm(in_force(state, in_flight)) if r.ready)
    return Ask(
        key=policy.ref.uid,
        target=policy.target,
        replicas=replicas,
        start=now - policy.window,
        end=now,
        warm_up_s=policy.warm_up.total_seconds(),
        source=policy.source,
        signals=signals,
    )
