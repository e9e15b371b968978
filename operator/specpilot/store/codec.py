"""Flag changes and policy memory as plain data and back: the stored format, written out.

Written by hand because the format outlives the code: renaming an attribute of the domain must not
silently rename a key in databases that exist. A key that an older release did not write reads as
the attribute's default. Instants are ISO 8601 in UTC.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from specpilot.domain.changes import (
    ChangeKind,
    ChangeReason,
    Evidence,
    FlagChange,
    Phase,
    RuleRef,
    Slice,
)
from specpilot.domain.memory import Pending, PolicyMemory
from specpilot.domain.policy import PolicyRef
from specpilot.domain.readiness import Seen
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Channel, TargetRef

Plain = dict[str, object]
_Json = Mapping[str, Any]


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()


def _read_instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _read_required_instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def policy_ref_to_plain(ref: PolicyRef) -> Plain:
    """Encode a policy's identity."""
    return {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}


def _policy_ref(data: _Json) -> PolicyRef:
    return PolicyRef(namespace=data["namespace"], name=data["name"], uid=data["uid"])


def target_to_plain(ref: TargetRef) -> Plain:
    """Encode a target's identity."""
    return {
        "kind": ref.kind,
        "namespace": ref.namespace,
        "name": ref.name,
        "container": ref.container,
        "channel": str(ref.channel),
    }


def _target(data: _Json) -> TargetRef:
    return TargetRef(
        kind=data["kind"],
        namespace=data["namespace"],
        name=data["name"],
        container=data.get("container", ""),
        channel=Channel(data.get("channel", Channel.AUTO)),
    )


def declared_to_plain(declared: Declared) -> Plain:
    """Encode what a workload is told to run."""
    return {
        "setting": declared.setting,
        "config": declared.config,
        "change_id": declared.change_id,
    }


def _declared(data: _Json) -> Declared:
    return Declared(
        setting=data["setting"], config=data["config"], change_id=data.get("change_id", "")
    )


def evidence_to_plain(evidence: Evidence) -> Plain:
    """Encode one number a decision rests on; also the form in audit records and alerts."""
    return {
        "signal": evidence.signal,
        "value": evidence.value,
        "comparison": evidence.comparison,
        "threshold": evidence.threshold,
        "reason": evidence.reason,
        "at": _instant(evidence.at),
        "count": evidence.count,
        "window_s": evidence.window_s,
        "arm": evidence.arm,
    }


def evidence_from_plain(data: _Json) -> Evidence:
    """Decode `evidence_to_plain`."""
    return Evidence(
        signal=data["signal"],
        value=data["value"],
        comparison=data.get("comparison", ""),
        threshold=data.get("threshold"),
        reason=data.get("reason", ""),
        at=_read_instant(data.get("at")),
        count=data.get("count"),
        window_s=data.get("window_s"),
        arm=data.get("arm", ""),
    )


def _slice_to_plain(part: Slice) -> Plain:
    return {
        "start": _instant(part.start),
        "end": _instant(part.end),
        "canary": dict(part.canary),
        "control": dict(part.control),
        "canary_requests": part.canary_requests,
        "control_requests": part.control_requests,
        "canary_drafts": part.canary_drafts,
    }


def _slice(data: _Json) -> Slice:
    return Slice(
        start=_read_required_instant(data["start"]),
        end=_read_required_instant(data["end"]),
        canary=data.get("canary", {}),
        control=data.get("control", {}),
        canary_requests=data.get("canary_requests", 0.0),
        control_requests=data.get("control_requests", 0.0),
        canary_drafts=data.get("canary_drafts", 0.0),
    )


def _seen_to_plain(seen: Seen) -> Plain:
    return {
        "ready_since": _instant(seen.ready_since),
        "losses": seen.losses,
        "away_since": _instant(seen.away_since),
    }


def _seen(data: _Json) -> Seen:
    return Seen(
        ready_since=_read_instant(data.get("ready_since")),
        losses=data.get("losses", 0),
        away_since=_read_instant(data.get("away_since")),
    )


def change_to_plain(change: FlagChange) -> Plain:
    """Encode a flag change; also what alerts and the API show of it."""
    return {
        "id": change.id,
        "policy": policy_ref_to_plain(change.policy),
        "target": target_to_plain(change.target),
        "kind": str(change.kind),
        "origin": declared_to_plain(change.origin),
        "wanted": declared_to_plain(change.wanted),
        "rule": {
            "rule_set": change.rule.rule_set,
            "version": change.rule.version,
            "rule": change.rule.rule,
        },
        "evidence": [evidence_to_plain(e) for e in change.evidence],
        "phase": str(change.phase),
        "reason": str(change.reason),
        "message": change.message,
        "created_at": _instant(change.created_at),
        "phase_since": _instant(change.phase_since),
        "ended_at": _instant(change.ended_at),
        "base_template": change.base_template,
        "seen_applied": change.seen_applied,
        "slices": [_slice_to_plain(s) for s in change.slices],
        "watched": [_slice_to_plain(s) for s in change.watched],
        "seen": {instance: _seen_to_plain(seen) for instance, seen in change.seen.items()},
        "before": dict(change.before),
        "engine": change.engine,
        "decided_by": change.decided_by,
        "undo_reason": None if change.undo_reason is None else str(change.undo_reason),
        "step": change.step,
        "revision": change.revision,
    }


def change_from_plain(data: _Json) -> FlagChange:
    """Decode `change_to_plain`."""
    undo_reason = data.get("undo_reason")
    return FlagChange(
        id=data["id"],
        policy=_policy_ref(data["policy"]),
        target=_target(data["target"]),
        kind=ChangeKind(data["kind"]),
        origin=_declared(data["origin"]),
        wanted=_declared(data["wanted"]),
        rule=RuleRef(
            rule_set=data["rule"]["rule_set"],
            version=data["rule"]["version"],
            rule=data["rule"]["rule"],
        ),
        evidence=tuple(evidence_from_plain(e) for e in data.get("evidence", [])),
        phase=Phase(data["phase"]),
        reason=ChangeReason(data["reason"]),
        message=data.get("message", ""),
        created_at=_read_required_instant(data["created_at"]),
        phase_since=_read_required_instant(data["phase_since"]),
        ended_at=_read_instant(data.get("ended_at")),
        base_template=data.get("base_template", ""),
        seen_applied=data.get("seen_applied", False),
        slices=tuple(_slice(s) for s in data.get("slices", [])),
        watched=tuple(_slice(s) for s in data.get("watched", [])),
        seen={instance: _seen(seen) for instance, seen in data.get("seen", {}).items()},
        before=data.get("before", {}),
        engine=data.get("engine", ""),
        decided_by=data.get("decided_by", ""),
        undo_reason=None if undo_reason is None else ChangeReason(undo_reason),
        step=data.get("step", 0),
        revision=data.get("revision", 0),
    )


def _pending_to_plain(pending: Pending) -> Plain:
    plain: Plain = {
        "since": _instant(pending.since),
        "last_true": _instant(pending.last_true),
    }
    if pending.last_known is not None:
        plain["last_known"] = _instant(pending.last_known)
    if pending.latched:
        plain["latched"] = True
    if pending.windows:
        plain["windows"] = [_instant(w) for w in pending.windows]
    return plain


def _pending(data: _Json) -> Pending:
    return Pending(
        since=_read_required_instant(data["since"]),
        last_true=_read_required_instant(data["last_true"]),
        last_known=_read_instant(data.get("last_known")),
        latched=data.get("latched", False),
        windows=tuple(_read_required_instant(w) for w in data.get("windows", ())),
    )


def memory_to_plain(memory: PolicyMemory) -> Plain:
    """Encode the memory of a policy."""
    return {
        "rules": memory.rules,
        "pending": {name: _pending_to_plain(p) for name, p in memory.pending.items()},
        "active": memory.active,
        "active_since": _instant(memory.active_since),
        "last_speculating": memory.last_speculating,
        "probes_lost": memory.probes_lost,
        "last_probe_ended": _instant(memory.last_probe_ended),
        "last_flip": _instant(memory.last_flip),
        "advised": memory.advised,
        "signals_lost": _instant(memory.signals_lost),
        "signals_lost_alerted": memory.signals_lost_alerted,
        "left": memory.left,
        "undone": [_instant(at) for at in memory.undone],
        "contested": memory.contested,
    }


def memory_from_plain(data: _Json) -> PolicyMemory:
    """Decode `memory_to_plain`."""
    return PolicyMemory(
        rules=data.get("rules", ""),
        pending={name: _pending(p) for name, p in data.get("pending", {}).items()},
        active=data.get("active", ""),
        active_since=_read_instant(data.get("active_since")),
        last_speculating=data.get("last_speculating", ""),
        probes_lost=data.get("probes_lost", 0),
        last_probe_ended=_read_instant(data.get("last_probe_ended")),
        last_flip=_read_instant(data.get("last_flip")),
        advised=data.get("advised", ""),
        signals_lost=_read_instant(data.get("signals_lost")),
        signals_lost_alerted=data.get("signals_lost_alerted", False),
        left=data.get("left", ""),
        undone=tuple(_read_required_instant(at) for at in data.get("undone", ())),
        contested=data.get("contested"),
    )
