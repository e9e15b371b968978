"""What telemetry is asked for, so that nobody fetches buckets and devices for nothing."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from specpilot.controller.targets import in_force
from specpilot.domain.changes import FlagChange
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.policy import Policy
from specpilot.domain.ports import Ask
from specpilot.domain.signals import REMEMBERED, SIGNALS, STANDING
from specpilot.domain.targets import Replica, TargetState


def judged_signals(policy: Policy) -> frozenset[str]:
    """What is asked of the replicas of a change in flight: what the guardrails name."""
    return _measured({guardrail.signal for guardrail in policy.guardrails})


def wanted_signals(policy: Policy, rules: CompiledRuleSet | None) -> frozenset[str]:
    """What every tick asks: signals that the rules name, and those that guardrails compare.

    A percentile that has a bound and nothing else is not compared with what was before a change, so
    that its buckets need not be fetched until there is one.

    Args:
        policy: The policy.
        rules: Its rules; None where they cannot be used.
    """
    compared = {
        guardrail.signal
        for guardrail in policy.guardrails
        if guardrail.compares or not SIGNALS[guardrail.signal].percentile
    }
    return _measured(compared | (rules.signals if rules else frozenset()))


def _measured(named: Collection[str]) -> frozenset[str]:
    """These and the standing ones, without the remembered, which are not telemetry's to answer."""
    return STANDING.union(named) - REMEMBERED


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
    return _of_window(policy, policy.ref.uid, replicas, signals, now=now)


def flight_ask(policy: Policy, state: TargetState, change: FlagChange, *, now: datetime) -> Ask:
    """Ask for what will be judged of the replicas that run a change's setting, ready or not.

    What is fetched of a replica is what was asked of it before. So a slice of the analysis, which
    asks when it is over, is complete, and so is the watch of a replica that has just been added.
    """
    replicas = state.arm(change.wanted)
    ask = _of_window(policy, f"{change.id}/flight", replicas, judged_signals(policy), now=now)
    return replace(ask, ahead=True)


def _of_window(
    policy: Policy,
    key: str,
    replicas: tuple[Replica, ...],
    signals: frozenset[str],
    *,
    now: datetime,
) -> Ask:
    return Ask(
        key=key,
        target=policy.target,
        replicas=replicas,
        start=now - policy.window,
        end=now,
        warm_up_s=policy.warm_up.total_seconds(),
        source=policy.source,
        signals=signals,
    )
