"""What can be wrong with one rule by itself."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations, islice

from specpilot.domain.buckets import bounds_of, bucket, nearest
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.linting.findings import Code, Finding, Witness
from specpilot.domain.linting.tables import Analysis, Truths, joined
from specpilot.domain.linting.worlds import ANOTHER, State
from specpilot.domain.rules import Rule
from specpilot.domain.settings import OFF_NAME, SPECULATING
from specpilot.domain.signals import SIGNALS, Unit

_VALUES = (1.0, 0.0, 6.0, 22.0, 0.1, 100.0, 10_000.0)
_TRIES = 256
"""Values of a parameter, and how many sets of them, that are tried before `never` is said."""


def unused_parameters(analysis: Analysis) -> Iterator[Finding]:
    """Parameters that no condition uses."""
    shapes = [*analysis.shapes.values(), *analysis.until_shapes.values()]
    used = {name for s in shapes for name in s.parameters}
    for name in analysis.rule_set.parameters:
        if name not in used:
            yield Finding(
                code=Code.UNUSED_PARAMETER,
                field=f"parameters.{name}",
                message=f"no condition uses params.{name}; use it or remove it",
            )


def needs_for(rule: Rule, analysis: Analysis) -> Iterator[Finding]:
    """A rule that a single reading fires."""
    steady = rule.hold or rule.at_least is not None or rule.until
    measured = any(v in SIGNALS for v in analysis.shapes[rule.name].variables)
    if steady or not measured or (rule.setting == SPECULATING and keeps(rule, analysis)):
        return
    yield Finding(
        code=Code.NO_FOR,
        rules=(rule.name,),
        field="for",
        message="one reading is enough to fire it, so a reading that flickers flips the target; "
        "add `for: 5m`, `atLeast`, or an `until` some way off",
    )


def inside_buckets(rule: Rule, analysis: Analysis) -> Iterator[Finding]:
    """Thresholds between two bounds of a histogram."""
    for field, shapes in (("when", analysis.shapes), ("until", analysis.until_shapes)):
        if rule.name not in shapes:
            continue
        for atom in dict.fromkeys(shapes[rule.name].atoms):
            bounds = bounds_of(atom.variable)
            if not bounds or isinstance(atom.threshold, str):
                continue
            found = bucket(bounds, atom.threshold)
            if found is None:
                continue
            low, high = found
            close = _time(nearest(bounds, atom.threshold))
            between = (
                f"above its last bound {_time(low)}"
                if high is None
                else f"inside its bucket from {_time(low)} to {_time(high)}"
            )
            yield Finding(
                code=Code.INSIDE_BUCKET,
                rules=(rule.name,),
                field=field,
                message=f"{atom.variable} {atom.op} {_time(atom.threshold)} cannot be told from "
                f"the engine's default histogram: the threshold lies {between}, in which a "
                f"percentile is a guess; the nearest bound is {close} "
                f"(or compare {atom.variable.rpartition('_p')[0]}_mean, which is exact)",
            )


def _time(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"


def reach(rule: Rule, analysis: Analysis) -> Iterator[Finding]:
    """Whether the rule can be true at all, and while something else runs than it asks for."""
    tables = {state: analysis.fires(rule, state) for state in analysis.everywhere}
    true = [state for state in tables if analysis.can_fire(rule, state)]
    complete = all(found.complete for found in tables.values())
    if not true:
        yield from _never(rule, analysis, complete=complete)
        return
    loose = sorted(analysis.shapes[rule.name].loose)
    if not complete:
        why = "of its size" if not loose else f"{', '.join(loose)} are compared or calculated with"
        yield Finding(
            code=Code.BEYOND,
            rules=(rule.name,),
            field="when",
            message=f"beyond the analysis, because {why}: "
            f"{sum(t.tried for t in tables.values())} situations were tried, and what they do not "
            "show may still happen",
        )
    elsewhere = [s for s in true if s.setting not in {rule.setting, ANOTHER}]
    if rule.setting == SPECULATING:
        elsewhere = [state for state in elsewhere if state.off]
    if not elsewhere:
        yield from _only_at_home(rule, analysis)
    elif rule.setting != OFF_NAME and elsewhere:
        yield from _not_from_off(rule, analysis, elsewhere)


def _never(rule: Rule, analysis: Analysis, *, complete: bool) -> Iterator[Finding]:
    if analysis.shapes[rule.name].guards and (found := _parameters_for(rule, analysis)):
        said = ", ".join(f"{k} {v:g}" for k, v in found.items())
        yield Finding(
            code=Code.NEEDS_PARAMETER,
            rules=(rule.name,),
            field="when",
            message="never true with the parameters as they stand; a policy must state them "
            f"(it can be true with {said})",
        )
        return
    ranges = ", ".join(sorted(_ranges(rule, analysis)))
    yield Finding(
        code=Code.NEVER_TRUE if complete else Code.BEYOND,
        rules=(rule.name,),
        field="when",
        message=f"no reading makes it true{f' ({ranges})' if ranges else ''}; correct or remove it"
        if complete
        else "no reading that was tried makes it true, but it is beyond the analysis: write a test "
        "table with a row in which it fires",
    )


def _ranges(rule: Rule, analysis: Analysis) -> Iterator[str]:
    for name in analysis.shapes[rule.name].variables:
        if name in SIGNALS and SIGNALS[name].unit is Unit.RATIO and name != "cost_ratio":
            yield f"{name} lies between 0 and 1"
        elif name == "mean_acceptance_length":
            yield f"{name} is at least 1"


def _parameters_for(rule: Rule, analysis: Analysis) -> Mapping[str, float] | None:
    """Values of the parameters with which the rule can be true."""
    used = sorted(analysis.shapes[rule.name].parameters)
    given = analysis.rule_set.parameters
    one = [{name: value} for name in used for value in _VALUES]
    two = [{**a, **b} for a, b in combinations(one, 2) if a.keys() != b.keys()]
    for tried in islice(chain(one, two), _TRIES):
        parameters = {**given, **tried}
        only = replace(analysis.rule_set, rules=(rule,), parameters=parameters)
        again = Analysis(CompiledRuleSet(only))
        if any(again.when(rule, state).true for state in analysis.states):
            return tried
    return None


def _unmeasured(rule: Rule, analysis: Analysis) -> list[str]:
    """What the rule needs and what does not exist while off."""
    found = [v for v in analysis.shapes[rule.name].variables if v in SIGNALS]
    found = [v for v in found if SIGNALS[v].needs_speculation]
    return found + (["drafts (minDrafts)"] if rule.min_drafts else [])


def keeps(rule: Rule, analysis: Analysis) -> bool:
    """Whether the rule can only ask for what already runs, and so holds later rules back."""
    others = [s for s in analysis.states if (s.off if rule.setting == SPECULATING else True)]
    return not any(analysis.fires(rule, s).true for s in others if s.setting != rule.setting)


def _only_at_home(rule: Rule, analysis: Analysis) -> Iterator[Finding]:
    names = [r.name for r in analysis.rule_set.rules]
    later = analysis.rule_set.rules[names.index(rule.name) + 1 :]
    missing = _unmeasured(rule, analysis)
    if rule.setting == SPECULATING and any(r.setting != SPECULATING for r in later):
        yield Finding(
            code=Code.ONLY_KEEPS,
            rules=(rule.name,),
            field="when",
            message="it is true only while something speculates: it can keep that from the rules "
            "below it, and cannot turn speculation on",
        )
    elif missing and rule.setting != OFF_NAME:
        yield Finding(
            code=Code.NOT_MEASURED,
            rules=(rule.name,),
            field="when",
            message=f"it asks for {rule.setting}, and {', '.join(missing)} does not exist while "
            "speculation is off: it can never turn speculation on. Rest it on load "
            "(batch_size, queue_depth) and leave the rest to the policy's probe; to keep what "
            f"runs from later rules, write `setting: {SPECULATING}`",
        )
    elif rule.setting == SPECULATING or not analysis.can_fire(rule, State(setting=ANOTHER)):
        yield Finding(
            code=Code.NEVER_TRUE,
            rules=(rule.name,),
            field="when",
            message=f"it is true only while {rule.setting}, which it asks for, already runs",
        )


def _not_from_off(rule: Rule, analysis: Analysis, elsewhere: list[State]) -> Iterator[Finding]:
    """Several settings speculate, and the rule changes between them but not from off."""
    missing = _unmeasured(rule, analysis)
    if missing and not any(state.off for state in elsewhere):
        yield Finding(
            code=Code.ONLY_KEEPS,
            rules=(rule.name,),
            field="when",
            message=f"{', '.join(missing)} does not exist while speculation is off: it can change "
            "between settings that speculate, and cannot turn speculation on",
        )


def until_with_when(rule: Rule, analysis: Analysis) -> Iterator[Finding]:
    """`until` that is true although `when` is: the band between on and off has no width."""
    if not rule.until:
        return
    for state in analysis.states:
        when, until = analysis.when(rule, state), analysis.until(rule, state)
        for row, other in joined(when, until):
            known = {**when.known(row), **until.known(other)}
            if _same(when, row, until, other):
                yield Finding(
                    code=Code.UNTIL_WITH_WHEN,
                    rules=(rule.name,),
                    field="until",
                    message="`until` is true although `when` is; set it some way off, so that a "
                    "reading between the two changes nothing",
                    witness=Witness(
                        known=plain(known), situations=(analysis.situation(known, state),)
                    ),
                )
                return


def _same(one: Truths, row: tuple[object, ...], other: Truths, match: tuple[object, ...]) -> bool:
    """Whether two rows agree in the setting's variables, which `joined` leaves apart."""
    mine = dict(zip(one.variables, row, strict=True))
    theirs = dict(zip(other.variables, match, strict=True))
    return all(theirs.get(name, value) == value for name, value in mine.items())


def plain(known: Mapping[str, object]) -> dict[str, float | str]:
    """Values of a witness; labels as one text."""
    return {
        name: value
        if isinstance(value, float | str)
        else ", ".join(f"{k}={v}" for k, v in value)
        if isinstance(value, tuple)
        else str(value)
        for name, value in known.items()
    }
