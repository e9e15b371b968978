"""What a tick knows, what comes of it, and who comes first in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from specpilot.controller.registry import PolicyStatus
from specpilot.controller.rulebook import Found
from specpilot.domain.changes import FlagChange
from specpilot.domain.evaluation import RuleSetError
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.ports import Ask
from specpilot.domain.targets import Replica, TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What a tick knows of some policies, and what comes of it.

    Attributes:
        now: When it began.
        states: Every policy's target, by the policy's uid, as with the next and `after`.
        memories: What is remembered of policies.
        in_flight: Open changes, by the key of their target.
        cases: The policies.
        after: What is to be remembered.
        to_show: What puts the status of each policy together.
    """

    now: datetime
    states: Mapping[str, TargetState]
    memories: Mapping[str, PolicyMemory]
    in_flight: Mapping[tuple[str, str, str], FlagChange]
    cases: list["Case"] = field(default_factory=list)
    after: dict[str, PolicyMemory] = field(default_factory=dict)
    to_show: list[tuple[Policy, Callable[[], PolicyStatus]]] = field(default_factory=list)

    def memory(self, policy: Policy) -> PolicyMemory:
        """What is remembered of a policy."""
        return self.memories.get(policy.ref.uid, PolicyMemory())

    def change(self, policy: Policy) -> FlagChange | None:
        """The change in flight of its target."""
        return self.in_flight.get(policy.target.key)


class Case(NamedTuple):
    """A policy in a tick: the rules in force or why there are none, and what is asked for it."""

    policy: Policy
    rules: Found | RuleSetError
    asks: Sequence[Ask]


def moved_first(
    policies: Sequence[Policy],
    live: Mapping[str, Sequence[Replica]],
    moved: Callable[[Replica], float],
    *,
    most: int,
) -> tuple[list[Policy], list[Policy]]:
    """Those whose load has changed most, and the others in order.

    Theirs are the changes that somebody waits for, and among thousands they are few: they need not
    wait until all the others have been looked at.

    Args:
        policies: All of them.
        live: The replicas of each policy's target as they were last, by its uid. A new process
            knows of none, and has to ask for all of them before it judges any.
        moved: How much a replica's load has changed.
        most: How many come first.
    """
    stirred = []
    for policy in policies:
        change = max(map(moved, live.get(policy.ref.uid, ())), default=0.0)
        if change > 0:
            stirred.append((change, policy))
    stirred.sort(key=lambda each: each[0], reverse=True)
    first = [policy for _, policy in stirred[:most]]
    uids = {policy.ref.uid for policy in first}
    return first, [policy for policy in policies if policy.ref.uid not in uids]
