"""A batch limit as a rule: before all others, patient, and only about its own setting."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from specpilot.controller.targets import limits_left_to_rules
from specpilot.domain.batch_limits import rule_name, with_limits
from specpilot.domain.conditions import Truth
from specpilot.domain.context import TargetFacts
from specpilot.domain.engine_run import EngineRun, Generation, ModelRunner
from specpilot.domain.evaluation import CompiledRuleSet, Evaluation
from specpilot.domain.readings import Reading, Readings, UnknownReason
from specpilot.domain.rules import Rule, RuleSet
from specpilot.domain.settings import OFF, Setting
from tests.unit.domain.builders import NEW, NGRAM, at, policy, replica, state

WINDOW = timedelta(minutes=3)


def ran(version: str, **how: Any) -> EngineRun:
    """An engine that is run as its release does by default, but for what is said."""
    default = {"generation": Generation.DEFAULT, "runner": ModelRunner.DEFAULT, "data_parallel": 1}
    return EngineRun(version=version, **(default | how))


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


LEFT = {"ngram": 32}


@pytest.mark.parametrize(
    ("run", "left", "reason"),
    [
        (ran("0.8.1"), {}, "the flag of the V0 engine works"),
        (ran("0.9.2"), LEFT, "the default engine reads no key"),
        (ran("0.9.2", generation=Generation.V0), {}, "V0 reads it"),
        (ran("0.9.2", generation=Generation.UNKNOWN), LEFT, "it may be V1"),
        (ran("0.17.0"), LEFT, "neither key nor schedule"),
        (ran("0.24.0"), {}, "a schedule"),
        (ran("0.24.0", data_parallel=2), LEFT, "no schedule with data parallelism"),
        (ran("0.24.0", data_parallel=None), LEFT, "there may be data parallelism"),
        (ran("0.24.0", runner=ModelRunner.UNKNOWN), LEFT, "runner 2 may be chosen"),
        (ran("0.30.0"), LEFT, "runner 2 is the default and ignores a schedule"),
        (ran("0.30.0", runner=ModelRunner.V1), {}, "runner 1 follows it"),
        (ran("0.33.0"), {}, "a schedule"),
        (ran("0.33.0", runner=ModelRunner.UNKNOWN), {}, "both runners follow it"),
        (ran("0.33.0", generation=Generation.V0), {}, "a left-over variable decides nothing"),
    ],
)
def test_which_limits_are_left_to_rules(run: EngineRun, left: dict[str, int], reason: str) -> None:
    limited = Setting(
        name="ngram", method="ngram", num_speculative_tokens=4, disable_above_batch_size=32
    )
    who = policy(settings={"off": OFF, "ngram": limited, "deep": DEEP})
    assert limits_left_to_rules(who, engine=run) == left, reason
