"""A batch limit as a rule: before all others, patient, and only about its own setting."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from specpilot.controller.targets import limits_left_to_rules
from specpilot.domain.batch_limits import rule_name, with_limits
from specpilot.domain.conditions import Truth
from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet, Evaluation
from specpilot.domain.readings import Reading, Readings, UnknownReason
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import OFF, Setting
from tests.unit.domain.builders import NEW, NGRAM, at, policy, replica, state

WINDOW = timedelta(minutes=3)
USERS = RuleSet(name="mine", rules=(Rule(name="on", when="batch_size > 0", setting="ngram"),))
DEEP = Setting(name="deep", method="ngram", num_speculative_tokens=8)


def evaluated(active: Setting, batch: float | None, *, after_s: float = 0) -> Evaluation:
    """Judged after a batch of 40 has been seen for some seconds."""
    rules = CompiledRuleSet(with_limits(USERS, {"ngram": 32}, window=WINDOW))
    facts = TargetFacts.of(state(NEW, replica("a", NEW)))
    pending = rules.evaluate(
        readings(40.0), active=NGRAM, parameters={}, pending={}, target=facts, now=at(0)
    ).pending
    for second in range(30, int(after_s), 30):
        pending = rules.evaluate(
            readings(40.0), active=NGRAM, parameters={}, pending=pending, target=facts,
            now=at(second),
        ).pending  # fmt: skip
    return rules.evaluate(
        readings(batch), active=active, parameters={}, pending=pending, target=facts,
        now=at(after_s),
    )  # fmt: skip


def readings(batch: float | None) -> Readings:
    reason = UnknownReason.STALE if batch is None else None
    return Readings.of([Reading(signal="batch_size", value=batch, reason=reason)])


@dataclass(frozen=True)
class Case:
    reason: str
    active: Setting
    batch: float | None
    after_s: float
    want: Truth
    wins: str


GUARD = rule_name("ngram")
CASES = [
    Case("above for three windows: off, whatever the user asks", NGRAM, 40.0, 541, Truth.TRUE,
         GUARD),
    Case("not for that long", NGRAM, 40.0, 500, Truth.TRUE, "on"),
    Case("a little below the limit is not calm", NGRAM, 27.0, 541, Truth.TRUE, GUARD),
    Case("calm again", NGRAM, 25.0, 541, Truth.FALSE, "on"),
    Case("Unknown is no calm, and no reason to fire", NGRAM, None, 541, Truth.UNKNOWN, ""),
    Case("once off it is over: the gate keeps it off", OFF, 40.0, 541, Truth.FALSE, "on"),
    Case("another setting has no limit", DEEP, 40.0, 541, Truth.FALSE, "on"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_the_rule_of_a_limit(case: Case) -> None:
    found = evaluated(case.active, case.batch, after_s=case.after_s)
    assert found.verdicts[0].rule == GUARD
    assert found.verdicts[0].truth is case.want
    assert (found.winner.rule if found.winner else "") == case.wins


def test_nothing_is_added_where_nothing_is_left_to_rules() -> None:
    assert with_limits(USERS, {}, window=WINDOW) is USERS


@pytest.mark.parametrize(
    ("version", "left", "reason"),
    [
        ("0.8.1", {}, "the flag of the V0 engine works"),
        ("0.9.2", {"ngram": 32}, "the default engine reads no key"),
        ("0.17.0", {"ngram": 32}, "neither key nor schedule"),
        ("0.24.0", {}, "a schedule"),
        ("0.33.0", {}, "a schedule"),
    ],
)
def test_which_limits_are_left_to_rules(version: str, left: dict[str, int], reason: str) -> None:
    limited = Setting(
        name="ngram", method="ngram", num_speculative_tokens=4, disable_above_batch_size=32
    )
    who = policy(settings={"off": OFF, "ngram": limited, "deep": DEEP})
    assert limits_left_to_rules(who, engine_version=version) == left, reason
