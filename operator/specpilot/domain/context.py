"""What a condition may ask beside signals: the active setting, the target, and the time of day.

Names are flat (`target.engine`), one value each, so that a value that is not known can be left
out by itself and makes only what uses it Unknown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from specpilot.domain.settings import Setting
from specpilot.domain.signals import Unit
from specpilot.domain.targets import TargetState


class Kind(StrEnum):
    """What a value in a condition can be."""

    NUMBER = "a number"
    TEXT = "text"
    BOOLEAN = "true or false"
    LABELS = "labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A name that conditions know beside signals and parameters.

    Attributes:
        name: With its member, as it is written.
        kind: What it is.
        unit: Unit of a number, in words.
        meaning: One sentence.
    """

    name: str
    kind: Kind
    meaning: str
    unit: str = ""


def _text(name: str, meaning: str) -> Variable:
    return Variable(name=name, kind=Kind.TEXT, meaning=meaning)


def _number(name: str, unit: str, meaning: str) -> Variable:
    return Variable(name=name, kind=Kind.NUMBER, unit=unit, meaning=meaning)


VARIABLES: Mapping[str, Variable] = {
    v.name: v
    for v in (
        _text("setting.name", "name of the active setting in its policy; off when it is off"),
        _text("setting.method", "its method (`eagle3`, `ngram`), empty when it is off"),
        _number("setting.depth", Unit.TOKENS, "tokens it drafts at a time, 0 when it is off"),
        _text("target.name", "name of the workload or the local group"),
        _text("target.namespace", "its namespace"),
        _text("target.kind", "`Deployment`, `Local` and so on"),
        _number("target.replicas", Unit.REPLICAS, "replicas wanted"),
        _number("target.ready", Unit.REPLICAS, "replicas that serve"),
        _text("target.engine", "version of the engine, such as `0.32.0`"),
        _number(
            "target.release",
            "releases",
            "1000 * major + minor of that version: 0.32.1 is 32, 1.2.0 is 1002",
        ),
        Variable(name="target.labels", kind=Kind.LABELS, meaning="labels of the workload"),
        _number("time.hour", "hours of the day", "0 to 23, in the rule set's `timeZone`"),
        _number("time.minute", "minutes of the hour", "0 to 59"),
        _number("time.weekday", "days of the week", "1 is Monday, 7 is Sunday"),
    )
}
"""All of them by name."""

_RELEASE = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What is known of a target; None is Unknown, and `TargetFacts()` knows nothing.

    Attributes:
        name: Name of the workload or the local group.
        namespace: Its namespace.
        kind: `Deployment`, `Local`, ...
        replicas: Replicas wanted by the user or an autoscaler.
        ready: Replicas that serve.
        engine: The engine's version as text (`0.32.0`).
        labels: Labels of the workload.
    """

    name: str | None = None
    namespace: str | None = None
    kind: str | None = None
    replicas: int | None = None
    ready: int | None = None
    engine: str | None = None
    labels: Mapping[str, str] | None = None

    @classmethod
    def of(cls, state: TargetState) -> Self:
        """Take them from what a fleet reports."""
        return cls(
            name=state.ref.name,
            namespace=state.ref.namespace,
            kind=state.ref.kind,
            replicas=state.desired_replicas,
            ready=sum(r.ready for r in state.live()),
            engine=state.engine_version or None,
            labels=state.labels,
        )

    @property
    def release(self) -> float | None:
        """1000 * major + minor of the engine's version: 0.32.1 is 32, which compares rightly."""
        match = _RELEASE.match(self.engine or "")
        return None if match is None else 1000.0 * int(match[1]) + int(match[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingFacts:
    """What is known of the active setting; None is Unknown.

    The operator knows its settings whole. A file of recorded readings may not say them.

    Attributes:
        name: Its name.
        method: Its method, "" for off.
        depth: Tokens drafted a step, 0 for off.
    """

    name: str | None = None
    method: str | None = None
    depth: float | None = None

    @classmethod
    def of(cls, setting: Setting) -> Self:
        """Take them from a setting."""
        return cls(
            name=setting.name,
            method=setting.method or "",
            depth=float(setting.num_speculative_tokens or 0),
        )


def read_zone(name: str) -> ZoneInfo:
    """Find a time zone by its IANA name.

    Raises:
        ValueError: There is none; says what to write.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name!r} is no time zone; write an IANA name such as UTC or Europe/Berlin"
        ) from None


def target_variables(target: TargetFacts) -> dict[str, object]:
    """Return what is known, under the names conditions use; numbers are doubles."""
    known: dict[str, object | None] = {
        "target.name": target.name,
        "target.namespace": target.namespace,
        "target.kind": target.kind,
        "target.replicas": None if target.replicas is None else float(target.replicas),
        "target.ready": None if target.ready is None else float(target.ready),
        "target.engine": target.engine,
        "target.release": target.release,
        "target.labels": None if target.labels is None else dict(target.labels),
    }
    return {name: value for name, value in known.items() if value is not None}


def setting_variables(setting: Setting | SettingFacts) -> dict[str, object]:
    """Return name, method ("" for off) and depth (0 for off) of the active setting."""
    facts = setting if isinstance(setting, SettingFacts) else SettingFacts.of(setting)
    known: dict[str, object | None] = {
        "setting.name": facts.name,
        "setting.method": facts.method,
        "setting.depth": facts.depth,
    }
    return {name: value for name, value in known.items() if value is not None}


def time_variables(now: datetime, *, zone: tzinfo) -> dict[str, object]:
    """Return hour (0-23), minute and ISO weekday (Monday is 1) on the clocks of a zone."""
    local = now.astimezone(zone)
    return {
        "time.hour": float(local.hour),
        "time.minute": float(local.minute),
        "time.weekday": float(local.isoweekday()),
    }
