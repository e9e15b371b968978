"""Readings for a person (a table) and for a machine (plain data), the same for every source."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from specpilot.cli.tables import add_row
from specpilot.domain.readings import Reading, Readings
from specpilot.domain.signals import POSITIONS, REMEMBERED, SIGNALS, Unit, position_signal

_KEPT_BY_OPERATOR = (
    "kept by the operator and not measured here: see `specpilot explain`, in a cluster "
    "`kubectl describe specpol`"
)
_DEPTHS = tuple(position_signal(position) for position in range(POSITIONS))


def plain(readings: Readings, *, dated: bool = True) -> dict[str, dict[str, Any]]:
    """Every signal of the catalogue as plain data. An interface: scripts rely on its keys.

    Args:
        readings: The readings.
        dated: Whether times are known; else `at` is null.
    """
    return {name: _plain(readings[name], dated=dated) for name in SIGNALS}


def _plain(reading: Reading, *, dated: bool) -> dict[str, Any]:
    return {
        "value": reading.value,
        "reason": None if reading.reason is None else str(reading.reason),
        "unit": str(SIGNALS[reading.signal].unit),
        "count": reading.count,
        "window_s": reading.window_s,
        "at": reading.at.isoformat() if reading.at is not None and dated else None,
        "low": reading.low,
        "high": reading.high,
    }


def readings_view(readings: Readings, *, title: str, now: datetime | None) -> Group:
    """Every signal of the catalogue as a table, and below it why some have no value.

    Args:
        readings: The readings.
        title: What they are of.
        now: The time that ages are counted to; None where the times are not known.
    """
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, box=None)
    for column in ("signal", "value", "unit", "count", "age", "within"):
        right = column in {"value", "count", "age"}
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "within")
    remarks: dict[str, list[str]] = {}
    for name, reading in _rows(readings):
        unit = SIGNALS[reading.signal].unit
        add_row(
            table,
            name,
            str(reading.reason) if reading.value is None else _number(reading.value, unit),
            unit,
            "" if reading.count is None else f"{reading.count:.0f}",
            _age(reading, now),
            _bounds(reading, unit),
        )
        if remark := _remark(reading):
            remarks.setdefault(remark, []).append(name)
    lines = [Text(f"{remark}\n  {', '.join(names)}") for remark, names in remarks.items()]
    return Group(table, Text(), *lines)


def _remark(reading: Reading) -> str:
    """Why there is no value, or what there is to say of one beside its source."""
    if reading.value is None:
        kept = _KEPT_BY_OPERATOR if reading.signal in REMEMBERED else ""
        words = reading.message or kept
        return f"{reading.reason}: {words}" if words else f"{reading.reason}"
    source, _, rest = reading.message.partition("; ")
    return f"({source}) {rest}" if rest else ""


def _rows(readings: Readings) -> Iterator[tuple[str, Reading]]:
    """One row a signal; positions that are unknown for the same reason share one."""
    folded: list[Reading] = []
    for name in SIGNALS:
        reading = readings[name]
        if folded and not (name in _DEPTHS and _alike(folded[-1], reading)):
            yield _range(folded), folded[0]
            folded = []
        if name in _DEPTHS and not reading.known:
            folded.append(reading)
        else:
            yield name, reading
    if folded:
        yield _range(folded), folded[0]


def _alike(one: Reading, other: Reading) -> bool:
    return (one.reason, one.message) == (other.reason, other.message)


def _range(folded: list[Reading]) -> str:
    first, last = folded[0].signal, folded[-1].signal
    return first if first == last else f"{first}..{last.rpartition('_')[2]}"


def _number(value: float, unit: Unit) -> str:
    return f"{value:.4g}" if abs(value) < 1e5 or unit is Unit.BYTES else f"{value:.0f}"  # noqa: PLR2004 - no exponents for counts


def _bounds(reading: Reading, unit: Unit) -> str:
    if reading.low is None:
        return ""
    high = "" if reading.high is None else _number(reading.high, unit)
    return f"{_number(reading.low, unit)}..{high}"


def _age(reading: Reading, now: datetime | None) -> str:
    if now is None or reading.at is None:
        return ""
    return f"{max(now - reading.at, timedelta()).total_seconds():.0f} s"
