"""Test tables of rule sets as YAML: checked, and made into the rows that are run.

The format is described in docs/rules-tests.md.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StringConstraints,
    ValidationError,
    model_validator,
)

from specpilot.domain.context import TargetFacts
from specpilot.domain.outcomes import RowVerdict
from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.rule_tables import Expectation, Row, Table, as_exported
from specpilot.domain.rules import RuleSet
from specpilot.domain.settings import OFF, OFF_NAME, Setting
from specpilot.domain.signals import SIGNALS
from specpilot.resources.base import Name, Strict
from specpilot.resources.documents import Fault, ResourceError, as_json, contents
from specpilot.resources.measures import parse_measure, possible
from specpilot.resources.quantities import Duration, PositiveDuration
from specpilot.resources.wording import explain

DEFAULT_START = "2026-01-05T00:00:00Z"
"""A Monday at midnight, so that a table about hours can count from it."""

MOST_EVALUATIONS = 20_000
"""Evaluations between two rows; more take long and prove no more."""

Words = Annotated[str, StringConstraints(min_length=1, max_length=1024, strip_whitespace=True)]


def _instant(value: object) -> datetime:
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is not None:
            return found
    raise ValueError(f"write a time with its zone, such as {DEFAULT_START}")


def _reading(signal: str, value: object) -> Reading:
    match value:
        case "unknown":
            return unknown(signal, UnknownReason.NO_DATA)
        case {"unknown": reason, **rest} if not rest:
            if reason in set(UnknownReason):
                return unknown(signal, UnknownReason(str(reason)))
            if isinstance(reason, float) and math.isnan(reason):
                return unknown(signal, UnknownReason.NAN)  # `.nan`, as YAML spells it
            raise ValueError(f"{reason!r} is no reason; use one of {', '.join(UnknownReason)}")
        case int() | float() if not isinstance(value, bool) and math.isfinite(value):
            return Reading(signal=signal, value=possible(float(value), signal=signal))
        case str():
            number = parse_measure(value, signal=signal, unknown="write unknown")
            return Reading(signal=signal, value=possible(number, signal=signal))
        case _:
            raise ValueError("write a number, unknown, or {unknown: REASON}")


def _readings(value: object) -> dict[str, Reading]:
    match value:
        case {**given_by_signal}:
            pass
        case _:
            raise ValueError("write a mapping of signals, such as {batch_size: 40}")
    found = {}
    for signal, given in given_by_signal.items():
        if signal not in SIGNALS:
            near = get_close_matches(str(signal), SIGNALS, n=1)
            hint = f"did you mean {near[0]}?" if near else "see docs/reference/signals.md"
            raise ValueError(f"there is no signal called {signal}; {hint}")
        try:
            found[str(signal)] = _reading(str(signal), given)
        except ValueError as error:
            raise ValueError(f"{signal}: {given!r}: {error}") from None
    return found


def _active(value: object) -> object:
    match value:
        case "off":
            return {"name": OFF_NAME}
        case str() | bool():
            raise ValueError(
                'write "off" in quotes for no speculation, or a mapping of name, method and '
                "numSpeculativeTokens"
            )
        case _:
            return value


def _expectation(value: object) -> object:
    if isinstance(value, str | bool):
        value = {"verdict": value}
    if isinstance(value, Mapping) and isinstance(value.get("verdict"), bool):
        value = {**value, "verdict": str(value["verdict"]).lower()}  # a bare true is a YAML boolean
    return value


class ActiveSpec(Strict):
    """The setting that runs; only what a condition can see."""

    name: Name
    method: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    num_speculative_tokens: Annotated[int, Field(ge=1, le=1024)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.name == OFF_NAME and self.model_fields_set - {"name"}:
            raise ValueError('"off" is no speculation and has no method; remove the other fields')
        if self.name != OFF_NAME and self.method is None:
            raise ValueError(f"setting {self.name} needs a method, such as ngram or eagle3")
        return self

    def setting(self) -> Setting:
        """The domain's value."""
        if self.name == OFF_NAME:
            return OFF
        return Setting(
            name=self.name,
            method=self.method,
            num_speculative_tokens=self.num_speculative_tokens,
        )


class TargetSpec(Strict):
    """What is known of the target; what is left out is Unknown."""

    name: str | None = None
    namespace: str | None = None
    kind: str | None = None
    replicas: Annotated[int, Field(ge=0)] | None = None
    ready: Annotated[int, Field(ge=0)] | None = None
    engine: str | None = None
    labels: dict[str, str] | None = None


class ExpectationSpec(Strict):
    """What the rules must say."""

    verdict: RowVerdict
    rule: Name | None = None
    setting: Name | None = None
    why: Words | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.verdict is RowVerdict.TRUE:
            if self.rule is None or self.setting is None:
                raise ValueError("a true verdict needs rule and setting: who fires, and for what")
        elif self.rule is not None or self.setting is not None:
            raise ValueError(
                f"the verdict is {self.verdict}, so no rule fires; remove rule and setting"
            )
        return self


ReadingMap = Annotated[dict[str, Reading], PlainValidator(_readings)]
Active = Annotated[ActiveSpec, BeforeValidator(_active)]
Instant = Annotated[datetime, PlainValidator(_instant)]


class RowSpec(Strict):
    """One row: what changed, what must come of it, and why."""

    reason: Words
    expect: Annotated[ExpectationSpec, BeforeValidator(_expectation)]
    after: Duration = timedelta(0)
    readings: ReadingMap = Field(default_factory=dict)
    active: Active | None = None
    target: TargetSpec | None = None


class TableSpec(Strict):
    """One table."""

    name: Words
    parameters: dict[str, float] = Field(default_factory=dict)
    start: Instant = datetime.fromisoformat(DEFAULT_START)
    every: PositiveDuration = timedelta(seconds=15)
    active: Active = ActiveSpec(name=OFF_NAME)
    target: TargetSpec = TargetSpec()
    readings: ReadingMap = Field(default_factory=dict)
    rows: Annotated[tuple[RowSpec, ...], Field(min_length=1)]


def _named_once(tables: tuple[TableSpec, ...]) -> tuple[TableSpec, ...]:
    names = [t.name for t in tables]
    if twice := next((n for n in names if names.count(n) > 1), None):
        raise ValueError(f"two tables are named {twice!r}; give each a name of its own")
    return tables


class TableFile(Strict):
    """A file of tables for one rule set."""

    rule_set: Annotated[str, StringConstraints(min_length=1)] | None = None
    tables: Annotated[tuple[TableSpec, ...], Field(min_length=1), AfterValidator(_named_once)]


_PLACE = re.compile(r"file(?:\.tables\[(\d+)\])?(?:\.rows\[(\d+)\])?\.?(.*)", re.DOTALL)


def load_tables(text: str, *, source: str) -> TableFile:
    """Read a file of test tables.

    Args:
        text: YAML, one document.
        source: Name of the file, for messages.

    Raises:
        ResourceError: Something is wrong; says all of it, each with its table, row and field.
    """
    documents = [d for d in contents(text, source=source) if d is not None]
    if len(documents) != 1 or not isinstance(documents[0], Mapping):
        message = "a test file is one document that begins with `tables:`"
        raise ResourceError(Fault(where=source, field="", message=message))
    try:
        return TableFile.model_validate_json(as_json(documents[0]), strict=True)
    except ValidationError as error:
        raise ResourceError(
            *(
                _fault(source, path, message)
                for path, message in explain(error, model=TableFile, root="file")
            )
        ) from None


def _fault(source: str, path: str, message: str) -> Fault:
    table, row, rest = "", "", path
    if (place := _PLACE.fullmatch(path)) is not None:
        table, row, rest = place.group(1) or "", place.group(2) or "", place.group(3)
    where = [source]
    where += [f"table {int(table) + 1}"] if table else []
    where += [f"row {int(row) + 1}"] if row else []
    return Fault(where=", ".join(where), field=rest, message=message)


def tables_for(file: TableFile, *, rule_set: RuleSet, source: str) -> tuple[Table, ...]:
    """Make the tables that can be run against a rule set.

    Raises:
        ResourceError: They name a rule or a parameter that the rule set does not have.
    """
    tables, faults = [], []
    for number, spec in enumerate(file.tables, start=1):
        where = f"{source}, table {number}"
        faults += list(_unknown_parameters(spec, rule_set=rule_set, where=where))
        rows = []
        state = _State(spec)
        for at, row in enumerate(spec.rows, start=1):
            faults += list(_row_faults(row, spec, rule_set=rule_set, where=f"{where}, row {at}"))
            made, wrong = state.row(row, where=f"{where}, row {at}")
            rows.append(made)
            faults += wrong
        tables.append(
            Table(name=spec.name, rows=tuple(rows), parameters=spec.parameters, every=spec.every)
        )
    if faults:
        raise ResourceError(*faults)
    return tuple(tables)


class _State:
    """What is in force while the rows of one table are read."""

    def __init__(self, spec: TableSpec) -> None:
        self._at = spec.start
        self._readings = dict(spec.readings)
        self._active = spec.active.setting()
        self._target = replace(TargetFacts(), **_given(spec.target))

    def row(self, spec: RowSpec, *, where: str) -> tuple[Row, Sequence[Fault]]:
        self._at += spec.after
        self._readings |= spec.readings
        if spec.active is not None:
            self._active = spec.active.setting()
        if spec.target is not None:
            self._target = replace(self._target, **_given(spec.target))
        faults = [
            Fault(
                where=where,
                field=f"readings.{signal}",
                message=f"{reading.value:g}: the setting is off, and the engine then exports no "
                "such series; write unknown, or leave it out",
            )
            for signal, reading in spec.readings.items()
            if self._active.is_off and reading.value is not None
            if SIGNALS[signal].needs_speculation
        ]
        expect = Expectation(
            verdict=spec.expect.verdict,
            rule=spec.expect.rule or "",
            setting=spec.expect.setting or "",
            why=spec.expect.why or "",
        )
        row = Row(
            at=self._at,
            readings=as_exported(Readings(dict(self._readings)), active=self._active),
            active=self._active,
            target=self._target,
            expect=expect,
            reason=spec.reason,
        )
        return row, faults


def _given(spec: TargetSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.model_fields_set}


def _unknown_parameters(spec: TableSpec, *, rule_set: RuleSet, where: str) -> Iterator[Fault]:
    for name in spec.parameters:
        if name not in rule_set.parameters:
            near = get_close_matches(name, rule_set.parameters, n=1)
            known = ", ".join(rule_set.parameters) or "none"
            hint = f"did you mean {near[0]}?" if near else f"it has {known}"
            message = f"rule set {rule_set.name} has no such parameter; {hint}"
            yield Fault(where=where, field=f"parameters.{name}", message=message)


def _row_faults(
    row: RowSpec, table: TableSpec, *, rule_set: RuleSet, where: str
) -> Iterator[Fault]:
    if row.after / table.every > MOST_EVALUATIONS:
        message = f"that is more than {MOST_EVALUATIONS} evaluations; set a longer `every`"
        yield Fault(where=where, field="after", message=message)
    if row.expect.rule is None:
        return
    settings = {r.name: r.setting for r in rule_set.rules}
    if row.expect.rule not in settings:
        near = get_close_matches(row.expect.rule, settings, n=1)
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(settings)}"
        message = f"{row.expect.rule}: rule set {rule_set.name} has no such rule; {hint}"
        yield Fault(where=where, field="expect.rule", message=message)
    elif settings[row.expect.rule] != row.expect.setting:
        message = (
            f"{row.expect.setting}: rule {row.expect.rule} asks for {settings[row.expect.rule]}"
        )
        yield Fault(where=where, field="expect.setting", message=message)
