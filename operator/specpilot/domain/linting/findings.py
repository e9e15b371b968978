"""What lint can find: codes that stay the same, so that they can be looked up and left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from specpilot.domain.linting.worlds import Situation


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(StrEnum):
    """Everything that lint can say; docs/rules-lint.md has a page on each."""

    INVALID = "SP101"
    UNKNOWN_NAME = "SP102"
    UNUSED_PARAMETER = "SP103"
    NEVER_TRUE = "SP201"
    SHADOWED = "SP202"
    NEEDS_PARAMETER = "SP203"
    UNTIL_WITH_WHEN = "SP204"
    FIXED = "SP205"
    NEVER_COMES = "SP206"
    HELD_ABOVE = "SP207"
    CHASE = "SP301"
    OVERLAP = "SP302"
    THERE_AND_BACK = "SP303"
    NO_FOR = "SP401"
    INSIDE_BUCKET = "SP402"
    NOT_MEASURED = "SP501"
    ONLY_KEEPS = "SP502"
    BEYOND = "SP901"


SEVERITY: Mapping[Code, Severity] = {
    Code.INVALID: Severity.ERROR,
    Code.UNKNOWN_NAME: Severity.ERROR,
    Code.UNUSED_PARAMETER: Severity.WARNING,
    Code.NEVER_TRUE: Severity.ERROR,
    Code.SHADOWED: Severity.ERROR,
    Code.NEEDS_PARAMETER: Severity.NOTE,
    Code.UNTIL_WITH_WHEN: Severity.WARNING,
    Code.FIXED: Severity.WARNING,
    Code.NEVER_COMES: Severity.ERROR,
    Code.HELD_ABOVE: Severity.NOTE,
    Code.CHASE: Severity.ERROR,
    Code.OVERLAP: Severity.ERROR,
    Code.THERE_AND_BACK: Severity.WARNING,
    Code.NO_FOR: Severity.WARNING,
    Code.INSIDE_BUCKET: Severity.WARNING,
    Code.NOT_MEASURED: Severity.ERROR,
    Code.ONLY_KEEPS: Severity.NOTE,
    Code.BEYOND: Severity.NOTE,
}

TITLES: Mapping[Code, str] = {
    Code.INVALID: "the rule set cannot be used",
    Code.UNKNOWN_NAME: "a name that does not exist",
    Code.UNUSED_PARAMETER: "a parameter that no condition uses",
    Code.NEVER_TRUE: "a condition that can never be true",
    Code.SHADOWED: "an earlier rule wins whenever this one is true",
    Code.NEEDS_PARAMETER: "never true with the parameters as they stand",
    Code.UNTIL_WITH_WHEN: "`until` can be true while `when` is",
    Code.FIXED: "a comparison that no reading changes",
    Code.NEVER_COMES: "a rule asks for a setting only above that setting's batch limit",
    Code.HELD_ABOVE: "a rule can ask for a setting above that setting's batch limit",
    Code.CHASE: "two rules that undo each other at one reading",
    Code.OVERLAP: "two rules that ask for different settings at one reading",
    Code.THERE_AND_BACK: "a flip that the other rule takes back",
    Code.NO_FOR: "no `for`: one reading is enough to flip",
    Code.INSIDE_BUCKET: "a threshold that the engine's histogram cannot tell",
    Code.NOT_MEASURED: "a signal that does not exist when the rule must fire",
    Code.ONLY_KEEPS: "a rule that can keep speculation but not turn it on",
    Code.BEYOND: "a condition beyond the analysis",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A situation that shows a finding, so that nobody has to believe it.

    Attributes:
        known: Values by variable (`batch_size`, `time.hour`); what is not here is Unknown.
        situations: The same as arguments for the evaluation, once for each setting that the
            finding tells of, in that order.
    """

    known: Mapping[str, float | str]
    situations: tuple[Situation, ...] = ()

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the settings that run."""
        return tuple(s.active.name for s in self.situations)

    def words(self) -> str:
        """The values in one line."""
        return (
            ", ".join(
                f"{name} {value:g}" if isinstance(value, float) else f"{name} {value!r}"
                for name, value in self.known.items()
            )
            or "any reading"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding.

    Attributes:
        code: Which kind.
        rules: Names of the rules concerned, the one to edit first; empty for the set itself.
        field: Field of that rule or of the set, such as `when`.
        message: In words, with the remedy.
        witness: Where one reading shows it.
        where: File and document, filled in by whoever read them.
        line: Line in that file, from 1; None when not known.
    """

    code: Code
    message: str
    rules: tuple[str, ...] = ()
    field: str = ""
    witness: Witness | None = None
    where: str = ""
    line: int | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return SEVERITY[self.code]
