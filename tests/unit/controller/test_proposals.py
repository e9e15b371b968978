"""What a rule that asks for `speculating` becomes in a policy."""

from pathlib import Path

import pytest

from specpilot.controller.proposals import proposal
from specpilot.controller.rulebook import check_fit
from specpilot.domain.changes import Phase
from specpilot.domain.conditions import Truth
from specpilot.domain.evaluation import Evaluation, RuleSetError, Verdict
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Mode
from specpilot.domain.rules import Rule, RuleSet, RuleSetVersion
from specpilot.domain.settings import OFF, SPECULATING, Setting
from specpilot.domain.situation import Answer, Decision
from specpilot.store import RuleOwner
from tests.unit.controller.world import World
from tests.unit.domain.builders import NGRAM, T0, at, policy, readings

EAGLE = Setting(name="eagle3", method="eagle3", model="m", num_speculative_tokens=3)
SETTINGS = {"eagle3": EAGLE, "ngram": NGRAM, "off": OFF}


def version(setting: str) -> RuleSetVersion:
    rules = RuleSet(name="mine", rules=(Rule(name="on", when="batch_size < 4", setting=setting),))
    return RuleSetVersion(
        namespace="local",
        version=1,
        rule_set=rules,
        content_hash=rules.content_hash(),
        author="test",
        source="test",
    )


@pytest.mark.parametrize(
    ("active", "expected", "reason"),
    [
        (OFF, "ngram", "what ran last is switched on again"),
        (EAGLE, None, "something speculates already"),
    ],
)
def test_speculating_is_what_ran_last(active: Setting, expected: str | None, reason: str) -> None:
    winner = Verdict(
        rule="on",
        setting=SPECULATING,
        truth=Truth.TRUE,
        held=at(0) - T0,
        fires=True,
        why="batch_size 2 < 4",
        evidence=(),
    )
    wanted = proposal(
        policy(settings=SETTINGS),
        version=version(SPECULATING),
        evaluation=Evaluation(verdicts=(winner,), winner=winner, pending={}),
        readings=readings(batch_size=2),
        memory=PolicyMemory(last_speculating="ngram"),
        active=active,
        now=T0,
    )
    assert (wanted.setting.name if wanted else None) == expected, reason


def test_a_shared_rule_set_fits_whatever_a_policy_calls_its_settings() -> None:
    check_fit(version(SPECULATING), SETTINGS, {})
    check_fit(version("off"), SETTINGS, {})
    with pytest.raises(RuleSetError, match=r"mine/on asks for setting 'eagle9'"):
        check_fit(version("eagle9"), SETTINGS, {})


SHARED = RuleSet(
    name="hit-rate",
    rules=(
        Rule(name="off-when-busy", when="batch_size > 32", setting="off"),
        Rule(name="on-when-quiet", when="batch_size < 4", setting=SPECULATING),
    ),
)


def test_in_the_loop_it_waits_for_approval_and_then_brings_back_what_ran(tmp_path: Path) -> None:
    world = World(tmp_path, mode=Mode.APPROVE)
    with world.store.begin() as unit:
        unit.rules.apply(
            namespace="local",
            rule_set=SHARED,
            owner=RuleOwner.FILE,
            author="test",
            source="test",
            at=world.clock.at,
        )
    for batch, expected in ((40, "off"), (1, "ngram")):
        world.telemetry.batch = batch
        world.run(60)
        change = world.changes()[-1]
        assert (change.wanted.setting, change.phase) == (expected, Phase.PENDING)
        world.registry.decisions[change.id] = Decision(answer=Answer.APPROVE, by="ann")
        world.run(600, until=lambda: all(c.phase.ended for c in world.changes()))
        assert world.status().active == expected
    assert [c.phase for c in world.changes()] == [Phase.SUCCEEDED, Phase.SUCCEEDED]
