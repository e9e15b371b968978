"""What a pack says of a case, by the product's own evaluation of the pack's own file."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from statistics import fmean

from bench.cases.published import Case
from specpilot.domain.conditions import Truth
from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.readings import Reading, Readings
from specpilot.domain.rules import RuleSet
from specpilot.domain.settings import OFF_NAME, Setting

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
"""Any moment: no published case says when it was."""

ENOUGH_DRAFTS = 1_000_000.0
"""No published case says how many drafts it rests on; each counts as enough."""


class Answer(StrEnum):
    """What becomes of speculation in a case."""

    OFF = "off"
    ON = "on"
    UNKNOWN = "unknown"


Judge = Callable[[Case], Answer]


def readings_of(case: Case, *, cost_ratio: float | None) -> Readings:
    """What a target in this case would measure; what is not published is Unknown."""
    values: Mapping[str, float | None] = {
        "acceptance_rate": case.acceptance_rate,
        "mean_acceptance_length": case.acceptance_length,
        "batch_size": case.batch,
        "cost_ratio": cost_ratio,
        "drafts": ENOUGH_DRAFTS,
    }
    return Readings.of(
        Reading(signal=name, value=value, at=NOW)
        for name, value in values.items()
        if value is not None
    )


class PackJudge:
    """A rule set asked whether it would switch off; the time a rule must hold is taken as held."""

    def __init__(self, rules: RuleSet) -> None:
        self._compiled = CompiledRuleSet(rules)

    def __call__(self, case: Case, *, cost_ratio: float | None) -> Answer:
        """Judge one case while it speculates.

        Unknown is said only where a rule that asks for off is Unknown: one that asks for on has
        nothing to add to a case that speculates.
        """
        depth = int(case.depth) if case.depth.isdigit() else None
        evaluation = self._compiled.evaluate(
            readings_of(case, cost_ratio=cost_ratio),
            active=Setting(name="published", method=case.method, num_speculative_tokens=depth),
            parameters={},
            pending={},
            target=TargetFacts(),
            now=NOW,
            assume_held=True,
        )
        if evaluation.winner is not None:
            return Answer.OFF if evaluation.winner.setting == OFF_NAME else Answer.ON
        off = [v for v in evaluation.verdicts if v.setting == OFF_NAME]
        return Answer.UNKNOWN if any(v.truth is Truth.UNKNOWN for v in off) else Answer.ON


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How well one way of deciding does.

    A case that is Unknown stays on, which is what the product does with it: it counts as missed
    when it loses and as kept when it does not.

    Attributes:
        name: What decides.
        cases: Cases asked.
        losing: Those that lose.
        recall: Share of the losing cases that are switched off.
        kept: Share of the others that stay on.
        unknown: Cases without an answer.
        unknown_losing: Those of them that lose.
        judged: Balanced accuracy of the cases with an answer; None without both kinds among them.
    """

    name: str
    cases: int
    losing: int
    recall: float
    kept: float
    unknown: int
    unknown_losing: int
    judged: float | None

    @property
    def judged_cases(self) -> int:
        """Cases with an answer."""
        return self.cases - self.unknown

    @property
    def balanced(self) -> float:
        """Balanced accuracy: 0.5 is no better than never deciding anything."""
        return (self.recall + self.kept) / 2


def score(name: str, judge: Judge, cases: Iterable[Case]) -> Score:
    """Ask a judge about every case, of which some must lose and some not."""
    answers = [(case.loses, judge(case)) for case in cases]
    known = [(loses, answer) for loses, answer in answers if answer is not Answer.UNKNOWN]
    return Score(
        name=name,
        cases=len(answers),
        losing=sum(loses for loses, _ in answers),
        recall=_share(answers, loses=True),
        kept=_share(answers, loses=False),
        unknown=len(answers) - len(known),
        unknown_losing=sum(loses for loses, answer in answers if answer is Answer.UNKNOWN),
        judged=fmean((_share(known, loses=True), _share(known, loses=False)))
        if {loses for loses, _ in known} == {True, False}
        else None,
    )


def _share(answers: Iterable[tuple[bool, Answer]], *, loses: bool) -> float:
    return fmean((answer is Answer.OFF) == loses for was, answer in answers if was == loses)
