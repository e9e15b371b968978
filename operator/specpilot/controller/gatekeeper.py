"""Asking the gates, with everything they need gathered in one place."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from specpilot.controller.freeze import frozen
from specpilot.controller.targets import active_setting
from specpilot.domain import contests
from specpilot.domain.changes import ChangeKind
from specpilot.domain.gates import Objection, Proposal, check
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.readings import Readings
from specpilot.domain.settings import Setting
from specpilot.domain.targets import TargetState
from specpilot.engines import render_for
from specpilot.store import Store

HISTORY = timedelta(days=2)
"""How far back ended changes matter to a gate."""

OUTCOMES = 40
"""Newest outcomes that matter however old they are: a failure is remembered for longer."""


def objection_to(
    setting: Setting,
    kind: ChangeKind,
    *,
    policy: Policy,
    state: TargetState,
    readings: Readings,
    memory: PolicyMemory,
    store: Store,
    most: int | None,
    now: datetime,
    rested_on: Iterable[str] = (),
) -> Objection | None:
    """Return the first gate's No to switching a target to a setting now.

    Args:
        setting: What is proposed.
        kind: Rule or probe.
        policy: The policy.
        state: The target.
        readings: Its signals now.
        memory: What is remembered of the policy.
        store: The state of record.
        most: Changes that may be in flight at a time in all targets; None is any number.
        now: The time.
        rested_on: Signals that were known when it was proposed, for a proposal that has waited.
    """
    with store.read() as uow:
        recent = uow.changes.ended_since(policy.target, since=now - HISTORY)
        older = uow.changes.outcomes(policy.target, limit=OUTCOMES)
        open_changes = uow.changes.open() if most is not None else []
    known = {change.id for change in recent}
    rendered = render_for(setting, state.engine)
    return check(
        Proposal(
            policy=policy,
            state=state,
            setting=setting,
            active=active_setting(policy, state.declared, engine=state.engine),
            config=rendered.config,
            refused=rendered.refused,
            limit=rendered.guard,
            batch=readings.value("batch_size"),
            unknown=[readings[name] for name in rested_on if not readings[name].known],
            kind=kind,
            history=[*recent, *(change for change in older if change.id not in known)],
            frozen=frozen(policy, now=now),
            contested=contests.words(memory, policy),
            elsewhere=sum(
                change.phase.touches_replicas and change.target.key != policy.target.key
                for change in open_changes
            ),
            most=most,
            now=now,
        )
    )
