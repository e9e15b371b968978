"""What a step of a flag change is decided on, and the answer "not yet"."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from specpilot.domain.gates import Objection
from specpilot.domain.policy import Policy
from specpilot.domain.readings import Readings
from specpilot.domain.targets import TargetState

CLOCK_ROOM = timedelta(seconds=2)
"""By so much clocks of several processes may differ without a word."""


class Answer(StrEnum):
    """A person's decision on a pending change."""

    APPROVE = "Approve"
    REJECT = "Reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who decided what."""

    answer: Answer
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a step is decided on.

    Attributes:
        policy: The policy as it is now; None when it was deleted.
        state: The target as it is now.
        canary: Readings of the replicas that run the new setting, since the analysis began.
        decision: Of a person, for a pending change.
        objection: A gate's No to a pending change that could begin.
        rule_author: Who wrote the rules that ask for a pending change, "" when nobody is known.
        patch: In mode Propose what the owner of the workload has to apply.
        written: How often our setting was written because the workload did not carry it.
        now: The time.
    """

    policy: Policy | None
    state: TargetState
    canary: Readings = field(default_factory=Readings)
    decision: Decision | None = None
    objection: Objection | None = None
    rule_author: str = ""
    patch: str = ""
    written: int = 0
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to decide yet, and why."""

    message: str
