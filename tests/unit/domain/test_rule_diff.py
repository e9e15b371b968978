"""The difference of two rule sets, in the terms of rules."""

from dataclasses import replace
from datetime import timedelta

import pytest

from specpilot.domain.rule_diff import ChangeKind, FieldChange, difference
from specpilot.domain.rules import Rule, RuleSet

OFF = Rule(name="off", when="batch_size > 32", setting="off", hold=timedelta(minutes=5))
ON = Rule(name="on", when="batch_size < 4", setting="eagle3")
LATE = Rule(name="late", when="tpot_p99 > 0.1", setting="off")
BASE = RuleSet(name="r", rules=(OFF, ON, LATE), parameters={"busy": 32.0})


def changed(*rules: Rule) -> list[tuple[str, ChangeKind, tuple[str, ...]]]:
    found = difference(BASE, replace(BASE, rules=rules))
    return [(c.rule, c.kind, tuple(f.field for f in c.fields)) for c in found.rules]


def test_the_same_rules_differ_in_nothing() -> None:
    assert not difference(BASE, replace(BASE, parameters={"busy": 32}))


@pytest.mark.parametrize(
    ("rules", "expected", "reason"),
    [
        (
            (replace(OFF, hold=timedelta(minutes=9)), ON, LATE),
            [("off", ChangeKind.CHANGED, ("for_s",))],
            "only the field that differs is named",
        ),
        (
            (ON, LATE),
            [("off", ChangeKind.REMOVED, ("when", "setting", "for_s", "min_drafts"))],
            "a removed rule is shown whole",
        ),
        (
            (LATE, OFF, ON),
            [("late", ChangeKind.MOVED, ("position",))],
            "the rule that was moved is named, and not the two that made room",
        ),
        (
            (replace(OFF, name="busy"), ON, LATE),
            [("busy", ChangeKind.RENAMED, ("name",))],
            "the same rule under another name is no new rule",
        ),
        (
            (OFF, replace(ON, when="batch_size < 8"), replace(LATE, name="slow", setting="on")),
            [
                ("on", ChangeKind.CHANGED, ("when",)),
                ("slow", ChangeKind.ADDED, ("when", "setting", "for_s", "min_drafts")),
                ("late", ChangeKind.REMOVED, ("when", "setting", "for_s", "min_drafts")),
            ],
            "a rule that was renamed and changed is another rule",
        ),
    ],
)
def test_rules(
    rules: tuple[Rule, ...], expected: list[tuple[str, ChangeKind, tuple[str, ...]]], reason: str
) -> None:
    assert changed(*rules) == expected, reason


def test_parameters_are_compared_one_by_one() -> None:
    found = difference(BASE, replace(BASE, parameters={"busy": 16.0, "low": 1.6}))
    assert found.fields == (
        FieldChange(field="parameters.busy", before=32.0, after=16.0),
        FieldChange(field="parameters.low", before=None, after=1.6),
    )
