"""What happened in a demo, read back from the database, and whether it is what was promised."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specpilot.cli.demo.receiver import Receiver
from specpilot.cli.demo.scene import STEERED, duration, met
from specpilot.cli.demo.traffic import Traffic
from specpilot.domain.audit import AuditRecord, Verification
from specpilot.domain.changes import ChangeKind, FlagChange, Phase
from specpilot.store import OutboxState, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything the demo shows at its end.

    Attributes:
        database: URL of the database, left for the curious.
        changes: Flag changes, oldest first.
        records: Audit records, oldest first.
        verification: Result of walking the audit chain.
        enqueued: Alerts written with the changes.
        delivered: Alerts the receiver took, each once.
        goodput: By fleet, output tokens per second that met their objective.
        share: By fleet, part of the requests that met their objective.
    """

    database: str
    changes: Sequence[FlagChange]
    records: Sequence[AuditRecord]
    verification: Verification
    enqueued: int
    delivered: Sequence[dict[str, Any]]
    goodput: dict[str, float]
    share: dict[str, float]

    def missing(self) -> list[str]:
        """What was promised and did not happen, in words."""
        done = [c for c in self.changes if c.phase is Phase.SUCCEEDED]
        promised = {
            "speculation was switched off because the batch grew": any(
                c.rule.rule == "off-when-busy" for c in done
            ),
            "speculation was switched off because drafts were rejected": any(
                c.rule.rule == "off-when-drafts-are-rejected" for c in done
            ),
            "a probe was kept when drafts were good again": bool(done)
            and done[-1].kind is ChangeKind.PROBE,
            "every change ended": all(c.phase.ended for c in self.changes),
            "the audit chain holds": self.verification.ok and self.verification.records > 0,
            "every alert was delivered": self.enqueued > 0 and len(self.delivered) == self.enqueued,
            "Specpilot beat always on": self.goodput[STEERED] > self.goodput["always-on"],
            "Specpilot beat always off": self.goodput[STEERED] > self.goodput["always-off"],
        }
        return [words for words, happened in promised.items() if not happened]

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
                        {"signal": e.signal, "value": e.value, "threshold": e.threshold}
                        for e in c.evidence
                    ],
                    "started": c.created_at.isoformat(),
                    "finished": c.ended_at.isoformat() if c.ended_at else None,
                    "outcome": str(c.phase),
                }
                for c in self.changes
            ],
            "audit": {
                "records": self.verification.records,
                "verified": self.verification.ok,
            },
            "alerts": {"events": self.enqueued, "delivered": len(self.delivered)},
            "goodput": {
                "specpilot": self.goodput[STEERED],
                "always_on": self.goodput["always-on"],
                "always_off": self.goodput["always-off"],
            },
            "met_objective": dict(self.share),
        }


def read_outcome(*, store: Store, database: str, traffic: Traffic, receiver: Receiver) -> Outcome:
    """Read what happened."""
    with store.read() as unit:
        changes = list(reversed(unit.changes.recent(limit=100)))
        records = unit.audit.records(limit=1000)
        verification = unit.audit.verify()
        counts = unit.outbox.counts()
    return Outcome(
        database=database,
        changes=changes,
        records=records,
        verification=verification,
        enqueued=sum(counts.values()),
        delivered=receiver.alerts(),
        goodput={n: s.goodput(met, span=duration()) for n, s in traffic.scores.items()},
        share={n: s.share(met) or 0.0 for n, s in traffic.scores.items()},
    )


def alerts_pending(store: Store) -> bool:
    """Whether alerts still wait to be sent."""
    with store.read() as unit:
        return unit.outbox.counts().get(OutboxState.WAITING, 0) > 0
