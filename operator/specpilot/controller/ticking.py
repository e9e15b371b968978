"""What a tick knows, and what comes of it."""

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
from specpilot.domain.targets import TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What a tick knows, and what comes of it.

    Attributes:
        now: When it began.
        states: Every policy's target, by the policy's uid, as with the next and `after`.
        memories: What is remembered of policies.
        in_flight: Open changes, by the key of their target.
        after: What is to be remembered.
        to_show: What puts the status of each policy together.
    """

    now: datetime
    states: Mapping[str, TargetState]
    memories: Mapping[str, PolicyMemory]
    in_flight: Mapping[tuple[str, str, str], FlagChange]
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
