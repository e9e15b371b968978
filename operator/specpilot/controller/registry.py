"""Where policies come from and where answers are published: custom resources or the local store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from specpilot.domain.changes import FlagChange
from specpilot.domain.policy import Policy, PolicyRef
from specpilot.domain.readings import Readings
from specpilot.domain.situation import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One line of a resource's status, as Kubernetes means it."""

    type: str
    status: bool | None
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCount:
    """Replicas of one setting.

    Attributes:
        setting: Its name.
        total: Replicas that run it and are not going away.
        ready: Those that serve.
    """

    setting: str
    total: int
    ready: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStatus:
    """What a user must be able to see with nothing but `get`.

    Attributes:
        policy: Which policy.
        generation: Generation of the spec this speaks of.
        mode: Mode in force.
        active: Setting that runs, "" when not known.
        desired: Setting the rules ask for, "" when they ask for none.
        phase: Phase of the change in flight, else Idle, Held or Blind.
        change_id: The change in flight, "" when there is none.
        last_flip: When a change last succeeded.
        verdict: The last verdict in words.
        replicas: Live replicas by the setting they run, and how many of them serve.
        readings: What the rules saw.
        rule: The rule that asks for a setting, as `set@version/rule`, "" when none does.
        rule_version: Version of the rule set in use, None when there is none.
        conditions: Ready and what it is made of.
    """

    policy: PolicyRef
    generation: int
    mode: str
    active: str = ""
    desired: str = ""
    phase: str = "Idle"
    change_id: str = ""
    last_flip: datetime | None = None
    verdict: str = ""
    replicas: tuple[ReplicaCount, ...] = ()
    readings: Readings = field(default_factory=Readings)
    rule: str = ""
    rule_version: int | None = None
    conditions: tuple[Condition, ...] = field(default_factory=tuple)


class Registry(Protocol):
    """Policies in, answers out."""

    def policies(self) -> Sequence[Policy]:
        """Return all valid policies, oldest first; invalid ones are answered by the registry."""
        ...

    def exists(self, policy: PolicyRef) -> bool:
        """Whether this very policy is there, valid or not."""
        ...

    def decision(self, change: FlagChange) -> Decision | None:
        """Return a person's decision on a pending change, if there is one."""
        ...

    def publish(self, status: PolicyStatus) -> None:
        """Show the state of a policy. Must not fail the tick: errors are logged."""
        ...

    def publish_change(self, change: FlagChange, *, waiting_for: str) -> None:
        """Show a flag change, with what it waits for."""
        ...
