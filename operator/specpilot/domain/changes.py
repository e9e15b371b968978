r"""A flag change and its life cycle.

    Advised                       (mode Advisory: the record of what would have been done)
    Pending -> Canary -> Analysing -> Promoting -> Watching -> Succeeded
       |          \________\___________\___________\-> RollingBack -> RolledBack | Aborted
       \-> Rejected | Expired | Succeeded (mode Propose: the owner of the workload applied it)

What must be *done* follows from the phase alone (`intent`), what must be *decided* follows from
the phase and from what is observed (`specpilot.domain.lifecycle`). So a process that dies between
two lines comes back to the same phase and does the same thing again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from specpilot.domain.policy import PolicyRef
from specpilot.domain.readiness import Seen
from specpilot.domain.readings import Reading
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetRef


class Phase(StrEnum):
    """Where a flag change stands."""

    ADVISED = "Advised"
    PENDING = "Pending"
    CANARY = "Canary"
    ANALYSING = "Analysing"
    PROMOTING = "Promoting"
    WATCHING = "Watching"
    ROLLING_BACK = "RollingBack"
    SUCCEEDED = "Succeeded"
    ROLLED_BACK = "RolledBack"
    ABORTED = "Aborted"
    REJECTED = "Rejected"
    EXPIRED = "Expired"

    @property
    def ended(self) -> bool:
        """Whether nothing will follow."""
        return self in _ENDED

    @property
    def touches_replicas(self) -> bool:
        """Whether the change may have replaced replicas and has not ended."""
        return self in _IN_FLIGHT


_ENDED = frozenset(
    {
        Phase.ADVISED,
        Phase.SUCCEEDED,
        Phase.ROLLED_BACK,
        Phase.ABORTED,
        Phase.REJECTED,
        Phase.EXPIRED,
    }
)
_IN_FLIGHT = frozenset(
    {Phase.CANARY, Phase.ANALYSING, Phase.PROMOTING, Phase.WATCHING, Phase.ROLLING_BACK}
)

TRANSITIONS: Mapping[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset(
        {Phase.CANARY, Phase.REJECTED, Phase.EXPIRED, Phase.ABORTED, Phase.SUCCEEDED}
    ),
    Phase.CANARY: frozenset({Phase.ANALYSING, Phase.ROLLING_BACK}),
    Phase.ANALYSING: frozenset({Phase.PROMOTING, Phase.ROLLING_BACK}),
    Phase.PROMOTING: frozenset({Phase.WATCHING, Phase.ROLLING_BACK}),
    Phase.WATCHING: frozenset({Phase.SUCCEEDED, Phase.ROLLING_BACK}),
    Phase.ROLLING_BACK: frozenset({Phase.ROLLED_BACK, Phase.ABORTED}),
} | dict.fromkeys(_ENDED, frozenset())
"""Which phase may follow which."""


class ChangeKind(StrEnum):
    """What asked for the change."""

    RULE = "Rule"
    PROBE = "Probe"


class ChangeReason(StrEnum):
    """Why a change entered its phase; a fixed catalogue, for status, audit and alerts alike."""

    RULE_FIRED = "RuleFired"
    PROBE_DUE = "ProbeDue"
    APPROVAL_NEEDED = "ApprovalNeeded"
    PROPOSED = "Proposed"
    APPLIED_BY_OWNER = "AppliedByOwner"
    APPROVED = "Approved"
    REJECTED = "Rejected"
    EXPIRED = "Expired"
    CANARY_READY = "CanaryReady"
    ANALYSIS_PASSED = "AnalysisPassed"
    PROBE_WON = "ProbeWon"
    ROLLED_OUT = "RolledOut"
    SETTLED = "Settled"
    REPLICA_FAILED = "ReplicaFailed"
    REPLICA_FLAPS = "ReplicaFlaps"
    READY_DEADLINE = "ReadyDeadline"
    GUARDRAIL_BROKEN = "GuardrailBroken"
    PROBE_LOST = "ProbeLost"
    INCONCLUSIVE = "Inconclusive"
    EDITED_BY_USER = "EditedByUser"
    CONTESTED = "Contested"
    POLICY_DELETED = "PolicyDeleted"
    POLICY_OFF = "PolicyOff"
    TARGET_GONE = "TargetGone"
    RESTORED = "Restored"
    SUPERSEDED = "Superseded"


ABORTING = frozenset(
    {
        ChangeReason.EDITED_BY_USER,
        ChangeReason.CONTESTED,
        ChangeReason.POLICY_DELETED,
        ChangeReason.POLICY_OFF,
        ChangeReason.TARGET_GONE,
        ChangeReason.SUPERSEDED,
    }
)
"""Reasons to undo a change that say nothing about its setting: it ends Aborted, not RolledBack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One number a decision rests on.

    Attributes:
        signal: The signal.
        value: Its value, None when Unknown.
        comparison: `<`, `>=` ... as the rule or guardrail states it, "" where there is none.
        threshold: What it was compared with, None where there is no single number.
        reason: Why it is Unknown, "" when known.
        at: Sample time.
        count: Observations behind it.
        window_s: Window in seconds.
        arm: "" for the whole target, else "canary" or "control".
    """

    signal: str
    value: float | None
    comparison: str = ""
    threshold: float | None = None
    reason: str = ""
    at: datetime | None = None
    count: float | None = None
    window_s: float | None = None
    arm: str = ""

    @classmethod
    def of(
        cls,
        reading: Reading,
        *,
        comparison: str = "",
        threshold: float | None = None,
        arm: str = "",
    ) -> "Evidence":
        """Take a reading as evidence."""
        return cls(
            signal=reading.signal,
            value=reading.value,
            comparison=comparison,
            threshold=threshold,
            reason=str(reading.reason or ""),
            at=reading.at,
            count=reading.count,
            window_s=reading.window_s,
            arm=arm,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRef:
    """Which rule of which version decided; empty for a probe."""

    rule_set: str = ""
    version: int = 0
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.rule_set}@{self.version}/{self.rule}" if self.rule else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One signal of both arms over one short window of the analysis; slices do not overlap.

    Attributes:
        start: Start of the slice.
        end: End of the slice.
        canary: Value per signal on the canary; a missing key is Unknown.
        control: Value per signal on the replicas that still run the old setting.
        canary_requests: Requests that finished on the canary in the slice.
        control_requests: Requests that finished on the control arm in the slice.
        canary_drafts: Drafts verified on the canary in the slice.
    """

    start: datetime
    end: datetime
    canary: Mapping[str, float] = field(default_factory=dict)
    control: Mapping[str, float] = field(default_factory=dict)
    canary_requests: float = 0.0
    control_requests: float = 0.0
    canary_drafts: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagChange:
    """One proposed or executed switch of a target from one setting to another.

    Attributes:
        id: Unique, usable as a Kubernetes object name.
        policy: The policy that asked.
        target: What is changed.
        kind: Rule or probe.
        origin: What ran before; rolling back re-applies exactly this.
        wanted: What is to run.
        rule: The rule that fired.
        evidence: The numbers it fired on.
        phase: Where it stands.
        reason: Why it entered this phase.
        message: The same in words.
        created_at: When it was proposed.
        phase_since: When it entered this phase.
        base_template: Hash of the user's part of the template when it began.
        seen_applied: The workload has been seen to carry `wanted`; if it no longer does,
            somebody undid it.
        slices: The analysis so far.
        watched: Newest slices of the present phase, of the canary alone, while it is rolled out and
            watched.
        seen: What was seen of each replica's readiness since the analysis began, by instance.
        before: Readings of the target before the change, where no control arm will be left.
        engine: What the engine was (`economics.engine_of`); a failure says nothing of another one.
        decided_by: Who approved or rejected it.
        undo_reason: Why it is being rolled back.
        step: Counts transitions; names the audit record of each.
        revision: Counts writes; a writer that read an older revision must read again.
    """

    id: str
    policy: PolicyRef
    target: TargetRef
    kind: ChangeKind = ChangeKind.RULE
    origin: Declared
    wanted: Declared
    rule: RuleRef = RuleRef()
    evidence: tuple[Evidence, ...] = ()
    phase: Phase
    reason: ChangeReason
    message: str = ""
    created_at: datetime
    phase_since: datetime
    ended_at: datetime | None = None
    base_template: str = ""
    seen_applied: bool = False
    slices: tuple[Slice, ...] = ()
    watched: tuple[Slice, ...] = ()
    seen: Mapping[str, Seen] = field(default_factory=dict)
    before: Mapping[str, float] = field(default_factory=dict)
    engine: str = ""
    decided_by: str = ""
    undo_reason: ChangeReason | None = None
    step: int = 0
    revision: int = 0


class Extent(StrEnum):
    """On how many replicas an intent is to be carried out."""

    CANARY = "Canary"
    ALL = "All"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What a fleet must bring about for a target; carrying it out twice does no harm.

    Attributes:
        target: Which target.
        declared: What replicas are to run.
        extent: CANARY holds the roll after the first replicas; ALL lets it finish.
        canary_replicas: How many replicas CANARY means.
        previous: What the other replicas run while it is a canary.
    """

    target: TargetRef
    declared: Declared
    extent: Extent
    canary_replicas: int
    previous: Declared


def intent(change: FlagChange, *, canary_replicas: int, present: Declared) -> Intent | None:
    """Return what must be true of the workload in this phase; None asks for nothing.

    Args:
        change: The change.
        canary_replicas: How many replicas try the setting first.
        present: What the workload declares now. When somebody else has replaced our value it is
            left alone: only what holds the roll is released.
    """
    match change.phase:
        case Phase.CANARY | Phase.ANALYSING:
            declared, extent = change.wanted, Extent.CANARY
        case Phase.PROMOTING | Phase.WATCHING:
            declared, extent = change.wanted, Extent.ALL
        case Phase.ROLLING_BACK:
            foreign = present not in (change.wanted, change.origin)
            declared, extent = present if foreign else change.origin, Extent.ALL
        case _:
            return None
    return Intent(
        target=change.target,
        declared=declared,
        extent=extent,
        canary_replicas=canary_replicas,
        previous=change.origin,
    )


class IllegalTransitionError(ValueError):
    """A phase that cannot follow; a fault of the program, never of the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A decided step: the new phase, why, and the numbers behind it."""

    to: Phase
    reason: ChangeReason
    message: str
    evidence: tuple[Evidence, ...] = ()
    actor: str = "specpilot"


def advance(change: FlagChange, step: Transition, *, now: datetime) -> FlagChange:
    """Apply a step.

    Raises:
        IllegalTransitionError: The phase cannot follow the present one.
    """
    if step.to not in TRANSITIONS[change.phase]:
        raise IllegalTransitionError(f"{change.id}: {change.phase} cannot become {step.to}")
    return replace(
        change,
        phase=step.to,
        reason=step.reason,
        message=step.message,
        step=change.step + 1,
        phase_since=now,
        ended_at=now if step.to.ended else None,
        watched=(),
        undo_reason=step.reason if step.to is Phase.ROLLING_BACK else change.undo_reason,
    )
