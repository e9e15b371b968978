"""Judging recorded rows with a rule set, one by one."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.memory import Pending
from specpilot.domain.outcomes import Outcome, outcome
from specpilot.domain.rules import RuleSet
from specpilot.resources.readings_file import ReadingsRow

_NO_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def impossible_words(counts: Mapping[str, int]) -> str:
    """Say that signals were given while the setting is off.

    Args:
        counts: In how many rows, by signal.
    """
    said = ", ".join(f"{signal} in {n}" for signal, n in counts.items())
    return (
        f"rows say that the setting is off and yet give what nothing exports then ({said}): taken "
        "as Unknown; leave those cells empty, or correct setting.name"
    )


class RowJudge:
    """Judges rows in order, with the memory that `for` needs where rows have a time.

    Without times nothing can have held for long, so every row is judged by itself, as if its
    condition had held for as long as the rule asks; the time of day is then Unknown. Likewise
    `minDrafts` is taken as met where rows have no `drafts` (an empty cell is Unknown).
    """

    def __init__(self, rule_set: RuleSet) -> None:
        """Compile.

        Raises:
            RuleSetError: The rule set cannot be used.
        """
        self._rules = CompiledRuleSet(rule_set)
        # A table of published or averaged readings says nothing of drafts: where there is no such
        # column at all, `minDrafts` is taken as met, as `for` is where there is no time.
        bare = tuple(replace(rule, min_drafts=0) for rule in rule_set.rules)
        self._without_drafts = CompiledRuleSet(replace(rule_set, rules=bare))
        self._pending: Mapping[str, Pending] = {}
        self._before: datetime | None = None
        waiting = [r.grace for r in rule_set.rules if r.hold or r.at_least is not None]
        self._grace = min(waiting, default=timedelta.max)
        self.gaps = 0
        """How often two rows were so far apart that what had been held was forgotten."""
        self.impossible: Counter[str] = Counter()
        """By signal, how many rows gave it a value although nothing exports it while off."""

    def judge(self, row: ReadingsRow) -> Outcome:
        """Judge one row."""
        timed = row.time is not None
        self.impossible.update(row.impossible)
        if row.time is not None:
            self.gaps += self._before is not None and row.time - self._before > self._grace
            self._before = row.time
        counted = "drafts" in row.readings.by_signal
        evaluation = (self._rules if counted else self._without_drafts).evaluate(
            row.readings,
            active=row.setting,
            parameters=row.parameters,
            pending=self._pending,
            target=row.target,
            now=row.time or _NO_TIME,
            assume_held=not timed,
            time_known=timed,
        )
        self._pending = evaluation.pending
        return outcome(evaluation)
