"""The audit record and its hash chain: what happened, on what evidence, by whom."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from specpilot.domain.settings import canonical_json

GENESIS = "0" * 64
"""`prev_hash` of the first record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditDraft:
    """A record before it has its place in the chain.

    Attributes:
        action: `Proposed`, a phase of a flag change, `RuleSetApplied`, ...
        actor: `specpilot`, a person, or a rule as `rule:set@version/name`.
        namespace: Namespace of the policy.
        policy: Name of the policy, "" where there is none.
        target: Target as text, "" where there is none.
        change_id: Flag change, "" where there is none.
        step: Number of the step within the change; (change_id, step) is unique.
        before: State before, as plain data.
        after: State after, as plain data.
        reason: From a fixed catalogue.
        message: In words.
        evidence: The numbers, as plain data.
        mode: Mode of the policy at that moment.
    """

    action: str
    actor: str
    namespace: str = ""
    policy: str = ""
    target: str = ""
    change_id: str = ""
    step: int | None = None
    before: Mapping[str, object] = field(default_factory=dict)
    after: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    evidence: tuple[Mapping[str, object], ...] = ()
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A record in the chain."""

    seq: int
    at: datetime
    draft: AuditDraft
    prev_hash: str
    hash: str


def _when(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def seal(draft: AuditDraft, *, seq: int, at: datetime, prev_hash: str) -> AuditRecord:
    """Give a draft its place: the hash covers every field, the place and the previous hash."""
    body = {
        "seq": seq,
        "at": _when(at),
        "prev_hash": prev_hash,
        **{name: getattr(draft, name) for name in AuditDraft.__slots__},
    }
    digest = hashlib.sha256(canonical_json(body).encode()).hexdigest()
    return AuditRecord(seq=seq, at=at, draft=draft, prev_hash=prev_hash, hash=digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Result of walking the chain: how many records hold, and the first one that does not."""

    records: int
    head: str
    broken_at: int | None = None
    message: str = "the chain holds"

    @property
    def ok(self) -> bool:
        """Whether every record is what was written."""
        return self.broken_at is None


def verify(records: Iterable[AuditRecord]) -> Verification:
    """Walk the chain in order of `seq`; a gap, an edit or a swap shows at its first record."""
    prev, count = GENESIS, 0
    for expected, record in enumerate(records, start=1):
        if record.seq != expected:
            problem = f"record {expected} is missing: {record.seq} follows {expected - 1}"
        elif record.prev_hash != prev:
            problem = f"record {record.seq} does not follow the record before it"
        elif seal(record.draft, seq=record.seq, at=record.at, prev_hash=prev).hash != record.hash:
            problem = f"record {record.seq} was altered after it was written"
        else:
            prev, count = record.hash, count + 1
            continue
        return Verification(records=count, head=prev, broken_at=expected, message=problem)
    return Verification(records=count, head=prev)
