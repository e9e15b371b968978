"""Conditions: numbers, carets, Kleene logic, evidence."""

import contextlib
import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.conditions import Condition, ConditionError, Truth
from specpilot.domain.readings import Readings
from tests.unit.domain.builders import readings

SETTING = {"name": "ngram", "method": "ngram", "depth": 4.0}


def judge(text: str, known: Readings, **params: float) -> Truth:
    return Condition(text, parameters=params).judge(known, parameters=params, setting=SETTING).truth


@dataclass(frozen=True)
class Case:
    reason: str
    when: str
    known: Readings
    want: Truth


CASES = [
    Case("an integer literal compares with a double", "batch_size > 32",
         readings(batch_size=33), Truth.TRUE),
    Case("digits inside a string stay a string", "setting.name == 'v32'",
         readings(), Truth.FALSE),
    Case("digits inside a name stay a name", "e2e_p99 > 4", readings(e2e_p99=5), Truth.TRUE),
    Case("an exponent is a double already", "batch_size > 1e2",
         readings(batch_size=101), Truth.TRUE),
    Case("an absent signal is Unknown, never 0", "batch_size < 4", readings(), Truth.UNKNOWN),
    Case("its negation is Unknown too", "!(batch_size < 4)", readings(), Truth.UNKNOWN),
    Case("arithmetic on Unknown is Unknown", "batch_size * 2 > 0", readings(), Truth.UNKNOWN),
    Case("false && Unknown is false", "queue_depth > 1 && batch_size > 1",
         readings(queue_depth=0), Truth.FALSE),
    Case("Unknown && false is false", "batch_size > 1 && queue_depth > 1",
         readings(queue_depth=0), Truth.FALSE),
    Case("true || Unknown is true", "queue_depth < 1 || batch_size > 1",
         readings(queue_depth=0), Truth.TRUE),
    Case("the active setting is visible", "setting.method == 'ngram' && setting.depth == 4",
         readings(), Truth.TRUE),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_truth(case: Case) -> None:
    assert judge(case.when, case.known) is case.want, case.reason


def _and(a: Truth, b: Truth) -> Truth:
    if Truth.FALSE in (a, b):
        return Truth.FALSE
    return Truth.TRUE if a is b is Truth.TRUE else Truth.UNKNOWN


def test_connectives_follow_kleene() -> None:
    value = {Truth.TRUE: 1.0, Truth.FALSE: 0.0}
    for a, b in itertools.product(Truth, repeat=2):
        known = readings(
            **{n: value[t] for n, t in (("batch_size", a), ("queue_depth", b)) if t in value}
        )
        left, right = "batch_size > 0.5", "queue_depth > 0.5"
        assert judge(f"{left} && {right}", known) is _and(a, b), (a, b)
        swap = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE, Truth.UNKNOWN: Truth.UNKNOWN}
        assert judge(f"{left} || {right}", known) is swap[_and(swap[a], swap[b])], (a, b)


@dataclass(frozen=True)
class Fault:
    reason: str
    when: str
    says: str
    caret_under: str


FAULTS = [
    Fault("a misspelt signal names the nearest", "queue_depth < 10 && batchsize > 3",
          "did you mean batch_size?", "batchsize"),
    Fault("the caret counts the user's characters, not the converted ones",
          "batch_size > 3 && queue_depth > 4 && ttft_men < 3", "did you mean ttft_mean?",
          "ttft_men"),
    Fault("a misspelt parameter names the nearest", "batch_size > params.busyBach",
          "did you mean busyBatch?", "params.busyBach"),
    Fault("types are checked", "batch_size > 'many'", "do not go together", "> 'many'"),
    Fault("the second line has a caret of its own", "batch_size > 3 &&\n  tpot_men < 1",
          "did you mean tpot_mean?", "tpot_men"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.reason)
def test_errors_point_at_the_place(fault: Fault) -> None:
    with pytest.raises(ConditionError) as caught:
        Condition(fault.when, parameters=["busyBatch"])
    message, row, caret = str(caught.value).rsplit("\n", 2)
    assert fault.says in message
    column = caret.index("^")
    assert row[column:].startswith(fault.caret_under) or fault.reason.startswith("types")


def test_a_number_is_not_a_condition() -> None:
    with pytest.raises(ConditionError, match="true or false"):
        Condition("batch_size + 1")


def test_evidence_has_the_threshold_in_force() -> None:
    condition = Condition(
        "mean_acceptance_length < params.low && 32 < batch_size && tpot_p99 / tpot_p50 > 3",
        parameters=["low"],
    )
    judgement = condition.judge(
        readings(mean_acceptance_length=1.3, batch_size=40),
        parameters={"low": 1.6},
        setting=SETTING,
    )
    found = {e.signal: (e.value, e.comparison, e.threshold) for e in judgement.evidence}
    assert found["mean_acceptance_length"] == (1.3, "<", 1.6)
    assert found["batch_size"] == (40, ">", 32.0), "mirrored, so that the signal stands first"
    assert found["tpot_p99"] == (None, "", None), "a quotient has no threshold of one signal"
    assert "mean_acceptance_length 1.3 < 1.6" in judgement.why


@given(st.text(max_size=80))
def test_any_text_compiles_or_is_refused_in_words(text: str) -> None:
    with contextlib.suppress(ConditionError):  # any other exception fails the test
        Condition(text)


def test_a_long_text_is_refused_before_it_is_compiled() -> None:
    with pytest.raises(ConditionError, match="at most"):
        Condition(" || ".join(["batch_size > 1"] * 500))
