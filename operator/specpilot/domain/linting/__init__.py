"""Lint: what is wrong with rules that can be said before they have run.

Everything that is claimed to happen is shown with a reading at which it does, and that reading was
put to the compiled rules. What is claimed never to happen was tried in every case there is; where
the cases cannot be listed, lint says so and claims nothing.
"""

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


def lint(rules: CompiledRuleSet) -> tuple[Finding, ...]:
    """Look at a rule set that compiles; findings come in the order of its rules."""
    analysis = Analysis(rules)
    found = list(alone.unused_parameters(analysis))
    for rule in rules.rule_set.rules:
        reached = list(alone.reach(rule, analysis))
        never = any(f.code is Code.NEVER_TRUE for f in reached)
        found += reached
        found += comparisons.fixed(rule, analysis, never=never)
        found += alone.until_with_when(rule, analysis)
        found += alone.needs_for(rule, analysis)
        found += alone.inside_buckets(rule, analysis)
    found += pairs(analysis)
    order = {rule.name: number for number, rule in enumerate(rules.rule_set.rules)}
    return tuple(sorted(found, key=lambda f: order[f.rules[0]] if f.rules else -1))
