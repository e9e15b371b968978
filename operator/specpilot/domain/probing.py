"""Off is not for ever: when a probe is due and what it tries.

While speculation is off no acceptance exists, so nothing can show that it would pay again. A
probe tries it on one replica, keeps it when it beats the others, and otherwise waits longer
before the next one.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from specpilot.domain import contests
from specpilot.domain.asking import speculating
from specpilot.domain.changes import ChangeKind, FlagChange, Phase
from specpilot.domain.conditions import Truth
from specpilot.domain.evaluation import Evaluation
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.settings import OFF_NAME, Setting

_STEEPEST, _MOST_DOUBLINGS = 1000.0, 50


def candidate(policy: Policy, memory: PolicyMemory) -> Setting | None:
    """The setting a probe would try: the one named, else the last that ran, else the first."""
    if policy.probe is None:
        return None
    return policy.settings.get(policy.probe.setting) or speculating(policy, memory)


def due_at(policy: Policy, memory: PolicyMemory) -> datetime | None:
    """When the next probe is due; None when there will be none as things stand."""
    if policy.probe is None or memory.active != OFF_NAME or memory.active_since is None:
        return None
    # The limit is reached long before; the exponent is bounded because floats are.
    factor = min(policy.probe.back_off, _STEEPEST) ** min(memory.probes_lost, _MOST_DOUBLINGS)
    wait = policy.probe.every.total_seconds() * factor
    span = timedelta(seconds=min(wait, policy.probe.longest.total_seconds()))
    return max(memory.active_since, memory.last_probe_ended or memory.active_since) + span


def contradicted(evaluation: Evaluation) -> str:
    """The rule that asks for off on what can be seen even while off, or "".

    A guard on load stays true without speculation: trying it then would only repeat the loss.
    """
    for verdict in evaluation.verdicts:
        if verdict.setting == OFF_NAME and verdict.truth is Truth.TRUE:
            return verdict.rule
    return ""


def after(change: FlagChange, memory: PolicyMemory) -> PolicyMemory:
    """Return what to remember when a change has ended.

    A probe that lost makes the next one wait longer, one that won starts afresh; one that was cut
    short says nothing about its setting.
    """
    memory = contests.after(change, memory)
    if change.phase is Phase.SUCCEEDED:
        memory = replace(memory, last_flip=change.ended_at)
    if change.kind is not ChangeKind.PROBE or change.phase is Phase.ADVISED:
        return memory
    lost = memory.probes_lost
    if change.phase is Phase.ROLLED_BACK:
        lost += 1
    elif change.phase is Phase.SUCCEEDED:
        lost = 0
    return replace(memory, probes_lost=lost, last_probe_ended=change.ended_at)
