"""What a demo left in the database: changes, audit chain, alerts, and what is promised of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specpilot.cli.demo.receiver import Receiver
from specpilot.domain.audit import AuditRecord, Verification
from specpilot.domain.changes import FlagChange, Phase
from specpilot.store import OutboxState, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The record of a demo.

    Attributes:
        database: URL of the database, left for the curious.
        changes: Flag changes, oldest first.
        records: Audit records, oldest first.
        verification: Result of walking the audit chain.
        enqueued: Alerts written with the changes.
        delivered: Alerts the receiver took, each once.
    """

    database: str
    changes: Sequence[FlagChange]
    records: Sequence[AuditRecord]
    verification: Verification
    enqueued: int
    delivered: Sequence[dict[str, Any]]

    @property
    def succeeded(self) -> list[FlagChange]:
        """Changes that were rolled out and stayed, oldest first."""
        return [c for c in self.changes if c.phase is Phase.SUCCEEDED]

    def promises(self) -> dict[str, bool]:
        """What is promised of every demo, in words, and whether it happened."""
        return {
            "every change ended": all(c.phase.ended for c in self.changes),
            "the audit chain holds": self.verification.ok and self.verification.records > 0,
            "every alert was delivered": self.enqueued > 0 and len(self.delivered) == self.enqueued,
        }

    def as_plain(self) -> dict[str, Any]:
        """For machines."""
        return {
            "database": self.database,
            "flips": [
                {
                    "id": c.id,
                    "target": str(c.target),
                    "from": c.origin.setting,
                    "to": c.wanted.setting,
                    "kind": str(c.kind),
                    "rule": str(c.rule) or "probe",
                    "evidence": [
                        {
                            "signal": e.signal,
                            "value": e.value,
                            "threshold": e.threshold,
                            "arm": e.arm,
                        }
                        for e in c.evidence
                    ],
                    "started": c.created_at.isoformat(),
                    "finished": c.ended_at.isoformat() if c.ended_at else None,
                    "outcome": str(c.phase),
                    "steps": [
                        {
                            "at": r.at.isoformat(),
                            "step": r.draft.action,
                            "by": r.draft.actor,
                            "why": r.draft.message,
                        }
                        for r in self.records
                        if r.draft.change_id == c.id
                    ],
                }
                for c in self.changes
            ],
            "audit": {
                "records": self.verification.records,
                "verified": self.verification.ok,
            },
            "alerts": {"events": self.enqueued, "delivered": len(self.delivered)},
        }


def read_recorded(*, store: Store, database: str, receiver: Receiver) -> Recorded:
    """Read what happened."""
    with store.read() as unit:
        changes = list(reversed(unit.changes.recent(limit=100)))
        records = unit.audit.records(limit=1000)
        verification = unit.audit.verify()
        counts = unit.outbox.counts()
    return Recorded(
        database=database,
        changes=changes,
        records=records,
        verification=verification,
        enqueued=sum(counts.values()),
        delivered=receiver.alerts(),
    )


def alerts_pending(store: Store) -> bool:
    """Whether alerts still wait to be sent."""
    with store.read() as unit:
        return unit.outbox.counts().get(OutboxState.WAITING, 0) > 0
