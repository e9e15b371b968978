"""Conditions: numbers, carets, Kleene logic, evidence."""

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from specpilot.domain.conditions import Comparison, Condition, ConditionError, Truth
from specpilot.domain.context import TargetFacts, target_variables, time_variables
from specpilot.domain.readings import Readings
from tests.unit.domain.builders import readings

SETTING = {"setting.name": "ngram", "setting.method": "ngram", "setting.depth": 4.0}
CONTEXT = {
    **SETTING,
    **target_variables(
        TargetFacts(
            name="chat",
            namespace="serving",
            kind="Deployment",
            replicas=4,
            ready=3,
            engine="0.32.1rc1",
            labels={"tier": "gold", "app.kubernetes.io/name": "vllm"},
        )
    ),
    **time_variables(datetime(2026, 3, 1, 23, 30, tzinfo=UTC), zone=ZoneInfo("Europe/Berlin")),
}


def judge(text: str, known: Readings, **params: float) -> Truth:
    return Condition(text, parameters=params).judge(known, parameters=params, context=CONTEXT).truth


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
    Case("times are seconds", "tpot_p99 > 120ms", readings(tpot_p99=0.121), Truth.TRUE),
    Case("a literal is the number nearest to what is written", "tpot_p99 == 120ms",
         readings(tpot_p99=0.12), Truth.TRUE),
    Case("microseconds", "tpot_p99 < 250us", readings(tpot_p99=0.0002), Truth.TRUE),
    Case("times can be put together", "e2e_p99 == 1h30m", readings(e2e_p99=5400), Truth.TRUE),
    Case("shares are ratios", "kv_cache_usage > 80%", readings(kv_cache_usage=0.81), Truth.TRUE),
    Case("binary sizes", "gpu_memory_used >= 60GiB", readings(gpu_memory_used=60 * 2**30),
         Truth.TRUE),
    Case("decimal sizes", "gpu_memory_used == 40GB", readings(gpu_memory_used=40e9), Truth.TRUE),
    Case("power", "gpu_power > 0.3kW", readings(gpu_power=301), Truth.TRUE),
    Case("a list", "batch_size in [1, 2, 3]", readings(batch_size=2), Truth.TRUE),
    Case("a choice", "batch_size > (setting.depth > 2 ? 10 : 20)", readings(batch_size=11),
         Truth.TRUE),
    Case("a choice on Unknown is Unknown", "queue_depth > 1 ? true : false", readings(),
         Truth.UNKNOWN),
    Case("a note", "batch_size > 1 // of requests\n && batch_size < 3", readings(batch_size=2),
         Truth.TRUE),
    Case("dividing by zero is no knowledge", "tpot_p99 / tpot_p50 > 3",
         readings(tpot_p99=1, tpot_p50=0), Truth.UNKNOWN),
    Case("nor is 0/0, which compares as false", "!(tpot_p99 / tpot_p50 > 3)",
         readings(tpot_p99=0, tpot_p50=0), Truth.UNKNOWN),
    Case("but what does not depend on it stands", "tpot_p99 / tpot_p50 > 3 || tpot_p99 > 0",
         readings(tpot_p99=1, tpot_p50=0), Truth.TRUE),
    Case("dividing goes from left to right", "batch_size / 4 / 2 == 2", readings(batch_size=16),
         Truth.TRUE),
    Case("the target's name", "target.name == 'chat' && target.namespace == 'serving'",
         readings(), Truth.TRUE),
    Case("its replicas", "target.ready < target.replicas", readings(), Truth.TRUE),
    Case("its version as text", "target.engine.startsWith('0.32.')", readings(), Truth.TRUE),
    Case("its release compares", "target.release >= 24 && target.release < 1000", readings(),
         Truth.TRUE),
    Case("a label", "target.labels.tier == 'gold'", readings(), Truth.TRUE),
    Case("a label with dots", "target.labels['app.kubernetes.io/name'] == 'vllm'", readings(),
         Truth.TRUE),
    Case("a method of a label", "target.labels['tier'].contains('ol')", readings(), Truth.TRUE),
    Case("a label that is not set is Unknown", "target.labels.team == 'a'", readings(),
         Truth.UNKNOWN),
    Case("whether it is set is known", "has(target.labels.team) || 'tier' in target.labels",
         readings(), Truth.TRUE),
    Case("the hour in the zone", "time.hour == 0 && time.minute == 30", readings(), Truth.TRUE),
    Case("the weekday in the zone", "time.weekday == 1", readings(), Truth.TRUE),
    Case("weekdays in a list", "time.weekday in [6, 7]", readings(), Truth.FALSE),
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
    Fault("a misspelt member names the nearest", "target.engin == '0.32.0'",
          "target has no engin; did you mean target.engine?", "target.engin"),
    Fault("a member that is like none lists them all", "time.zone == 'x'",
          "it has hour, minute, weekday", "time.zone"),
    Fault("a variable alone is no value", "target == 'x'", "name one of target.name", "target"),
    Fault("an unknown parameter says where to add it", "batch_size > params.n",
          "add it under `parameters`", "params.n"),
    Fault("a unit must fit the signal", "queue_depth < 1 && batch_size > 5m",
          "batch_size is in requests and 5m is in seconds", "5m"),
    Fault("the unit may stand on the left", "80% < tpot_p99",
          "tpot_p99 is in seconds", "80%"),
    Fault("units are followed through a sum", "tpot_p99 - tpot_p50 > 20%",
          "the other side is in seconds and 20% is in ratio", "20%"),
    Fault("and through a product with a share", "tpot_p99 * 120% > 2GB", "2GB is in bytes", "2GB"),
    Fault("and through a quotient of the same unit", "tpot_p99 / tpot_p50 > 5m",
          "the other side is in ratio", "5m"),
    Fault("and in a list", "tpot_p99 in [10ms, 5%]", "5% is in ratio", "5%"),
    Fault("hours of the day are no time span", "time.hour > 22h", "hours of the day", "22h"),
    Fault("an unknown unit names those there are", "tpot_p99 > 5min", "min is no unit", "5min"),
    Fault("a number in another base", "batch_size > 0x10", "write it in decimal", "0x10"),
    Fault("versions are not text to be ordered", "target.engine < '0.10'",
          "compare versions by target.release", "< '0.10'"),
    Fault("a chain of comparisons", "1 < batch_size < 3", "write 1 < x && x < 3", "< 3"),
    Fault("= is no operator", "batch_size = 3", "equality is written ==", "= 3"),
    Fault("words are no operators", "batch_size > 3 and queue_depth > 1", "write &&", "and"),
    Fault("a macro", "[1, 2].exists(x, x > batch_size)", "an operator", ".exists"),
    Fault("a macro of labels", "target.labels.all(k, k == 'a')", "all cannot be called", "all("),
    Fault("a regular expression", "target.name.matches('(a+)+$')", "matches cannot be called",
          "matches"),
    Fault("a function that makes something", "size(target.name) > 3", "size cannot be called",
          "size"),
    Fault("a map", "{'a': 1} == {'a': 1}", "maps cannot be made", "{"),
    Fault("a list by itself", "[1] == [1]", "only stand after `in`", "[1]"),
    Fault("text put together", "target.name + 'x' == 'y'", "only numbers can be calculated with",
          "+ 'x'"),
    Fault("a constant divisor of zero", "batch_size / 0 > 1", "divides by 0", "/ 0"),
    Fault("a remainder", "batch_size % 2 == 1", "no remainder", "% 2"),
    Fault("text that does not end", "target.name == 'x", "the text is not closed", "'x"),
    Fault("a number of which nothing is left", "batch_size > 1e999", "too large", "1e999"),
    Fault("the end", "batch_size >", "the condition ends", ""),
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
    assert row[column:].startswith(fault.caret_under)


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
        context=SETTING,
    )
    found = {e.signal: (e.value, e.comparison, e.threshold) for e in judgement.evidence}
    assert found["mean_acceptance_length"] == (1.3, "<", 1.6)
    assert found["batch_size"] == (40, ">", 32.0), "mirrored, so that the signal stands first"
    assert found["tpot_p99"] == (None, "", None), "a quotient has no threshold of one signal"
    assert "mean_acceptance_length 1.3 < 1.6" in judgement.why


@dataclass(frozen=True)
class Said:
    reason: str
    when: str
    known: Readings
    why: str


SAID = [
    Said("true and false parts", "batch_size > 32 && mean_acceptance_length < 1.6",
         readings(batch_size=41.23, mean_acceptance_length=2),
         "batch_size 41.23 > 32; mean_acceptance_length 2 not < 1.6"),
    Said("units", "tpot_p99 > 120ms", readings(tpot_p99=0.13), "tpot_p99 0.13 > 0.12"),
    Said("no value", "batch_size > 32", readings(), "batch_size is Unknown (NoData)"),
    Said("time and target", "time.hour >= 22 && target.release == 32", readings(),
         "time.hour 0 not >= 22; target.release 32 == 32"),
    Said("text", "setting.method != 'eagle3'", readings(), "setting.method 'ngram' != 'eagle3'"),
    Said("a label", "target.labels.tier == 'gold'", readings(),
         "target.labels.tier 'gold' == 'gold'"),
    Said("a label that is not set", "target.labels.team == 'a'", readings(),
         "target.labels.team is not set"),
    Said("a list", "time.weekday in [6, 7]", readings(), "time.weekday 1"),
    Said("a divisor of zero", "tpot_p99 / tpot_p50 > 3", readings(tpot_p99=1, tpot_p50=0),
         "tpot_p99 1; tpot_p50 0; a divisor is 0"),
]  # fmt: skip


@pytest.mark.parametrize("said", SAID, ids=lambda s: s.reason)
def test_the_words(said: Said) -> None:
    judgement = Condition(said.when).judge(said.known, parameters={}, context=CONTEXT)
    assert judgement.why == said.why


def test_what_is_not_known_of_a_target_is_unknown() -> None:
    nothing = target_variables(TargetFacts())
    for when in (
        "target.engine == '0.32.0'",
        "target.release > 1",
        "target.labels.a == 'b'",
        "has(target.labels.a)",
        "'a' in target.labels",
        "target.replicas > 1",
    ):
        judgement = Condition(when).judge(Readings(), parameters={}, context=nothing)
        assert judgement.truth is Truth.UNKNOWN, when
        assert "is Unknown" in judgement.why or "No value" in judgement.why


@pytest.mark.parametrize(
    ("engine", "release"),
    [("0.32.0", 32), ("v0.8.2", 8), ("1.2", 1002), ("0.32.1.dev12+gabc", 32), ("main", None)],
)
def test_a_release_is_a_number_that_compares(engine: str, release: float | None) -> None:
    assert TargetFacts(engine=engine).release == release


def test_parts_are_there_for_whoever_wants_to_reason_about_them() -> None:
    condition = Condition(
        "(tpot_p99 > 120ms || 32 <= batch_size) && !(queue_depth > params.q) && time.hour > 3",
        parameters=["q"],
    )
    assert condition.comparisons == (
        Comparison(signal="tpot_p99", op=">", literal=0.12),
        Comparison(signal="batch_size", op=">=", literal=32),
        Comparison(signal="queue_depth", op=">", parameter="q"),
    )
    assert condition.signals == ("tpot_p99", "batch_size", "queue_depth")
    assert condition.variables == ("time.hour",)
