"""From an evaluation to at most one proposal: what a rule asks for, else a probe that is due."""

import secrets
from dataclasses import dataclass
from datetime import datetime

from specpilot.domain.asking import asked_for
from specpilot.domain.changes import (
    ChangeKind,
    ChangeReason,
    Evidence,
    FlagChange,
    Phase,
    RuleRef,
)
from specpilot.domain.economics import engine_of
from specpilot.domain.evaluation import Evaluation
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Mode, Policy
from specpilot.domain.probing import candidate, contradicted, due_at
from specpilot.domain.readings import Readings
from specpilot.domain.rules import RuleSetVersion
from specpilot.domain.settings import Declared, Setting
from specpilot.domain.targets import TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A proposal before the gates."""

    setting: Setting
    kind: ChangeKind
    rule: RuleRef
    evidence: tuple[Evidence, ...]
    message: str


def proposal(
    policy: Policy,
    *,
    version: RuleSetVersion,
    evaluation: Evaluation,
    readings: Readings,
    memory: PolicyMemory,
    active: Setting,
    now: datetime,
) -> Wanted | None:
    """Return what should be switched to, if anything, before any gate is asked."""
    winner = evaluation.winner
    if winner is not None:
        asked = asked_for(winner.setting, policy=policy, memory=memory, active=active)
        if asked is None or asked.name == active.name:
            return None
        return Wanted(
            setting=asked,
            kind=ChangeKind.RULE,
            rule=RuleRef(rule_set=version.rule_set.name, version=version.version, rule=winner.rule),
            evidence=winner.evidence,
            message=f"{winner.rule}: {winner.why}",
        )
    due, trial = due_at(policy, memory), candidate(policy, memory)
    if due is None or trial is None or now < due or contradicted(evaluation):
        return None
    if not readings["batch_size"].known:
        return None  # blind: neither arm of a probe could be measured
    return Wanted(
        setting=trial,
        kind=ChangeKind.PROBE,
        rule=RuleRef(),
        evidence=(Evidence.of(readings["batch_size"]), Evidence.of(readings["tpot_mean"])),
        message=(
            f"off since {memory.active_since:%H:%M:%S} UTC, {memory.probes_lost} probe(s) lost "
            f"in a row: try {trial.name} on one replica"
        ),
    )


def opened(
    wanted: Wanted,
    *,
    policy: Policy,
    state: TargetState,
    readings: Readings,
    config: str,
    now: datetime,
) -> FlagChange:
    """The change that a proposal becomes when no gate objects.

    Args:
        wanted: The proposal.
        policy: The policy that asks.
        state: Its target.
        readings: What its rules saw.
        config: What the engine is told for the setting.
        now: The time.
    """
    change_id = _new_id(policy, now)
    phase, reason = _first_phase(policy.mode, wanted.kind)
    # With nobody left to compare with, the time before must stand in for the control arm.
    alone = state.desired_replicas <= state.first_wave(policy.canary.replicas)
    before = {name: r.value for name, r in readings.items() if r.value is not None}
    return FlagChange(
        id=change_id,
        policy=policy.ref,
        target=policy.target,
        kind=wanted.kind,
        origin=state.declared,
        wanted=Declared(setting=wanted.setting.name, config=config, change_id=change_id),
        rule=wanted.rule,
        evidence=wanted.evidence,
        phase=phase,
        reason=reason,
        message=wanted.message,
        created_at=now,
        phase_since=now,
        ended_at=now if phase.ended else None,
        base_template=state.user_template,
        engine=engine_of(state),
        before=before if alone else {},
    )


def _first_phase(mode: Mode, kind: ChangeKind) -> tuple[Phase, ChangeReason]:
    """Where a change begins in a mode, and why."""
    asked = ChangeReason.PROBE_DUE if kind is ChangeKind.PROBE else ChangeReason.RULE_FIRED
    match mode:
        case Mode.AUTO:
            return Phase.CANARY, asked
        case Mode.APPROVE:
            return Phase.PENDING, ChangeReason.APPROVAL_NEEDED
        case Mode.PROPOSE:
            return Phase.PENDING, ChangeReason.PROPOSED
        case _:
            return Phase.ADVISED, asked


def _new_id(policy: Policy, now: datetime) -> str:
    """Sortable, unique, and short enough for a Kubernetes label."""
    return f"{policy.ref.name[:40]}-{now:%Y%m%d%H%M%S}-{secrets.token_hex(2)}"
