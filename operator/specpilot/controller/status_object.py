"""A policy's status as the plain object that `kubectl get -o yaml` and `specpilot get` show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from operator import attrgetter
from typing import Any

from specpilot.controller.registry import Condition, PolicyStatus
from specpilot.domain.readings import Reading, Readings
from specpilot.domain.signals import REMEMBERED, SIGNALS
from specpilot.resources.mirror import timestamp

gist_of: Callable[[PolicyStatus], tuple[object, ...]] = attrgetter(
    *(f.name for f in fields(PolicyStatus) if f.name not in {"policy", "verdict", "readings"})
)
"""All that a status says besides its readings and the words about them."""

_WORDS = {True: "True", False: "False", None: "Unknown"}


def status_object(
    status: PolicyStatus, *, previous: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the status; a condition keeps its transition time while its status does not change."""
    return with_readings(words_object(status, previous=previous, now=now), status.readings)


def with_readings(words: dict[str, Any], readings: Readings) -> dict[str, Any]:
    """Return the status with its readings."""
    return words | {"readings": [_reading(r) for r in readings.values()]} if readings else words


def words_object(
    status: PolicyStatus, *, previous: Mapping[str, Any], now: datetime
) -> dict[str, Any]:
    """Return the status without its readings, which are most of the work and seldom written."""
    old = {c["type"]: c for c in previous.get("conditions") or []}
    found: dict[str, Any] = {
        "observedGeneration": status.generation,
        "mode": status.mode,
        "phase": status.phase,
        "active": status.active,
        "desired": status.desired,
        "change": status.change_id,
        "lastFlip": timestamp(status.last_flip) if status.last_flip else None,
        "verdict": status.verdict,
        "rule": status.rule,
        "ruleSetVersion": status.rule_version,
        "message": _summary(status.conditions),
        "replicas": [asdict(count) for count in status.replicas],
        "conditions": [
            condition_object(c, old.get(c.type), generation=status.generation, now=now)
            for c in status.conditions
        ],
    }
    return {key: value for key, value in found.items() if value not in (None, "", [])}


def _summary(conditions: Sequence[Condition]) -> str:
    """What a user should read first: what is broken, else what holds a flip back."""
    for kind, bad in (("Ready", False), ("Held", True)):
        found = next((c for c in conditions if c.type == kind and c.status is bad), None)
        if found is not None:
            return f"{found.reason}: {found.message}"
    return ""


def condition_object(
    condition: Condition, old: Mapping[str, Any] | None, *, generation: int, now: datetime
) -> dict[str, Any]:
    """One condition; its transition time stays while its status does."""
    word = _WORDS[condition.status]
    same = old is not None and old.get("status") == word
    since = old["lastTransitionTime"] if old is not None and same else timestamp(now)
    return {
        "type": condition.type,
        "status": word,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def _reading(reading: Reading) -> dict[str, Any]:
    """Rounded: the status is for people, and digits that jitter would be written at every tick."""
    said = {
        "signal": reading.signal,
        "value": float(f"{reading.value:.4g}") if reading.value is not None else None,
        "reason": str(reading.reason or ""),
        "message": reading.message if reading.signal in REMEMBERED else "",
        "unit": str(SIGNALS[reading.signal].unit) if reading.signal in SIGNALS else "",
        "count": round(reading.count) if reading.count is not None else None,
        "at": timestamp(reading.at) if reading.at else None,
    }
    return {key: value for key, value in said.items() if value not in (None, "")}
