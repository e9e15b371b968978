"""FlagChange: the visible record of a change, and the place to decide about it with kubectl.

The operator writes everything but `decision` and `decidedBy`. The record of truth is the database;
the object mirrors it.
"""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from specpilot.domain.changes import ChangeKind, ChangeReason, Phase
from specpilot.domain.situation import Answer
from specpilot.resources.base import ObjectName, Strict

Word = Annotated[str, StringConstraints(max_length=253)]
Time = Annotated[str, StringConstraints(max_length=64)]
"""A moment, RFC 3339."""


class ChangeTarget(Strict):
    """What is changed."""

    kind: Word
    name: Word


class ChangeSide(Strict):
    """What ran before, or what is to run."""

    setting: Word
    config: Annotated[str, StringConstraints(max_length=8192)] = ""


class ChangeRule(Strict):
    """The rule that fired."""

    rule_set: Word
    version: Annotated[int, Field(ge=1)]
    rule: Word


class ChangeEvidence(Strict):
    """One number the proposal rests on."""

    signal: Word
    value: float | None = None
    comparison: Word = ""
    threshold: float | None = None
    reason: Word = ""
    count: float | None = None
    at: Time | None = None
    window_seconds: float | None = None
    arm: Word = ""


class FlagChangeSpec(Strict):
    """The spec: what was proposed, and the decision once somebody has made it."""

    policy: ObjectName
    target: ChangeTarget
    kind: ChangeKind
    origin: Annotated[ChangeSide, Field(alias="from")]
    wanted: Annotated[ChangeSide, Field(alias="to")]
    rule: ChangeRule | None = None
    created_at: Time
    evidence: Annotated[tuple[ChangeEvidence, ...], Field(max_length=32)] = ()
    decision: Answer | None = None
    decided_by: Word | None = None

    @model_validator(mode="after")
    def _decided(self) -> Self:
        if self.decided_by is not None and self.decision is None:
            raise ValueError("decidedBy without decision; add decision: Approve or Reject")
        return self


class FlagChangeStatus(Strict):
    """The status, written by the operator."""

    phase: Phase
    reason: ChangeReason
    message: Annotated[str, StringConstraints(max_length=4096)] = ""
    phase_since: Time
    ended_at: Time | None = None
    undo_reason: ChangeReason | None = None
    decided_by: Word = ""
