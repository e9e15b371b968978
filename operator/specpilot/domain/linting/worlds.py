"""The situations that lint tries: for every variable the values that could make a difference.

Between two neighbouring thresholds a comparison says the same of every value, so one value for
each stretch and one for each threshold stand for all. Where variables are compared with each
other there is no such list; values are then spread over what is usual, which can show that
something happens but not that it never does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TypeAlias
from zoneinfo import ZoneInfo

from specpilot.domain.context import TargetFacts
from specpilot.domain.linting.syntax import LABELS, Shape
from specpilot.domain.ranges import SHARES, WHOLE, limits
from specpilot.domain.readings import Reading, Readings
from specpilot.domain.settings import OFF, OFF_NAME, Setting
from specpilot.domain.signals import SIGNALS

Labels: TypeAlias = tuple[tuple[str, str], ...]
Value: TypeAlias = float | str | Labels | None
"""What a variable is; None is Unknown."""

SETTING = ("setting.name", "setting.method", "setting.depth")
TIME = ("time.hour", "time.minute", "time.weekday")

ANOTHER = "another"
"""Stands for every text that no condition names."""

_SPREAD: Mapping[str, Sequence[float]] = {
    "time.hour": range(24),
    "time.minute": (0, 15, 30, 45),
    "time.weekday": range(1, 8),
    "setting.depth": (1, 2, 3, 5, 7, 15),
    "target.replicas": (0, 1, 2, 3, 8, 64),
    "target.ready": (0, 1, 2, 3, 8, 64),
    "target.release": (11, 20, 32, 1000),
    "mean_acceptance_length": (1, 1.1, 1.3, 1.6, 2, 2.5, 3.5, 5, 8),
    "acceptance_baseline": (1, 1.3, 1.6, 2, 2.5, 3.5, 5, 8),
    "cost_ratio": (0.8, 1, 1.05, 1.2, 1.5, 2, 3, 5),
}
_SPREAD_SHARES = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
_SPREAD_OTHERS = (0.0, 0.01, 0.05, 0.2, 1.0, 4.0, 16.0, 40.0, 100.0, 400.0, 2000.0, 1e10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A variable and the values to try.

    Attributes:
        variable: Its name.
        values: The values; Unknown (None) is always the first.
    """

    variable: str
    values: tuple[Value, ...]


def axes(shapes: Iterable[Shape]) -> dict[str, Axis]:
    """Make one axis for each variable of some conditions."""
    shapes = list(shapes)
    thresholds: dict[str, set[float | str]] = {}
    loose = {name for s in shapes for name in s.loose}
    for each in shapes:
        for name in each.variables:
            thresholds.setdefault(name, set())
        for atom in each.atoms:
            thresholds[atom.variable].add(atom.threshold)
    return {
        name: _axis(name, found, loose=name in loose)
        for name, found in thresholds.items()
        if name != LABELS
    } | _label_axis({pair for s in shapes for pair in s.labels}, thresholds)


def _label_axis(pairs: set[tuple[str, str]], thresholds: Mapping[str, object]) -> dict[str, Axis]:
    if LABELS not in thresholds:
        return {}
    every = tuple(sorted(dict(sorted(pairs)).items()))
    values: tuple[Value, ...] = (None, *dict.fromkeys([(), *((p,) for p in sorted(pairs)), every]))
    return {LABELS: Axis(variable=LABELS, values=values)}


def _axis(variable: str, thresholds: set[float | str], *, loose: bool) -> Axis:
    texts = sorted(t for t in thresholds if isinstance(t, str))
    numbers = sorted(t for t in thresholds if not isinstance(t, str))
    if not numbers and (texts or variable in _TEXTS):
        other = ANOTHER
        while other in texts:
            other += "-"
        return Axis(variable=variable, values=(None, *texts, other))
    low, high = limits(variable)
    found = _cells(numbers, low, high, whole=variable in WHOLE)
    if loose:
        spread = _SPREAD.get(variable) or (_SPREAD_SHARES if variable in SHARES else _SPREAD_OTHERS)
        found |= {float(v) for v in spread}
    return Axis(variable=variable, values=(None, *sorted(found)))


_TEXTS = frozenset(
    {
        "setting.name",
        "setting.method",
        "target.name",
        "target.namespace",
        "target.kind",
        "target.engine",
    }
)


def _cells(thresholds: Sequence[float], low: float, high: float, *, whole: bool) -> set[float]:
    inside = [t for t in thresholds if low <= t <= high]
    if whole:
        near = {n for t in inside for n in (math.floor(t) - 1, math.floor(t), math.floor(t) + 1)}
        last = high if math.isfinite(high) else max(inside, default=low) + 2
        return {float(n) for n in near | {math.floor(low), math.floor(last)} if low <= n <= high}
    if not inside:
        return {low + 1.0 if math.isinf(high) else (low + high) / 2}
    found = set(inside)
    found |= {(a + b) / 2 for a, b in pairwise(inside)}
    if inside[0] > low:
        found.add((low + inside[0]) / 2)
    if inside[-1] < high:
        top = inside[-1]
        found.add((top + high) / 2 if math.isfinite(high) else top * 1.25 if top > 0 else 1.0)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What runs: a setting by name, of which a rule set knows no more than whether it is off."""

    setting: str

    @property
    def off(self) -> bool:
        """Whether nothing speculates."""
        return self.setting == OFF_NAME

    def values(self, axis: Axis) -> tuple[Value, ...]:
        """Those values of an axis that can be in this state."""
        name = axis.variable
        if name in TIME:
            return axis.values[1:]
        if name == "setting.name":
            return (self.setting,)
        if name == "setting.method":
            return ("",) if self.off else tuple(v for v in axis.values if v)
        if name == "setting.depth":
            return (0.0,) if self.off else tuple(v for v in axis.values if v)
        return axis.values if self.exists(name) else (None,)

    def exists(self, variable: str) -> bool:
        """Whether a variable can be known: acceptance is not measured while off."""
        signal = SIGNALS.get(variable)
        return not (self.off and signal is not None and signal.needs_speculation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Arguments for `CompiledRuleSet.evaluate`."""

    readings: Readings
    active: Setting
    target: TargetFacts
    now: datetime


_DEPTH = 3.0
_METHOD = "eagle3"


def situation(known: Mapping[str, Value], *, state: State, zone: ZoneInfo) -> Situation:
    """Make a situation of values; what is not named is Unknown, and a setting is made up."""
    readings = Readings.of(
        Reading(signal=name, value=value)
        for name, value in known.items()
        if name in SIGNALS and isinstance(value, float) and state.exists(name)
    )
    active = OFF
    if not state.off:
        active = Setting(
            name=state.setting,
            method=_text(known, "setting.method") or _METHOD,
            num_speculative_tokens=_whole(known, "setting.depth") or int(_DEPTH),
        )
    labels = known.get(LABELS)
    release = _whole(known, "target.release")
    engine = None if release is None else f"{release // 1000}.{release % 1000}.0"
    return Situation(
        readings=readings,
        active=active,
        target=TargetFacts(
            name=_text(known, "target.name"),
            namespace=_text(known, "target.namespace"),
            kind=_text(known, "target.kind"),
            replicas=_whole(known, "target.replicas"),
            ready=_whole(known, "target.ready"),
            engine=_text(known, "target.engine") or engine,
            labels=dict(labels) if isinstance(labels, tuple) else None,
        ),
        now=datetime(2026, 1, 5, tzinfo=zone)  # a Monday
        + timedelta(
            days=(_whole(known, "time.weekday") or 1) - 1,
            hours=_whole(known, "time.hour") or 0,
            minutes=_whole(known, "time.minute") or 0,
        ),
    )


def _text(known: Mapping[str, Value], name: str) -> str | None:
    value = known.get(name)
    return value if isinstance(value, str) else None


def _whole(known: Mapping[str, Value], name: str) -> int | None:
    value = known.get(name)
    return int(value) if isinstance(value, float) else None
