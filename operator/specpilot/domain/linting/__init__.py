"""Lint: what is wrong with rules that can be said before they have run.

Everything that is claimed to happen is shown with a reading at which it does, and that reading was
put to the compiled rules. What is claimed never to happen was tried in every case there is; where
the cases cannot be listed, lint says so and claims nothing.
"""

from collections.abc import Mapping
from datetime import timedelta

from specpilot.domain.batch_limits import with_limits
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.linting import alone, comparisons
from specpilot.domain.linting.findings import (
    SEVERITY,
    TITLES,
    Code,
    Finding,
    Severity,
    Witness,
)
from specpilot.domain.linting.limits import limited
from specpilot.domain.linting.pairs import pairs
from specpilot.domain.linting.tables import Analysis
from specpilot.domain.linting.worlds import Situation

__all__ = [
    "SEVERITY",
    "TITLES",
    "Code",
    "Finding",
    "Severity",
    "Situation",
    "Witness",
    "lint",
]

_NONE: Mapping[str, int | None] = {}


def lint(
    rules: CompiledRuleSet,
    *,
    settings: Mapping[str, int | None] = _NONE,
    window: timedelta = timedelta(),
) -> tuple[Finding, ...]:
    """Look at a rule set that compiles; findings come in the order of its rules.

    Args:
        rules: The rules.
        settings: Where they are looked at for a policy: its settings that speculate, each with the
            batch limit that is left to rules, None where none is.
        window: The window of the policy's signals.
    """
    limits = {name: limit for name, limit in settings.items() if limit is not None}
    in_force = with_limits(rules.rule_set, limits, window=window)
    analysis = Analysis(rules if in_force is rules.rule_set else CompiledRuleSet(in_force))
    found = list(alone.unused_parameters(analysis))
    for rule in rules.rule_set.rules:
        reached = list(alone.reach(rule, analysis))
        never = any(f.code is Code.NEVER_TRUE for f in reached)
        found += reached
        found += comparisons.fixed(rule, analysis, never=never)
        found += alone.until_with_when(rule, analysis)
        found += alone.needs_for(rule, analysis)
        found += alone.inside_buckets(rule, analysis)
        if limits:
            found += limited(rule, settings, analysis)
    found += pairs(rules.rule_set.rules, analysis)
    order = {rule.name: number for number, rule in enumerate(rules.rule_set.rules)}
    return tuple(sorted(found, key=lambda f: order[f.rules[0]] if f.rules else -1))
