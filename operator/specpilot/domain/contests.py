"""Is our value undone again and again? Then somebody else owns it, and we stop.

Two owners of one field would roll the pods back and forth for ever. What was undone is remembered,
in mid-flip and at rest alike; after too many times nothing is proposed until a person has edited
the policy, which says that the cause is out of the way.
"""

from dataclasses import replace
from datetime import datetime

from specpilot.domain.changes import ChangeReason, FlagChange, Phase
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.settings import Declared

_KEPT = 20
"""Times that are remembered; nobody allows more."""


def after(change: FlagChange, memory: PolicyMemory) -> PolicyMemory:
    """What to remember when a change has ended: whose value the workload was left with."""
    if change.phase is Phase.SUCCEEDED:
        return replace(memory, left=change.wanted.change_id)
    if change.phase not in {Phase.ROLLED_BACK, Phase.ABORTED} or change.undo_reason is None:
        return memory  # it never touched the workload
    if change.undo_reason is ChangeReason.CONTESTED and change.ended_at is not None:
        return _undone(memory, change.ended_at)
    if change.undo_reason is ChangeReason.TARGET_GONE:
        return replace(memory, left="")
    return replace(memory, left=change.origin.change_id)


def noticed(memory: PolicyMemory, declared: Declared, *, now: datetime) -> PolicyMemory:
    """Compare what runs at rest with what the workload was left with."""
    if not memory.left or declared.change_id == memory.left:
        return memory
    return _undone(memory, now)


def _undone(memory: PolicyMemory, at: datetime) -> PolicyMemory:
    return replace(memory, left="", undone=(*memory.undone, at)[-_KEPT:])


def weighed(memory: PolicyMemory, policy: Policy, *, now: datetime) -> PolicyMemory:
    """Stop where our value was undone too often, and go on where the policy was edited since."""
    if memory.contested is not None:
        if memory.contested == policy.generation:
            return memory
        return replace(memory, contested=None, undone=())
    since = now - policy.limits.contest_window
    recent = [at for at in memory.undone if at > since]
    if len(recent) >= policy.limits.contests:
        return replace(memory, contested=policy.generation)
    return memory


def words(memory: PolicyMemory, policy: Policy) -> str:
    """Why it was stopped and how to go on; "" when it was not."""
    if memory.contested != policy.generation:
        return ""
    times = ", ".join(f"{at:%H:%M:%S}" for at in memory.undone[-policy.limits.contests :])
    return (
        f"somebody else undid our value {len(memory.undone)} time(s), last at {times} UTC; find "
        "out who owns the field (condition GitOps; kubectl get --show-managed-fields) and have "
        "them leave it, then edit the policy in any way to go on, such as spec.paused: true and "
        "false"
    )
