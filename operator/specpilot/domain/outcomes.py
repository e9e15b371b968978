"""A rule set's answer to one moment in three words, as tables and rows of readings compare it."""

from dataclasses import dataclass
from enum import StrEnum

from specpilot.domain.conditions import Truth
from specpilot.domain.evaluation import Evaluation


class RowVerdict(StrEnum):
    """What a whole rule set says."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer.

    Attributes:
        verdict: `true` when a rule fires; `unknown` when none does and at least one is Unknown.
        rule: The rule that fires, "" for none.
        setting: What it asks for, "" for nothing.
        why: In words: of the rule that fires, else of every rule, each behind its name.
    """

    verdict: RowVerdict
    rule: str = ""
    setting: str = ""
    why: str = ""


def outcome(evaluation: Evaluation) -> Outcome:
    """Sum an evaluation up."""
    if (winner := evaluation.winner) is not None:
        return Outcome(
            verdict=RowVerdict.TRUE, rule=winner.rule, setting=winner.setting, why=winner.why
        )
    unknown = any(v.truth is Truth.UNKNOWN for v in evaluation.verdicts)
    return Outcome(
        verdict=RowVerdict.UNKNOWN if unknown else RowVerdict.FALSE,
        why="; ".join(f"{v.rule}: {v.why}" for v in evaluation.verdicts),
    )
