"""Rules over time: `for`, `atLeast`, `until`, `onUnknown` and `grace`, and memory between ticks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.conditions import Truth
from specpilot.domain.context import TargetFacts
from specpilot.domain.evaluation import CompiledRuleSet, RuleSetError, Verdict
from specpilot.domain.holding import spell, window_start
from specpilot.domain.memory import Pending, PolicyMemory
from specpilot.domain.readings import Readings
from specpilot.domain.rules import AtLeast, OnUnknown, Rule, RuleSet
from specpilot.domain.settings import canonical_json
from specpilot.store import codec
from tests.unit.domain.builders import NGRAM, T0, at, readings

BUSY = 41.2
BAND = 28.0
CALM = 8.0
LOST = None
"""Batch sizes: above the threshold of on, between it and that of off, below both, and no data."""

Batch = float | None
PENDING = Mapping[str, Pending]


def compiled(**fields: Any) -> CompiledRuleSet:
    rule = Rule(**({"name": "busy", "when": "batch_size > 32", "setting": "off"} | fields))
    return CompiledRuleSet(RuleSet(name="r", rules=(rule,)))


def known(batch: Batch) -> Readings:
    return Readings() if batch is None else readings(batch_size=batch)


def step(
    rules: CompiledRuleSet, batch: Batch, second: float, pending: PENDING
) -> tuple[Verdict, PENDING]:
    found = rules.evaluate(
        known(batch),
        active=NGRAM,
        parameters={},
        pending=pending,
        target=TargetFacts(),
        now=at(second),
    )
    return found.verdicts[0], found.pending


def play(rules: CompiledRuleSet, moments: Sequence[tuple[float, Batch]]) -> list[Verdict]:
    pending: PENDING = {}
    found = []
    for second, batch in moments:
        verdict, pending = step(rules, batch, second, pending)
        found.append(verdict)
    return found


def every(seconds: int, *batches: Batch, start: int = 0) -> list[tuple[float, Batch]]:
    return [(start + i * seconds, b) for i, b in enumerate(batches)]


@dataclass(frozen=True)
class Case:
    """How a sequence ends: `T`rue, `F`alse, `U`nknown, with `!` when the rule fires."""

    reason: str
    moments: Sequence[tuple[float, Batch]]
    ends: str
    why: str = ""
    rule: Mapping[str, Any] = field(default_factory=dict)


MINUTE = timedelta(minutes=1)
FIVE = {"hold": timedelta(minutes=5)}
BAND_RULE = {"until": "batch_size < 24"}
THREE_OF_FIVE = {"at_least": AtLeast(windows=3, of=5, each=MINUTE)}
SKIP, FIRE = {"on_unknown": OnUnknown.SKIP}, {"on_unknown": OnUnknown.FIRE}

CASES = [
    Case("no time asked for: at once", every(15, BUSY), "T!", "batch_size 41.2 > 32"),
    Case("on its way", every(40, *[BUSY] * 6), "T", "held 3m20s of 5m; batch_size 41.2 > 32", FIVE),
    Case("for long enough", every(60, *[BUSY] * 6), "T!", "held 5m of 5m", FIVE),
    Case("false in between begins anew", every(60, BUSY, BUSY, CALM, *[BUSY] * 5), "T", "held 4m",
         FIVE),
    Case("Unknown holds the verdict", every(60, *[BUSY] * 6, LOST), "U",
         "batch_size is Unknown", FIVE),
    Case("and within the grace keeps the time", every(30, *[BUSY] * 10, LOST, BUSY), "T!",
         "held 5m", FIVE),
    Case("after the grace the time is gone", every(60, *[BUSY] * 6, LOST, LOST, BUSY), "T",
         "held 0s of 5m", FIVE),
    Case("a longer grace of its own", every(60, *[BUSY] * 6, LOST, LOST, BUSY), "T!", "held 5m",
         FIVE | {"grace": timedelta(minutes=3)}),
    Case("no grace at all", every(30, *[BUSY] * 11, LOST, BUSY), "T", "held 0s",
         FIVE | {"grace": timedelta(0)}),
    Case("a gap in the evaluations is missing data too", [(0, BUSY), (400, BUSY)], "T", "held 0s",
         FIVE),
    Case("skip: Unknown is false", every(15, LOST), "F",
         "Unknown counts as false; batch_size is Unknown", SKIP),
    Case("skip: and ends what was held", every(15, *[BUSY] * 30, LOST, BUSY), "T", "held 0s",
         FIVE | SKIP),
    Case("fire: Unknown is true", every(15, LOST), "T!", "Unknown counts as true", FIRE),
    Case("fire: for as long as a true one", every(60, *[LOST] * 5), "T", "held 4m of 5m",
         FIVE | FIRE),
    Case("fire: and then it fires", every(60, *[LOST] * 6), "T!", "held 5m of 5m", FIVE | FIRE),

    Case("between the thresholds nothing begins", every(15, BAND), "F", "not > 32", BAND_RULE),
    Case("what has begun goes on between them", every(15, BUSY, BAND, BAND), "T!",
         "stays true until batch_size < 24; batch_size 28 not > 32", BAND_RULE),
    Case("until it is over", every(15, BUSY, BAND, CALM), "F", "over, for until holds",
         BAND_RULE),
    Case("and does not begin by itself", every(15, BUSY, CALM, BAND), "F", "", BAND_RULE),
    Case("the time runs through the band", every(60, BUSY, *[BAND] * 5), "T!", "held 5m of 5m",
         FIVE | BAND_RULE),
    Case("nothing known: Unknown", every(15, BUSY, LOST), "U", "is Unknown", BAND_RULE),
    Case("but it is not over", every(15, BUSY, LOST, BAND), "T!", "stays true", BAND_RULE),
    Case("however long, since it was never seen to be over", [(0, BUSY), (60, LOST), (7200, BAND)],
         "T!", "stays true", BAND_RULE),
    Case("although the time begins anew", [(0, BUSY), (60, LOST), (7200, BAND)], "T", "held 0s",
         FIVE | BAND_RULE),
    Case("an until that is Unknown keeps it", every(15, BUSY, CALM), "T!",
         "stays true until queue_depth == 0", {"until": "queue_depth == 0"}),
    Case("an until that holds at once leaves no time for it", every(15, BUSY), "F", "",
         {"until": "batch_size > 40"}),
    Case("skip: Unknown ends it", every(15, BUSY, LOST, BAND), "F", "", BAND_RULE | SKIP),
    Case("fire: Unknown begins it", every(15, LOST, BAND), "T!", "", BAND_RULE | FIRE),

    Case("the window that is still open does not count",
         every(60, BUSY, BUSY, BUSY), "T", "2 of 5 windows, 3 needed; batch_size 41.2 > 32",
         THREE_OF_FIVE),
    Case("three closed ones do", every(60, BUSY, BUSY, BUSY, BUSY), "T!",
         "3 of 5 windows; batch_size 41.2 > 32", THREE_OF_FIVE),
    Case("any three of the last five", every(60, BUSY, CALM, BUSY, CALM, BUSY, CALM), "T!",
         "3 of 5 windows; batch_size 8 not > 32", THREE_OF_FIVE),
    Case("not of the last six", every(60, BUSY, CALM, CALM, BUSY, CALM, BUSY, CALM), "F",
         "2 of 5 windows", THREE_OF_FIVE),
    Case("a window is what its last evaluation says",
         every(30, *[CALM, BUSY] * 3, CALM), "T!", "3 of 5 windows", THREE_OF_FIVE),
    Case("the other way round too", every(30, *[BUSY, CALM] * 3, BUSY), "T", "0 of 5",
         THREE_OF_FIVE),
    Case("Unknown leaves a window as it was", every(30, BUSY, LOST, BUSY, LOST, BUSY, LOST, CALM),
         "T!", "3 of 5", THREE_OF_FIVE),
    Case("Unknown does not fire", every(30, *[BUSY] * 8, LOST), "U", "4 of 5", THREE_OF_FIVE),
    Case("after the grace the windows are gone",
         every(60, *[BUSY] * 5, LOST, LOST, BUSY), "T", "0 of 5", THREE_OF_FIVE),
    Case("false for a while is no missing data", every(60, BUSY, CALM, CALM, BUSY, BUSY, CALM),
         "T!", "3 of 5", THREE_OF_FIVE),
    Case("with a band", every(60, BUSY, BAND, BAND, CALM), "T!", "3 of 5",
         THREE_OF_FIVE | BAND_RULE),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.reason)
def test_a_sequence(case: Case) -> None:
    last = play(compiled(**case.rule), case.moments)[-1]
    assert str(last.truth)[0] + "!" * last.fires == case.ends, last.why
    assert case.why in last.why


def test_words_of_a_hold_go_as_they_are_shown() -> None:
    rules = CompiledRuleSet(
        RuleSet(
            name="r",
            rules=(
                Rule(
                    name="a",
                    when="batch_size > 32 && mean_acceptance_length < 1.6",
                    setting="off",
                    hold=timedelta(minutes=5),
                ),
            ),
        )
    )
    pending: PENDING = {}
    for second in range(0, 201, 40):
        evaluation = rules.evaluate(
            readings(batch_size=41.2, mean_acceptance_length=1.31),
            active=NGRAM,
            parameters={},
            pending=pending,
            target=TargetFacts(),
            now=at(second),
        )
        pending = evaluation.pending
    assert evaluation.words() == (
        "a is waiting: held 3m20s of 5m; batch_size 41.2 > 32; mean_acceptance_length 1.31 < 1.6"
    )


@pytest.mark.parametrize(
    ("rule", "batch", "ends"),
    [
        (FIVE, BUSY, "T!"),
        (THREE_OF_FIVE, BUSY, "T!"),
        (FIVE | BAND_RULE, BAND, "F"),
        (FIVE | BAND_RULE, BUSY, "T!"),
        (FIVE, LOST, "U"),
        (FIVE | FIRE, LOST, "T!"),
        (THREE_OF_FIVE | SKIP, LOST, "F"),
    ],
)
def test_without_time_what_is_true_has_held(
    rule: Mapping[str, Any], batch: Batch, ends: str
) -> None:
    found = compiled(**rule).evaluate(
        known(batch),
        active=NGRAM,
        parameters={},
        pending={"busy": Pending(since=T0, last_true=T0, latched=True)},
        target=TargetFacts(),
        now=T0,
        assume_held=True,
    )
    verdict = found.verdicts[0]
    assert str(verdict.truth)[0] + "!" * verdict.fires == ends
    assert found.pending == {}, "nothing is remembered"


def test_a_rule_that_is_unknown_does_not_stop_a_later_one() -> None:
    rules = CompiledRuleSet(
        RuleSet(
            name="r",
            rules=(
                Rule(name="first", when="queue_depth > 1", setting="off"),
                Rule(name="second", when="batch_size > 32", setting="ngram"),
            ),
        )
    )
    found = rules.evaluate(
        known(BUSY), active=NGRAM, parameters={}, pending={}, target=TargetFacts(), now=T0
    )
    assert found.winner is not None
    assert found.winner.rule == "second"


def test_the_evidence_has_what_keeps_a_rule_true() -> None:
    verdicts = play(compiled(until="queue_depth < 1"), every(15, BUSY, CALM))
    assert [e.signal for e in verdicts[-1].evidence] == ["batch_size", "queue_depth"]


def test_hours_are_those_of_the_zone() -> None:
    """At noon in UTC it is 21 o'clock in Tokyo, and in Berlin 13 o'clock in winter."""
    for zone, hour in (("UTC", 12), ("Asia/Tokyo", 21), ("Europe/Berlin", 13)):
        rules = CompiledRuleSet(
            RuleSet(
                name="r",
                time_zone=zone,
                rules=(Rule(name="a", when=f"time.hour == {hour}", setting="off"),),
            )
        )
        found = rules.evaluate(
            Readings(), active=NGRAM, parameters={}, pending={}, target=TargetFacts(), now=T0
        )
        assert found.winner is not None, zone


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"until": "batch_siz < 3"}, "rule busy: until: there is no signal called batch_siz"),
        (FIVE | THREE_OF_FIVE, "rule busy: for, atLeast: only one"),
        ({"at_least": AtLeast(windows=6, of=5, each=MINUTE)}, "6 of 5 windows"),
        ({"at_least": AtLeast(windows=1, of=61, each=MINUTE)}, "at most 60"),
        ({"at_least": AtLeast(windows=1, of=1, each=timedelta(0))}, "is no window"),
    ],
)
def test_what_cannot_be_timed_is_refused(fields: Mapping[str, Any], says: str) -> None:
    with pytest.raises(RuleSetError) as refused:
        compiled(**fields)
    assert says in str(refused.value)


def test_a_zone_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RuleSetError, match=r"timeZone: 'Mars/Base' is no time zone; write"):
        CompiledRuleSet(
            RuleSet(
                name="r",
                time_zone="Mars/Base",
                rules=(Rule(name="a", when="batch_size > 1", setting="off"),),
            )
        )


def test_windows_begin_where_every_process_begins_them() -> None:
    five = timedelta(minutes=5)
    assert window_start(at(299), each=five) == at(0)
    assert window_start(at(300), each=five) == at(300)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (59, "59s"), (200, "3m20s"), (300, "5m"), (3600, "1h"), (5400, "1h30m")],
)
def test_times_are_spelt_for_people(seconds: int, words: str) -> None:
    assert spell(timedelta(seconds=seconds)) == words


# --- memory

any_rule = st.fixed_dictionaries(
    {},
    optional={
        "hold": st.integers(0, 200).map(lambda s: timedelta(seconds=s)),
        "until": st.sampled_from(["batch_size < 24", "queue_depth > 1"]),
        "on_unknown": st.sampled_from(OnUnknown),
        "grace": st.integers(0, 200).map(lambda s: timedelta(seconds=s)),
    },
) | st.fixed_dictionaries(
    {
        "at_least": st.builds(
            lambda n, more, s: AtLeast(windows=n, of=n + more, each=timedelta(seconds=s)),
            st.integers(1, 4),
            st.integers(0, 3),
            st.integers(10, 90),
        )
    },
    optional={
        "until": st.just("batch_size < 24"),
        "on_unknown": st.sampled_from(OnUnknown),
        "grace": st.integers(0, 200).map(lambda s: timedelta(seconds=s)),
    },
)
any_moments = st.lists(
    st.tuples(st.integers(1, 90), st.sampled_from([BUSY, BAND, CALM, LOST])), max_size=30
)


def through_the_database(pending: PENDING) -> PENDING:
    plain = json.loads(canonical_json(codec.memory_to_plain(PolicyMemory(pending=pending))))
    return codec.memory_from_plain(plain).pending


@given(any_rule, any_moments, st.integers(0, 30))
def test_a_restart_changes_no_verdict(
    rule: Mapping[str, Any], moments: list[tuple[int, Batch]], restart: int
) -> None:
    rules = compiled(**rule)
    straight: PENDING = {}
    restarted: PENDING = {}
    second = 0
    for index, (gap, batch) in enumerate(moments):
        second += gap
        if index == restart:
            rules = compiled(**rule)
            restarted = through_the_database(restarted)
        one, straight = step(rules, batch, second, straight)
        other, restarted = step(rules, batch, second, restarted)
        assert one == other, "in truth, time held, words and evidence"


@given(any_rule, any_moments)
def test_unknown_fires_nothing_unless_the_rule_says_so(
    rule: Mapping[str, Any], moments: list[tuple[int, Batch]]
) -> None:
    """argo-rollouts#3503: an empty set was no errors to whoever wrote the rule."""
    rules = compiled(**({**rule, "on_unknown": OnUnknown.HOLD}))
    pending: PENDING = {}
    second = 0
    for gap, _ in moments:
        second += gap
        verdict, pending = step(rules, LOST, second, pending)
        assert not verdict.fires
        assert verdict.truth is Truth.UNKNOWN
        assert pending == {}


@given(any_rule, any_moments)
def test_a_rule_fires_only_when_it_is_true(
    rule: Mapping[str, Any], moments: list[tuple[int, Batch]]
) -> None:
    rules = compiled(**rule)
    pending: PENDING = {}
    second = 0
    for gap, batch in moments:
        second += gap
        verdict, pending = step(rules, batch, second, pending)
        assert not verdict.fires or verdict.truth is Truth.TRUE
        assert verdict.held >= timedelta(0)
        for remembered in pending.values():
            assert remembered.since <= at(second)
            assert len(remembered.windows) <= 61
