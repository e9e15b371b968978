"""Comparisons that no reading changes: true of everything a variable can be, or of nothing.

`acceptance_rate < 60` was meant to be 60%, is true whenever drafts are measured, and no test table
need notice.
"""

import math
from collections.abc import Iterator

from specpilot.domain.linting.findings import Code, Finding
from specpilot.domain.linting.syntax import Atom
from specpilot.domain.linting.tables import Analysis
from specpilot.domain.ranges import SHARES, WHOLE, limits, share_remedy
from specpilot.domain.rules import Rule
from specpilot.domain.settings import OFF_NAME

_RELEASE = "target.release"


def fixed(rule: Rule, analysis: Analysis, *, never: bool) -> Iterator[Finding]:
    """Find them in a rule.

    Args:
        rule: The rule.
        analysis: The rule set.
        never: Its `when` is known to be never true, which says as much as that a part never is.
    """
    both = (analysis.shapes.get(rule.name), analysis.until_shapes.get(rule.name))
    guarded = any(shape is not None and shape.guards for shape in both)
    for field, shape in zip(("when", "until"), both, strict=True):
        if shape is None:
            continue
        for atom in dict.fromkeys(shape.atoms):
            why = _slip(atom) or _constant(atom, guarded=guarded, never=never and field == "when")
            if why:
                shown = atom.threshold
                written = f"'{shown}'" if isinstance(shown, str) else f"{shown:g}"
                yield Finding(
                    code=Code.FIXED,
                    rules=(rule.name,),
                    field=field,
                    message=f"{atom.variable} {atom.op} {written} {why}",
                )


def _slip(atom: Atom) -> str:
    """What is wrong with a value that is written unlike the variable's own; "" for nothing."""
    value = atom.threshold
    if isinstance(value, str):
        off = value.strip().lower() == OFF_NAME != value
        if atom.variable == "setting.name" and off:
            said = _said(atom.op == "!=")
            return f"is always {said}: the name of no speculation is '{OFF_NAME}'"
    elif atom.variable == _RELEASE and not value.is_integer():
        return (
            "cannot be meant: target.release is 1000 times the major plus the minor number, so "
            "0.32 is written 32 and 1.2 is written 1002"
        )
    return ""


def _constant(atom: Atom, *, guarded: bool, never: bool) -> str:
    """What is wrong with a comparison that is the same for all a variable can be."""
    number = atom.threshold
    if isinstance(number, str):
        return ""
    low, high = limits(atom.variable)
    if atom.variable == "setting.depth":
        low = 0.0  # while off
    if guarded and number in {low, high}:
        return ""  # a parameter left at 0, which the guard is there for
    always = _always(atom.op, number, low=low, high=high, whole=atom.variable in WHOLE)
    if always is None or (never and not always):
        return ""
    words = f"is always {_said(always)}: {atom.variable} "
    words += f"lies between {low:g} and {high:g}" if math.isfinite(high) else f"is at least {low:g}"
    if atom.variable in WHOLE:
        words += ", in whole numbers"
    remedy = share_remedy(number) if atom.variable in SHARES else "correct or remove it"
    return f"{words}; {remedy}"


def _said(always: bool) -> str:
    return "true" if always else "false"


def _always(op: str, number: float, *, low: float, high: float, whole: bool) -> bool | None:
    """What a comparison says of everything between two numbers; None where that differs."""
    outside = not low <= number <= high or (whole and not number.is_integer())
    match op:
        case "<" | ">=" if number > high or number <= low:
            return (number > high) is (op == "<")
        case "<=" | ">" if number >= high or number < low:
            return (number >= high) is (op == "<=")
        case "==" | "in" if outside:
            return False
        case "!=" if outside:
            return True
        case _:
            return None
