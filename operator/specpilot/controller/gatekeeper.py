"""Asking the gates, with everything they need gathered in one place."""

from datetime import datetime, timedelta

from specpilot.controller.freeze import frozen
from specpilot.domain.changes import ChangeKind
from specpilot.domain.gates import Objection, Proposal, check
from specpilot.domain.policy import Policy
from specpilot.domain.settings import Setting
from specpilot.domain.targets import TargetState
from specpilot.engines import render
from specpilot.store import Store

HISTORY = timedelta(days=2)
"""How far back ended changes matter to a gate."""


def objection_to(
    setting: Setting,
    kind: ChangeKind,
    *,
    policy: Policy,
    state: TargetState,
    store: Store,
    now: datetime,
) -> Objection | None:
    """Return the first gate's No to switching a target to a setting now."""
    with store.read() as uow:
        history = uow.changes.ended_since(policy.target, since=now - HISTORY)
    return check(
        Proposal(
            policy=policy,
            state=state,
            setting=setting,
            refused=render(setting, version=state.engine_version).refused,
            kind=kind,
            history=history,
            frozen=frozen(policy, now=now),
            now=now,
        )
    )
