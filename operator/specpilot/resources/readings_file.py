"""Rows of readings as people have them: CSV from a notebook, JSON lines from a script.

Rows are read one at a time, so that a month of readings needs no more memory than a minute. An
empty cell is Unknown, never 0: a missing number that became 0 is the mistake this product exists
to avoid.
"""

import csv
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches

from specpilot.domain.context import SettingFacts, TargetFacts
from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.rule_tables import as_exported
from specpilot.domain.rules import RuleSet
from specpilot.domain.settings import OFF, OFF_NAME
from specpilot.domain.signals import SIGNALS
from specpilot.resources.documents import Fault, ResourceError
from specpilot.resources.measures import parse_measure, possible

TIME = "time"

_NUMBERS = ("setting.depth", "target.replicas", "target.ready")
_TEXTS: tuple[str, ...] = ("setting.name", "setting.method")
_TEXTS += ("target.name", "target.namespace", "target.kind", "target.engine", "target.labels")
_LABEL = "target.labels."

# Python would read 1_0 and the digits of every script too, which are slips in a table of numbers.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingsRow:
    """One row.

    Attributes:
        number: Its place among the rows, from 1; a header is not counted.
        readings: Signals; an empty cell is Unknown.
        parameters: Overrides of the rule set's own; None is Unknown.
        setting: What is known of the active setting.
        target: What is known of the target.
        time: When, where there is a `time` column.
        impossible: Signals that the row gives although the setting is off and nothing exports
            them; they are Unknown in `readings`.
    """

    number: int
    readings: Readings
    parameters: Mapping[str, float | None] = field(default_factory=dict)
    setting: SettingFacts = field(default_factory=SettingFacts)
    target: TargetFacts = field(default_factory=TargetFacts)
    time: datetime | None = None
    impossible: tuple[str, ...] = ()


def read_rows(lines: Iterable[str], *, rule_set: RuleSet, source: str) -> Iterator[ReadingsRow]:
    """Read CSV or JSON lines, whichever it is: the latter begins with a brace.

    A file without rows, or without anything, gives none: whether that is an error the caller knows.

    Args:
        lines: Lines of the file, read as they are needed.
        rule_set: Whose parameters may be overridden.
        source: Name of the file, for messages.

    Raises:
        ResourceError: A column is not known or a cell cannot be read; names the row and column.
    """
    lines = iter(lines)
    first = next((line for line in lines if line.strip("\ufeff \t\r\n")), None)
    if first is None:
        return
    lines = itertools.chain([first.removeprefix("\ufeff")], lines)
    json_lines = first.lstrip("\ufeff \t").startswith("{")
    reader = _Reader(rule_set=rule_set, source=source)
    raw = _json_rows(lines, source) if json_lines else _csv_rows(lines, source, reader)
    for number, cells in enumerate(raw, start=1):
        yield reader.row(number, cells)


Cells = Mapping[str, object]


def _csv_rows(lines: Iterator[str], source: str, columns: "_Reader") -> Iterator[Cells]:
    reader = csv.reader(lines, strict=True)
    header: Sequence[str] = ()
    number = 0
    try:
        for cells in reader:
            if not header:
                header = _header([c.strip() for c in cells], source)
                columns.check(header, where="header")
                continue
            if not cells and len(header) > 1:
                continue
            row = cells or [""]  # of a single column, an empty line is an empty cell
            number += 1
            if len(row) != len(header):
                message = f"it has {len(row)} cells and the header {len(header)}; make them agree"
                raise ResourceError(
                    Fault(where=f"{source}: row {number}", field="", message=message)
                )
            yield dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise ResourceError(
            Fault(where=f"{source}: line {reader.line_num}", field="", message=f"no CSV: {error}")
        ) from None


def _header(names: list[str], source: str) -> Sequence[str]:
    for mark, words in _SEPARATORS.items():
        if len(names) == 1 and mark in names[0]:
            message = f"its columns are separated by {words}; save it with commas between them"
            raise ResourceError(Fault(where=f"{source}: header", field="", message=message))
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        message = f"{', '.join(map(repr, twice))} is there twice; keep one"
        raise ResourceError(Fault(where=f"{source}: header", field="", message=message))
    return names


def _json_rows(lines: Iterator[str], source: str) -> Iterator[Cells]:
    number = 0
    for line in lines:
        if not line.strip():
            continue
        number += 1
        try:
            cells = json.loads(line)
        except json.JSONDecodeError as error:
            message = f"no JSON at column {error.colno}: {error.msg}; write one object a line"
        except ValueError as error:  # a number of thousands of digits
            message = f"no JSON: {error}"
        else:
            if isinstance(cells, dict):
                yield cells
                continue
            message = 'no object; write one object a line, such as {"batch_size": 40}'
        raise ResourceError(Fault(where=f"{source}: row {number}", field="", message=message))


class _Reader:
    """Turns cells into rows; what is wrong is said with the row and the column."""

    def __init__(self, *, rule_set: RuleSet, source: str) -> None:
        self._rule_set = rule_set
        self._source = source
        self._checked: set[tuple[str, ...]] = set()
        self._last: datetime | None = None

    def row(self, number: int, cells: Cells) -> ReadingsRow:
        columns = tuple(cells)
        self.check(columns, where=f"row {number}")
        found = _Cells()
        for column, cell in cells.items():
            try:
                found.take(column, cell)
            except ValueError as error:
                raise self._fault(number, column, f"{cell!r}: {error}") from None
        self._in_order(number, found.time)
        return found.row(number)

    def _in_order(self, number: int, at: datetime | None) -> None:
        if at is None:
            if self._last is not None:
                raise self._fault(number, TIME, "other rows have a time; give this one its own")
            return
        if number > 1 and self._last is None:
            raise self._fault(number, TIME, "earlier rows have no time; give it to all or to none")
        if self._last is not None and at < self._last:
            message = f"{at.isoformat()} is before the row above; sort the rows by time"
            raise self._fault(number, TIME, message)
        self._last = at

    def check(self, columns: Sequence[str], *, where: str) -> None:
        """Refuse columns that are not known; each set of them is looked at once.

        Raises:
            ResourceError: One is not known; names the nearest.
        """
        if tuple(columns) in self._checked:
            return
        self._checked.add(tuple(columns))
        known = [
            *SIGNALS,
            *(f"params.{name}" for name in self._rule_set.parameters),
            *_NUMBERS,
            *_TEXTS,
            TIME,
        ]
        for column in columns:
            if column in known or (column.startswith(_LABEL) and column != _LABEL):
                continue
            if column == "target.release":
                message = "it follows from target.engine; give that instead, such as 0.32.0"
            else:
                near = get_close_matches(column, known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else "see docs/reference/signals.md"
                message = f"there is no such signal, parameter, setting or target column; {hint}"
            field = f"column {column!r}"
            raise ResourceError(
                Fault(where=f"{self._source}: {where}", field=field, message=message)
            )

    def _fault(self, number: int, column: str, message: str) -> ResourceError:
        return ResourceError(
            Fault(where=f"{self._source}: row {number}", field=column, message=message)
        )


class _Cells:
    """What the cells of one row say."""

    def __init__(self) -> None:
        self.time: datetime | None = None
        self._readings: dict[str, Reading] = {}
        self._parameters: dict[str, float | None] = {}
        self._texts: dict[str, str | None] = {}
        self._numbers: dict[str, float | None] = {}
        self._labels: dict[str, str] | None = None

    def take(self, column: str, cell: object) -> None:
        """Read one cell.

        Raises:
            ValueError: It cannot be read; the message says what to write.
        """
        if column in SIGNALS:
            self._readings[column] = _reading(column, cell)
        elif column == TIME:
            self.time = read_instant(cell)
        elif column.startswith("params."):
            self._parameters[column.removeprefix("params.")] = _number(cell)
        elif column.startswith(_LABEL):
            self._label({column.removeprefix(_LABEL): _text(cell)})
        elif column == "target.labels":
            self._label(_labels(cell))
        elif column in _NUMBERS:
            self._numbers[column] = _whole(cell)
        else:
            self._texts[column] = _text(cell)

    def _label(self, labels: Mapping[str, str | None]) -> None:
        known = {name: value for name, value in labels.items() if value is not None}
        if known:
            self._labels = {**(self._labels or {}), **known}

    def row(self, number: int) -> ReadingsRow:
        """Make the row."""
        name = self._texts.get("setting.name")
        off = name == OFF_NAME  # which says everything about it
        ready, replicas = self._numbers.get("target.ready"), self._numbers.get("target.replicas")
        given = Readings(self._readings)
        readings = as_exported(given, active=OFF) if off else given
        return ReadingsRow(
            number=number,
            readings=readings,
            parameters=self._parameters,
            setting=SettingFacts(
                name=name,
                method="" if off else self._texts.get("setting.method"),
                depth=0.0 if off else self._numbers.get("setting.depth"),
            ),
            target=TargetFacts(
                name=self._texts.get("target.name"),
                namespace=self._texts.get("target.namespace"),
                kind=self._texts.get("target.kind"),
                engine=self._texts.get("target.engine"),
                replicas=None if replicas is None else int(replicas),
                ready=None if ready is None else int(ready),
                labels=self._labels,
            ),
            time=self.time,
            impossible=tuple(s for s, r in given.items() if r.known and not readings[s].known),
        )


def _empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _number(cell: object, signal: str = "") -> float | None:
    match cell:
        case bool() | list() | dict():
            raise ValueError("write a number, or leave it empty for Unknown")
        case int() | float():
            try:
                value = float(cell)
            except OverflowError:
                raise ValueError("it is too large for a number; correct it") from None
            return value if math.isfinite(value) else None
        case str() if text := cell.strip():
            if _NOT_FINITE.fullmatch(text):
                return None
            if not _NUMBER.fullmatch(text):
                return parse_measure(text, signal=signal, unknown="leave the cell empty")
            if not math.isfinite(value := float(text)):
                raise ValueError("it is too large for a number; correct it")
            return value
        case _:
            return None


def _whole(cell: object) -> float | None:
    value = _number(cell)
    if value is not None and (value < 0 or not value.is_integer()):
        raise ValueError("write a whole number, 0 or more, or leave it empty for Unknown")
    return value


def _reading(signal: str, cell: object) -> Reading:
    value = _number(cell, signal)
    if value is not None:
        return Reading(signal=signal, value=possible(value, signal=signal))
    return unknown(signal, UnknownReason.NO_DATA if _empty(cell) else UnknownReason.NAN)


def _text(cell: object) -> str | None:
    match cell:
        case None:
            return None
        case str():
            return cell.strip() or None
        case _:
            raise ValueError("write text in quotes, or leave it empty for Unknown")


def _labels(cell: object) -> Mapping[str, str]:
    if _empty(cell):
        return {}
    if isinstance(cell, dict) and all(isinstance(value, str) for value in cell.values()):
        return cell
    raise ValueError("write an object of texts, or a column target.labels.NAME for each")


def read_instant(cell: object) -> datetime:
    """Read a time with its zone, or Unix seconds.

    Raises:
        ValueError: It is none; the message says what to write.
    """
    text = cell.strip() if isinstance(cell, str) else cell
    found: datetime | None = None
    try:
        if isinstance(text, str) and not text.replace(".", "", 1).isdigit():
            found = datetime.fromisoformat(text)
        else:
            number = _number(text)
            found = None if number is None else datetime.fromtimestamp(number, UTC)
    except (ValueError, OverflowError, OSError):
        pass  # said below, with what to write
    if found is None or found.tzinfo is None:
        raise ValueError("write a time with its zone (2026-01-05T08:00:00Z), or Unix seconds")
    return found
