"""Running a test table: readings over time through the very evaluation that the operator runs.

A row's readings stay in force until the next row, and the rules are evaluated in between as often
as the operator would. Otherwise five quiet minutes in a table would look like five minutes without
data, and every `for` would begin anew.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.memory import Pending
from specpilot.domain.outcomes import Outcome, RowVerdict, outcome
from specpilot.domain.readings import Readings, UnknownReason, unknown
from specpilot.domain.settings import Setting
from specpilot.domain.signals import SIGNALS


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a row must give.

    Attributes:
        verdict: The verdict.
        rule: The rule that fires, "" where none does.
        setting: The setting it asks for.
        why: What the words must contain.
    """

    verdict: RowVerdict
    rule: str = ""
    setting: str = ""
    why: str = ""

    def faults(self, got: Outcome) -> tuple[str, ...]:
        """Say in which fields an outcome differs; empty when it is as expected."""
        found = [
            f"{name}: expected {wanted!r}, got {given!r}"
            for name, wanted, given in (
                ("verdict", str(self.verdict), str(got.verdict)),
                ("rule", self.rule, got.rule),
                ("setting", self.setting, got.setting),
            )
            if wanted != given
        ]
        if self.why not in got.why:
            found.append(f"why: expected {self.why!r} in the words, got {got.why!r}")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One moment of a table.

    Attributes:
        at: When.
        readings: What is known, everything that earlier rows left in force included.
        active: The setting that runs.
        target: What is known of the target.
        expect: What the rules must say.
        reason: Why, for whoever breaks it.
    """

    at: datetime
    readings: Readings
    active: Setting
    target: TargetFacts
    expect: Expectation
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows in the order of time, with one memory.

    Attributes:
        name: For people.
        rows: The moments.
        parameters: Overrides of the rule set's own.
        every: Time between two evaluations while nothing changes.
    """

    name: str
    rows: tuple[Row, ...]
    parameters: Mapping[str, float] = field(default_factory=dict)
    every: timedelta = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """What became of a row.

    Attributes:
        row: The row.
        got: What the rules said.
        faults: Where that differs from what was expected.
    """

    row: Row
    got: Outcome
    faults: tuple[str, ...]


def run(table: Table, *, rules: CompiledRuleSet) -> Iterator[RowResult]:
    """Run a table and yield what became of each row."""
    pending: Mapping[str, Pending] = {}
    before: Row | None = None
    for row in table.rows:
        if before is not None:
            between = before.at + table.every
            while between < row.at:
                pending = rules.evaluate(
                    before.readings,
                    active=before.active,
                    parameters=table.parameters,
                    pending=pending,
                    target=before.target,
                    now=between,
                ).pending
                between += table.every
        evaluation = rules.evaluate(
            row.readings,
            active=row.active,
            parameters=table.parameters,
            pending=pending,
            target=row.target,
            now=row.at,
        )
        pending = evaluation.pending
        got = outcome(evaluation)
        yield RowResult(row=row, got=got, faults=row.expect.faults(got))
        before = row


def as_exported(readings: Readings, *, active: Setting) -> Readings:
    """Take away what the engine does not export while it does not speculate."""
    if not active.is_off:
        return readings
    return Readings.of(
        unknown(reading.signal, UnknownReason.NOT_EXPORTED, "speculation is off")
        if reading.known and SIGNALS[reading.signal].needs_speculation
        else reading
        for reading in readings.values()
    )
