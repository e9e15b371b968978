"""Rule sets: order, `for`, Unknown, minimum of drafts."""

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.conditions import Truth
from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet, Evaluation, RuleSetError
from specpilot.domain.memory import Pending
from specpilot.domain.readings import Readings
from specpilot.domain.rules import Rule, RuleSet
from tests.unit.domain.builders import NGRAM, at, readings

RULES = CompiledRuleSet(
    RuleSet(
        name="r",
        parameters={"low": 1.6},
        rules=(
            Rule(name="bad", when="mean_acceptance_length < params.low", setting="off",
                 hold=timedelta(seconds=30), min_drafts=100),
            Rule(name="busy", when="batch_size > 32", setting="off"),
            Rule(name="quiet", when="batch_size < 4", setting="ngram"),
        ),
    )
)  # fmt: skip


def evaluate(
    known: Readings, second: float, before: Evaluation | None = None, **overrides: float
) -> Evaluation:
    pending: dict[str, Pending] = dict(before.pending) if before else {}
    return RULES.evaluate(
        known,
        active=NGRAM,
        parameters=overrides,
        pending=pending,
        target=TargetFacts(),
        now=at(second),
    )


def test_the_first_rule_in_order_that_fires_wins() -> None:
    winner = evaluate(readings(batch_size=40), 0).winner
    assert winner is not None
    assert (winner.rule, winner.setting) == ("busy", "off")
    assert "batch_size 40 > 32" in winner.why


def test_a_condition_must_hold_for_its_time() -> None:
    poor = readings(mean_acceptance_length=1.2, drafts=500, batch_size=10)
    first = evaluate(poor, 0)
    assert first.winner is None
    assert "held 0s of 30s" in first.words()
    later = evaluate(poor, 20, first)
    assert later.winner is None
    last = evaluate(poor, 30, later)
    assert last.winner is not None
    assert last.winner.rule == "bad"


def test_false_in_between_starts_the_time_again() -> None:
    poor = readings(mean_acceptance_length=1.2, drafts=500, batch_size=10)
    good = readings(mean_acceptance_length=2.2, drafts=500, batch_size=10)
    third = evaluate(poor, 40, evaluate(good, 20, evaluate(poor, 0)))
    assert third.winner is None


@pytest.mark.parametrize(
    ("gap", "fires", "reason"),
    [(15, True, "a short silence keeps the time held"), (90, False, "a long one forgets it")],
)
def test_unknown_neither_fires_nor_forgets_at_once(gap: int, fires: bool, reason: str) -> None:
    poor = readings(mean_acceptance_length=1.2, drafts=500, batch_size=10)
    silent = evaluate(Readings(), gap / 2, evaluate(poor, 0))
    assert silent.winner is None
    assert silent.blind
    # just before the condition is seen again
    again = evaluate(poor, gap, silent)
    held = next(v for v in again.verdicts if v.rule == "bad").held
    assert (held > timedelta(0)) is fires, reason


def test_too_few_drafts_make_a_rule_unknown() -> None:
    few = evaluate(readings(mean_acceptance_length=1.2, drafts=50, batch_size=10), 0)
    verdict = next(v for v in few.verdicts if v.rule == "bad")
    assert verdict.truth is Truth.UNKNOWN
    assert "50 of 100" in verdict.why


def test_drafts_that_are_not_known_are_not_none() -> None:
    silent = evaluate(readings(mean_acceptance_length=1.2, batch_size=10), 0)
    verdict = next(v for v in silent.verdicts if v.rule == "bad")
    assert verdict.truth is Truth.UNKNOWN
    assert "drafts is Unknown (NoData), 100 needed" in verdict.why
    assert "0 of 100" not in verdict.why


def test_parameters_of_the_policy_replace_the_rule_sets_own() -> None:
    poor = readings(mean_acceptance_length=1.2, drafts=500, batch_size=10)
    assert evaluate(poor, 0, low=1.1).verdicts[0].truth is Truth.FALSE


def test_every_fault_of_a_rule_set_is_listed_at_once() -> None:
    with pytest.raises(RuleSetError) as caught:
        CompiledRuleSet(
            RuleSet(
                name="bad",
                rules=(
                    Rule(name="a", when="batchsize > 1", setting="off"),
                    Rule(name="b", when="batch_size >", setting="off"),
                    Rule(name="b", when="batch_size > 1", setting="off"),
                ),
            )
        )
    assert str(caught.value).count("rule a") == 1
    assert "used twice" in str(caught.value)
    assert str(caught.value).count("rule b") == 2, "its own fault, and the name used again"


_values = st.fixed_dictionaries(
    {},
    optional={
        "mean_acceptance_length": st.sampled_from([1.2, 2.0]),
        "drafts": st.sampled_from([10.0, 500.0]),
        "batch_size": st.sampled_from([2.0, 10.0, 40.0]),
        "queue_depth": st.just(0.0),
        "tpot_mean": st.just(0.02),
    },
)


@given(st.lists(_values, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_a_reading_set_and_its_permutation_give_the_same_verdict(
    looks: list[dict[str, float]], random: Random
) -> None:
    """Over several looks, so that what is held is carried along: winner, words and evidence."""
    one: Evaluation | None = None
    other: Evaluation | None = None
    for number, values in enumerate(looks):
        shuffled = list(values.items())
        random.shuffle(shuffled)
        one = evaluate(readings(**values), 20 * number, one)
        other = evaluate(readings(**dict(shuffled)), 20 * number, other)
        assert one == other
        assert one.words() == other.words()
