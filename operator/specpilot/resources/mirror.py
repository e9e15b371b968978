"""A flag change as the object that users see, in a cluster and on one machine alike.

The database holds the truth; the object mirrors it. `decision` and `decidedBy` are the only
fields that flow the other way, so they are never written here.
"""

from datetime import UTC, datetime
from typing import Any

from specpilot.domain.changes import Evidence, FlagChange
from specpilot.domain.settings import Declared


def timestamp(at: datetime) -> str:
    """RFC 3339 in UTC, to the second, as Kubernetes writes times."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def flag_change_spec(change: FlagChange) -> dict[str, Any]:
    """The spec of a FlagChange: what was proposed."""
    spec: dict[str, Any] = {
        "policy": change.policy.name,
        "target": {"kind": change.target.kind, "name": change.target.name},
        "kind": str(change.kind),
        "from": _side(change.origin),
        "to": _side(change.wanted),
        "evidence": [_evidence(e) for e in change.evidence],
        "createdAt": timestamp(change.created_at),
    }
    if change.rule.rule:
        spec["rule"] = {
            "ruleSet": change.rule.rule_set,
            "version": change.rule.version,
            "rule": change.rule.rule,
        }
    return spec


def flag_change_status(change: FlagChange, *, waiting_for: str = "") -> dict[str, Any]:
    """The status of a FlagChange: where it stands, and what it waits for."""
    status: dict[str, Any] = {
        "phase": str(change.phase),
        "reason": str(change.reason),
        "message": waiting_for or change.message,
        "phaseSince": timestamp(change.phase_since),
    }
    if change.ended_at is not None:
        status["endedAt"] = timestamp(change.ended_at)
    if change.undo_reason is not None:
        status["undoReason"] = str(change.undo_reason)
    if change.decided_by:
        status["decidedBy"] = change.decided_by
    return status


def _side(declared: Declared) -> dict[str, Any]:
    return {"setting": declared.setting, "config": declared.config}


def _evidence(evidence: Evidence) -> dict[str, Any]:
    said = {
        "signal": evidence.signal,
        "value": evidence.value,
        "comparison": evidence.comparison,
        "threshold": evidence.threshold,
        "reason": evidence.reason,
        "count": evidence.count,
        "at": timestamp(evidence.at) if evidence.at else None,
        "windowSeconds": evidence.window_s,
        "arm": evidence.arm,
    }
    return {key: value for key, value in said.items() if value not in (None, "")}
