"""What can be wrong between two rules: one never gets its turn, or they chase each other."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from math import prod

from specpilot.domain.conditions import Truth
from specpilot.domain.evaluation import Evaluation
from specpilot.domain.linting.alone import plain
from specpilot.domain.linting.findings import Code, Finding, Witness
from specpilot.domain.linting.tables import Analysis, Truths, joined
from specpilot.domain.linting.worlds import State
from specpilot.domain.rules import Rule
from specpilot.domain.settings import OFF_NAME, SPECULATING
from specpilot.domain.signals import SIGNALS

_LOOKED_AT = 4096
_AT_LEAST = 64
"""Common readings of two rules that are put to the whole rule set; fewer, the more rules it has."""


def shadowed(rule: Rule, earlier: Rule, analysis: Analysis) -> Iterator[Finding]:
    """Whether the earlier rule has always fired when this one does."""
    if rule.until or not at_least_as_quick(earlier, rule):
        return
    states = [s for s in analysis.everywhere if s.setting != rule.setting]
    some = False
    for state in states:
        mine, theirs = analysis.fires(rule, state), analysis.fires(earlier, state)
        if not (mine.complete and theirs.complete and covers(theirs, mine)):
            return
        some = some or bool(mine.true)
    if some:
        yield Finding(
            code=Code.SHADOWED,
            rules=(rule.name, earlier.name),
            field="when",
            message=f"{earlier.name} stands above it, is true whenever it is, and fires no later, "
            "so it never wins; put it first, or remove it",
        )


def at_least_as_quick(earlier: Rule, rule: Rule) -> bool:
    """Whether a rule fires no later than another, where both have just become true."""
    if earlier.min_drafts > rule.min_drafts:
        return False
    if earlier.at_least is not None or rule.at_least is not None:
        return earlier.at_least == rule.at_least
    return earlier.hold <= rule.hold


def covers(cover: Truths, rows: Truths) -> bool:
    """Whether the cover is true in every row, whatever its further variables are."""
    shared = tuple(v for v in cover.variables if v in rows.variables)
    index = cover.index(shared)
    # In a complete table every combination of shared values occurs equally often.
    each = cover.tried // prod(cover.sizes[cover.variables.index(name)] for name in shared)
    return all(len(index.get(key, ())) == each for key in rows.index(shared))


def opposed(rule: Rule, earlier: Rule) -> bool:
    """Whether they ask for different things."""
    if rule.setting == earlier.setting:
        return False
    speculate = OFF_NAME not in {rule.setting, earlier.setting}
    return not (speculate and SPECULATING in {rule.setting, earlier.setting})


def chase(rule: Rule, earlier: Rule, analysis: Analysis) -> Iterator[Finding]:
    """Look for one reading at which each rule fires while the other's setting runs.

    Args:
        rule: The later rule.
        earlier: The one above it.
        analysis: The rule set.
    """
    if not opposed(rule, earlier):
        return
    theirs, mine = State(setting=earlier.setting), State(setting=rule.setting)
    above, below = analysis.fires(earlier, mine), analysis.fires(rule, theirs)
    apart = (
        [name for name, signal in SIGNALS.items() if signal.needs_speculation]
        if theirs.off or mine.off
        else []
    )
    # A rule that is true whichever runs keeps its place: the lower one cannot undo it.
    steadfast = analysis.fires(earlier, theirs) is above
    overlap: Finding | None = None
    most = max(_AT_LEAST, _LOOKED_AT // len(analysis.rule_set.rules))
    for row, match in islice(joined(above, below, apart=apart), most):
        upper, lower = above.known(row), below.known(match)
        situations = (
            analysis.situation({**analysis.drafts(), **lower, **upper}, mine),
            analysis.situation({**analysis.drafts(), **upper, **lower}, theirs),
        )
        before, after = (analysis.evaluate(s) for s in situations)
        if not (_true(before, earlier) and _true(after, rule)):
            continue
        speculating = upper if theirs.off else lower
        known = {**analysis.drafts(), **upper, **lower, **speculating}
        witness = Witness(known=plain(known), situations=situations)
        if _wins(before, earlier) and _wins(after, rule):
            yield _chase(rule, earlier, witness)
            return
        if overlap is None and _wins(before, earlier) and _wins(after, earlier):
            overlap = _overlap(rule, earlier, witness, analysis)
            if steadfast:
                break
    if overlap is not None:
        yield overlap


def _true(evaluation: Evaluation, rule: Rule) -> bool:
    return any(
        v.rule == rule.name and (v.truth is Truth.TRUE or v.fires) for v in evaluation.verdicts
    )


def _wins(evaluation: Evaluation, rule: Rule) -> bool:
    return evaluation.winner is not None and evaluation.winner.rule == rule.name


def _chase(rule: Rule, earlier: Rule, witness: Witness) -> Finding:
    return Finding(
        code=Code.CHASE,
        rules=(rule.name, earlier.name),
        field="when",
        message=f"they undo each other: at {witness.words()} {earlier.name} asks for "
        f"{earlier.setting} while {rule.setting} runs, and {rule.name} asks for {rule.setting} "
        f"while {earlier.setting} runs; make the two conditions exclude each other",
        witness=witness,
    )


def _overlap(rule: Rule, earlier: Rule, witness: Witness, analysis: Analysis) -> Finding | None:
    """Both hold at one reading, and the order decides."""
    steady = earlier.until or earlier.at_least is not None
    measured = any(v in SIGNALS for v in analysis.shapes[earlier.name].variables)
    if measured and not steady:
        return Finding(
            code=Code.OVERLAP,
            rules=(rule.name, earlier.name),
            field="when",
            message=f"both are true at {witness.words()}: {earlier.name} asks for "
            f"{earlier.setting} and wins by its place, but {rule.name} has then held for its time "
            f"already, and takes {rule.setting} at the first moment at which {earlier.name} is not "
            "true; make the conditions exclude each other, or give the upper one an `until`",
            witness=witness,
        )
    if _time(rule) < _time(earlier):
        return Finding(
            code=Code.THERE_AND_BACK,
            rules=(rule.name, earlier.name),
            field="for",
            message=f"at {witness.words()} {rule.name} fires after {_words(rule)} and asks for "
            f"{rule.setting}, and {earlier.name} takes it back after {_words(earlier)}; give the "
            "lower rule the longer `for`",
            witness=witness,
        )
    return None


def _time(rule: Rule) -> timedelta:
    if rule.at_least is not None:
        return rule.at_least.each * rule.at_least.windows
    return rule.hold


def _words(rule: Rule) -> str:
    return f"{_time(rule).total_seconds():g}s"


def pairs(rules: Sequence[Rule], analysis: Analysis) -> Iterator[Finding]:
    """Everything about every two of some rules."""
    for number, rule in enumerate(rules):
        hidden = [f for earlier in rules[:number] for f in shadowed(rule, earlier, analysis)]
        yield from hidden[:1]
        for earlier in rules[:number]:
            yield from chase(rule, earlier, analysis)
