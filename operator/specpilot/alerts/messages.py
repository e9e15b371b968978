"""What alerts say: from an event and a flag change as plain data, to words and to JSON. Pure.

Three readers: a person in a chat (`title`, `text`), a program behind a webhook (`payload`), and
Slack (`slack_body`), which wants its own form. The payload alone is stored, and everything else can
be made from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specpilot.domain.policy import Event
from specpilot.domain.signals import SIGNALS, Unit

Plain = dict[str, object]

_SLACK_HEADER = 150
_SLACK_SECTION = 3000
_EVIDENCE_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An alert in words and in data.

    Attributes:
        title: One line, without links and markup.
        text: The whole, as plain text without links.
        payload: The whole, as data; see `compose`.
    """

    title: str
    text: str
    payload: Plain


def compose(event: Event, change: Mapping[str, Any], *, at: datetime) -> Message:
    """Make the message of an event.

    The payload is a contract with receivers. Keys may be added, none is renamed or removed; what
    is not known is "" (texts) or null (numbers, instants)::

        event      what happened: one of the events a policy can subscribe to
        policy     "namespace/name"
        target     "Kind/namespace/name"
        change     id of the flag change, "" for an event that belongs to none
        from       setting that ran before the change
        to         setting the change asks for; of a RolledBack change, the one that was undone
        rule       "ruleset@version/rule", "" for a probe
        reason     from the catalogue of reasons
        message    the same in words
        evidence   [{signal, value, comparison, threshold, reason, at, count, window_s, arm}]:
                   value null and a reason where the signal was unknown; values in the signal's unit
        at         when, ISO 8601 in UTC

    Args:
        event: What happened.
        change: A flag change as the store encodes it, as it stands after the event: `reason`,
            `message` and `evidence` are those of the step that is told. For an event of no change,
            the same shape with just `policy`, `target` and whatever else is known.
        at: When it happened.
    """
    payload: Plain = {
        "event": str(event),
        "policy": _path(change.get("policy"), "namespace", "name"),
        "target": _path(change.get("target"), "kind", "namespace", "name"),
        "change": str(change.get("id") or ""),
        "from": str((change.get("origin") or {}).get("setting", "")),
        "to": str((change.get("wanted") or {}).get("setting", "")),
        "rule": _rule(change.get("rule") or {}),
        "reason": str(change.get("reason") or ""),
        "message": str(change.get("message") or ""),
        "evidence": [dict(e) for e in change.get("evidence") or ()],
        "at": at.astimezone(UTC).isoformat(timespec="seconds"),
    }
    return Message(title=title(payload), text=text(payload), payload=payload)


def title(payload: Mapping[str, Any]) -> str:
    """Return the first line: what happened to which policy."""
    before, after = payload["from"] or "?", payload["to"] or "?"
    words = {
        Event.ADVISED: f"would switch {before} to {after}",
        Event.APPROVAL_NEEDED: f"asks to switch {before} to {after}",
        Event.STARTED: f"is trying {after} instead of {before}",
        Event.FLIPPED: f"switched {before} to {after}",
        Event.ROLLED_BACK: f"went back to {before}: {after} did not hold",
        Event.ABORTED: f"gave up switching {before} to {after}",
        Event.PROBE_KEPT: f"keeps {after}: it beat {before} on a probe",
        Event.PROBE_UNDONE: f"stays with {before}: a probe of {after} did not pay",
        Event.CONTESTED: "is contested: somebody else sets the same field",
        Event.SIGNALS_LOST: "has lost its signals and changes nothing",
    }.get(payload["event"], str(payload["event"]))
    return f"{payload['policy'] or 'Specpilot'} {words}"


def text(payload: Mapping[str, Any]) -> str:
    """Return the whole message as plain text, without links."""
    lines = [title(payload)]
    if payload["message"]:
        lines.append(payload["message"])
    lines += [f"- {line}" for line in _evidence_lines(payload["evidence"])]
    facts = [f"{name} {value}" for name, value in _facts(payload)]
    return "\n".join([*lines, ", ".join(facts)])


def slack_body(payload: Mapping[str, Any]) -> Plain:
    """Return the body for a Slack incoming webhook: blocks, and plain text for notifications."""
    blocks: list[Plain] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": _cut(title(payload), _SLACK_HEADER)},
        }
    ]
    if payload["message"]:
        blocks.append(_section(_escaped(payload["message"])))
    if evidence := _evidence_lines(payload["evidence"]):
        blocks.append(_section("\n".join(f"• {_escaped(line)}" for line in evidence)))
    facts = "  |  ".join(f"*{name}* {_escaped(value)}" for name, value in _facts(payload))
    blocks.append({"type": "context", "elements": [_markdown(facts)]})
    return {
        "text": _cut(_escaped(text(payload)), _SLACK_SECTION),
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _path(ref: Mapping[str, Any] | None, *keys: str) -> str:
    return "/".join(str(ref.get(key, "")) for key in keys) if ref else ""


def _rule(rule: Mapping[str, Any]) -> str:
    return f"{rule['rule_set']}@{rule['version']}/{rule['rule']}" if rule.get("rule") else ""


def _facts(payload: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = ("target", "rule", "reason", "change", "at")
    return [(name, str(payload[name])) for name in names if payload[name]]


def _evidence_lines(evidence: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [_evidence_line(e) for e in evidence[:_EVIDENCE_SHOWN]]
    if (more := len(evidence) - len(lines)) > 0:
        lines.append(f"and {more} more")
    return lines


def _evidence_line(evidence: Mapping[str, Any]) -> str:
    signal = str(evidence["signal"])
    arm = f" ({evidence['arm']})" if evidence.get("arm") else ""
    value, threshold = evidence.get("value"), evidence.get("threshold")
    if value is None:
        return f"{signal}{arm} unknown: {evidence.get('reason') or 'NoData'}"
    line = f"{signal}{arm} {_number(value, signal)}"
    if threshold is not None:
        line += f" {evidence.get('comparison') or 'against'} {_number(threshold, signal)}"
    notes = []
    if (count := evidence.get("count")) is not None:
        notes.append(f"{count:,.0f} observations")
    if (window := evidence.get("window_s")) is not None:
        notes.append(f"over {window:g} s")
    return f"{line}, {' '.join(notes)}" if notes else line


def _number(value: float, signal: str) -> str:
    known = SIGNALS.get(signal)
    match known.unit if known else None:
        case Unit.RATIO:
            return f"{100 * value:.3g} %"
        case Unit.SECONDS if 0 < abs(value) < 1:
            return f"{1000 * value:.3g} ms"
        case Unit.SECONDS:
            return f"{_plain(value)} s"
        case Unit.TOKENS_PER_SECOND | Unit.REQUESTS_PER_SECOND:
            return f"{_plain(value)}/s"
        case _:
            return _plain(value)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 - no exponents


def _section(markdown: str) -> Plain:
    return {"type": "section", "text": _markdown(markdown)}


def _markdown(content: str) -> Plain:
    return {"type": "mrkdwn", "text": _cut(content, _SLACK_SECTION), "verbatim": True}


def _escaped(content: str) -> str:
    """Escape what Slack would read as a link or a mention (`<!channel>`)."""
    return content.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(content: str, limit: int) -> str:
    return content if len(content) <= limit else content[: limit - 1] + "…"
