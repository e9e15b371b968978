"""What a setting's own batch limit does to the rules of its policy.

Where an engine does not keep a limit, a rule that nobody wrote does (`domain.batch_limits`). It
stands above all others, and a gate keeps the setting away until the batch is well below the limit.
So a rule of the user's may be one that never wins, and nothing in its own rule set shows it.
"""

from collections.abc import Iterator, Mapping, Sequence

from specpilot.domain.batch_limits import resume, rule_name
from specpilot.domain.linting.findings import Code, Finding
from specpilot.domain.linting.pairs import at_least_as_quick, covers
from specpilot.domain.linting.tables import Analysis, Truths
from specpilot.domain.linting.worlds import State, Value
from specpilot.domain.rules import Rule
from specpilot.domain.settings import OFF_NAME, SPECULATING

_BATCH = "batch_size"


def limited(
    rule: Rule, settings: Mapping[str, int | None], analysis: Analysis
) -> Iterator[Finding]:
    """What the limits of a policy's settings do to a rule.

    Args:
        rule: A rule of the user's.
        settings: The policy's settings that speculate, each with the limit that is left to rules,
            None where none is.
        analysis: The rule set with the generated rules in it.
    """
    yield from _overtaken(rule, settings, analysis)
    limit = _limit_of(rule, settings)
    if limit is None:
        return
    states = [s for s in analysis.everywhere if s.setting != rule.setting]
    if rule.setting == SPECULATING:  # while something speculates, it has what it asks for
        states = [state for state in states if state.off]
    tables = [analysis.fires(rule, state) for state in states]
    batches = [batch for table in tables for batch in _batches(table)]
    above = [b for b in batches if isinstance(b, float) and b >= resume(limit)]
    if not above:
        return
    comes_back = f"which is to come back below a batch of {resume(limit):g} only"
    if len(above) == len(batches) and all(table.complete for table in tables):
        yield Finding(
            code=Code.NEVER_COMES,
            rules=(rule.name,),
            field="when",
            message=f"it asks for {rule.setting} at loads of {min(above):g} and more only, "
            f"{comes_back} (disableAboveBatchSize {limit}, kept by a gate), so it never wins; "
            "lower its bound, or raise the limit",
        )
    else:
        yield Finding(
            code=Code.HELD_ABOVE,
            rules=(rule.name,),
            field="when",
            message=f"it can ask for {rule.setting} at a batch of {min(above):g}, {comes_back} "
            f"(disableAboveBatchSize {limit}); there the gate BatchLimit holds it",
        )


def _limit_of(rule: Rule, settings: Mapping[str, int | None]) -> int | None:
    """The limit of what a rule asks for; None where none is left to rules, or not always."""
    if rule.setting != SPECULATING:
        return settings.get(rule.setting)
    known = [limit for limit in settings.values() if limit is not None]
    return max(known) if known and len(known) == len(settings) else None


def _batches(table: Truths) -> Sequence[Value]:
    """The batch size of each row; None where the rule does not look at it."""
    if _BATCH not in table.variables:
        return [None] * len(table.true)
    place = table.variables.index(_BATCH)
    return [row[place] for row in table.true]


def _overtaken(
    rule: Rule, settings: Mapping[str, int | None], analysis: Analysis
) -> Iterator[Finding]:
    """Whether the generated rules have always fired when this one does."""
    if rule.until or rule.setting != OFF_NAME:
        return  # they ask for off
    guards = {r.name: r for r in analysis.rule_set.rules}
    overtaking: Rule | None = None
    for name in settings:
        state = State(setting=name)
        mine = analysis.fires(rule, state)
        if mine.complete and not mine.true:
            continue
        guard = guards.get(rule_name(name)) if settings.get(name) is not None else None
        if guard is None or not at_least_as_quick(guard, rule):
            return
        theirs = analysis.fires(guard, state)
        if not (mine.complete and theirs.complete and covers(theirs, mine)):
            return
        overtaking = guard
    if overtaking is not None:
        yield Finding(
            code=Code.SHADOWED,
            rules=(rule.name, overtaking.name),
            field="when",
            message=f"the rule {overtaking.name}, which the operator adds, stands above it, is "
            "true whenever it is, and fires no later, so it never wins; lower its bound or its "
            "`for`, or remove it",
        )
