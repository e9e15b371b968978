"""Replay: the decisions of a tick over readings of the past, and what cannot be known of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.controller.replay_summary import Replayed, summed_up
from specpilot.controller.replaying import Moment, Replay, Step, speculates
from specpilot.domain.context import TargetFacts
from specpilot.domain.economics import Measurement
from specpilot.domain.gates import GateReason
from specpilot.domain.policy import CostPoint, FreezeWindow, Limits, Mode, Policy
from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.rules import Rule, RuleSet, RuleSetVersion
from tests.unit.domain.builders import at, policy, readings
from tests.unit.domain.test_recall import measurement

BUSY, MIDDLE, QUIET = 40.0, 20.0, 2.0

OFF_WHEN_BUSY = Rule(name="off-when-busy", when="batch_size > 32", setting="off")
ON_WHEN_QUIET = Rule(name="on-when-quiet", when="batch_size < 8", setting="speculating")
ON_WHEN_GOOD = Rule(name="on-when-good", when="mean_acceptance_length > 2", setting="ngram")


def replay(
    *rules: Rule,
    names_only: bool = False,
    of: Policy | None = None,
    measured: Mapping[str, Sequence[Measurement]] | None = None,
    **limits: Any,
) -> Replay:
    rule_set = RuleSet(name="r", rules=rules or (OFF_WHEN_BUSY, ON_WHEN_QUIET))
    version = RuleSetVersion(
        namespace="local",
        version=1,
        rule_set=rule_set,
        content_hash=rule_set.content_hash(),
        author="",
        source="test",
    )
    used = of or policy(limits=Limits(**limits))
    return Replay(version, used, names_only=names_only, measured=measured)


def moment(minute: float, batch: float | None = None, *, ran: str = "", **values: float) -> Moment:
    known = values if batch is None else {"batch_size": batch, **values}
    return Moment(at=at(60 * minute), readings=readings(**known), ran=ran)


def run(one: Replay, moments: Iterable[Moment], *, ran: str = "ngram") -> Replayed:
    return summed_up(one.steps(moments, one.begin(ran)))


def flips(found: Replayed) -> list[tuple[datetime, str, str]]:
    return [(f.at, f.origin, f.setting) for f in found.flips]


def test_the_simulated_setting_is_kept_and_the_next_rule_starts_from_it() -> None:
    found = run(replay(), [moment(0, MIDDLE), moment(1, BUSY), moment(2, BUSY), moment(30, QUIET)])
    assert flips(found) == [(at(60), "ngram", "off"), (at(1800), "off", "ngram")]
    first = found.flips[0]
    assert first.rule == "off-when-busy"
    assert "40 > 32" in first.why
    assert [(e.signal, e.value) for e in first.evidence] == [("batch_size", BUSY)]


def test_a_condition_must_have_held_as_live() -> None:
    held = Rule(name="busy", when="batch_size > 32", setting="off", hold=timedelta(minutes=2))
    found = run(replay(held), [moment(m, BUSY) for m in range(5)])
    assert flips(found) == [(at(120), "ngram", "off")]


def test_what_a_gate_stops_is_told_once_with_its_gate_and_is_made_when_it_opens() -> None:
    moments = [moment(0, BUSY), *(moment(m, QUIET) for m in range(1, 12))]
    found = run(replay(cooldown=timedelta(minutes=10)), moments)
    assert flips(found) == [(at(0), "ngram", "off"), (at(600), "off", "ngram")]
    (held,) = found.held_back
    assert held.gate.reason is GateReason.COOLDOWN
    assert (held.since, held.until, held.times) == (at(60), at(540), 9)
    assert (held.origin, held.setting, held.rule) == ("off", "ngram", "on-when-quiet")


def test_proposals_with_a_pause_between_them_are_two() -> None:
    batches = [BUSY, QUIET, MIDDLE, QUIET]
    found = run(replay(), [moment(m, b) for m, b in enumerate(batches)])
    assert [(h.since, h.times) for h in found.held_back] == [(at(60), 1), (at(180), 1)]


def test_the_budget_of_an_hour_holds() -> None:
    moments = [moment(20 * i, BUSY if i % 2 == 0 else QUIET) for i in range(6)]
    found = run(replay(flips_per_hour=2, flips_per_day=6), moments)
    assert [f.at for f in found.flips] == [at(0), at(1200), at(4800), at(6000)]
    assert [h.gate.reason for h in found.held_back] == [GateReason.BUDGET_SPENT]


@pytest.mark.parametrize(
    ("fields", "target", "gate"),
    [
        pytest.param(
            {"freeze_windows": (FreezeWindow(schedule="0 12 * * *", duration=timedelta(hours=1)),)},
            TargetFacts(),
            GateReason.FROZEN,
            id="a freeze window of the policy is open",
        ),
        pytest.param(
            {}, TargetFacts(ready=0), GateReason.NO_REPLICAS, id="nothing served at that time"
        ),
    ],
)
def test_other_gates_object_where_it_is_known(
    fields: dict[str, Any], target: TargetFacts, gate: GateReason
) -> None:
    busy = Moment(at=at(0), readings=readings(batch_size=BUSY), target=target)
    found = run(replay(of=policy(**fields)), [busy])
    assert not found.flips
    assert [h.gate.reason for h in found.held_back] == [gate]


@pytest.mark.parametrize("fields", [{"mode": Mode.OFF}, {"paused": True}, {"mode": Mode.ADVISORY}])
def test_the_mode_of_the_policy_does_not_count(fields: dict[str, Any]) -> None:
    assert run(replay(of=policy(**fields)), [moment(0, BUSY)]).flips


def test_time_off_does_not_start_a_probe() -> None:
    found = run(replay(), [moment(60 * hour, MIDDLE) for hour in range(12)], ran="off")
    assert not found.flips
    assert not found.held_back


def test_readings_of_another_setting_are_said_to_be_so() -> None:
    moments = [moment(0, MIDDLE), moment(5, BUSY), moment(20, BUSY), moment(30, QUIET)]
    found = run(replay(), moments)
    assert [f.readings_of for f in found.flips] == ["", "ngram"]
    assert [(s.setting, s.ran, s.counterfactual) for s in found.stretches] == [
        ("ngram", "ngram", False),
        ("off", "ngram", True),
        ("ngram", "ngram", False),
    ]
    assert [s.until for s in found.stretches] == [at(300), at(1800), at(1800)]


def test_a_flip_that_was_really_made_ends_the_counterfactual() -> None:
    moments = [moment(0, BUSY, ran="ngram"), moment(5, BUSY), moment(10, BUSY, ran="off")]
    found = run(replay(), moments)
    assert [(s.since, s.counterfactual) for s in found.stretches] == [
        (at(0), True),
        (at(600), False),
    ]


def test_acceptance_does_not_exist_while_the_simulation_is_off() -> None:
    """The recording has it, for the engine speculated; live, the rule could not have fired."""
    one = replay(OFF_WHEN_BUSY, ON_WHEN_GOOD)
    moments = [
        moment(0, BUSY, mean_acceptance_length=2.5),
        moment(30, MIDDLE, mean_acceptance_length=2.5),
    ]
    steps = list(one.steps(moments, one.begin("ngram")))
    assert [s.active for s in steps] == ["off", "off"]
    assert steps[1].wanted is None


def test_without_a_policy_nothing_is_known_of_a_setting_but_its_name() -> None:
    rule = Rule(name="method", when='setting.method == "ngram"', setting="off")
    assert run(replay(rule), [moment(0)]).flips
    unsaid = run(replay(rule, names_only=True), [moment(0)])
    assert not unsaid.flips
    assert unsaid.blind == 1


def test_a_stated_cost_is_known_and_a_measured_one_is_not() -> None:
    rule = Rule(name="dear", when="mean_acceptance_length < cost_ratio", setting="off")
    low = moment(0, BUSY, mean_acceptance_length=1.3)
    assert run(replay(rule), [low]).blind == 1
    stated = policy(cost_ratios={"ngram": (CostPoint(ratio=1.5),)})
    (flip,) = run(replay(rule, of=stated), [low]).flips
    assert "cost_ratio 1.5" in flip.why
    told = moment(0, BUSY, mean_acceptance_length=1.3, cost_ratio=1.2)
    assert not run(replay(rule, of=stated), [told]).flips, "the series knows better"


def test_a_measured_cost_is_known_from_when_it_was_measured() -> None:
    """As a tick would have read it from the database: not a minute earlier, and not for ever."""
    rule = Rule(name="dear", when="mean_acceptance_length < cost_ratio", setting="off")
    cost = replace(measurement(batch=40, ratio=1.5), at=at(300))
    moments = [moment(m, BUSY, mean_acceptance_length=1.3) for m in (4, 5)]
    later = moment(60 * 24 * 8, BUSY, mean_acceptance_length=1.3)
    one = replay(rule, measured={"ngram": [cost]})
    found = run(one, moments)
    assert flips(found) == [(at(300), "ngram", "off")]
    assert found.blind == 1
    assert run(one, [later]).blind == 1, "longer ago than it is remembered"


def test_without_a_date_the_time_of_day_is_unknown() -> None:
    rule = Rule(name="noon", when="time.hour == 12", setting="off")
    dated = moment(0)
    assert run(replay(rule), [dated]).flips
    undated = Moment(at=dated.at, readings=dated.readings, dated=False)
    assert run(replay(rule), [undated]).blind == 1


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(readings(drafts=0), True, id="the series exists, though nothing was drafted"),
        pytest.param(readings(acceptance_rate=0.5), True, id="any of them tells"),
        pytest.param(
            Readings.of(
                [
                    unknown("drafts", UnknownReason.NOT_EXPORTED),
                    Reading(signal="generated_tokens", value=1.0),
                ]
            ),
            False,
            id="an engine that works and has no such series",
        ),
        pytest.param(
            Readings.of([unknown("drafts", UnknownReason.NOT_EXPORTED)]),
            None,
            id="an engine that exports nothing at all",
        ),
        pytest.param(readings(batch_size=3), None, id="a file without the column"),
    ],
)
def test_what_tells_whether_it_speculated(found: Readings, expected: bool | None) -> None:
    assert speculates(found) is expected


# --- whatever the readings are

_HELD = Rule(
    name="held",
    when="batch_size > 32",
    until="batch_size < 16",
    setting="off",
    hold=timedelta(seconds=60),
)

_batches = st.sampled_from([None, BUSY, MIDDLE, QUIET])
_gaps = st.one_of(st.integers(1, 45), st.integers(1, 1500))
"""Within the grace of a rule, or anything."""
_series = st.lists(
    st.tuples(_gaps, _batches, st.sampled_from(["", "ngram", "off"])), min_size=1, max_size=120
)


def moments_of(series: Sequence[tuple[int, float | None, str]]) -> list[Moment]:
    found, second = [], 0
    for gap, batch, ran in series:
        second += gap
        found.append(moment(second / 60, batch, ran=ran))
    return found


@given(series=_series, cut=st.integers(min_value=0))
def test_two_halves_with_the_memory_handed_over_are_the_whole(
    series: list[tuple[int, float | None, str]], cut: int
) -> None:
    moments = moments_of(series)
    half = cut % (len(moments) + 1)

    def fresh() -> Replay:
        return replay(_HELD, ON_WHEN_QUIET, cooldown=timedelta(minutes=3), flips_per_hour=3)

    one = fresh()
    whole = list(one.steps(moments, one.begin("ngram")))
    memory = one.begin("ngram")
    first: list[Step] = list(fresh().steps(moments[:half], memory))
    if first:
        memory = first[-1].memory
    second = list(fresh().steps(moments[half:], memory))
    assert first + second == whole


def within_budget(times: Sequence[datetime], *, hour: int, day: int, cooldown: int) -> bool:
    """Whether no hour and no day has more flips than allowed, and none comes before its time."""
    return all((b - a).total_seconds() >= cooldown for a, b in pairwise(times)) and all(
        later - earlier >= span
        for count, span in ((hour, timedelta(hours=1)), (day, timedelta(days=1)))
        for earlier, later in zip(times, times[count:], strict=False)
    )


_limits = st.fixed_dictionaries(
    {
        "hour": st.integers(min_value=0, max_value=4),
        "day": st.integers(min_value=0, max_value=8),
        "cooldown": st.sampled_from([0, 60, 600, 1800]),
    }
)


def limited(limits: Mapping[str, int]) -> Replay:
    return replay(
        flips_per_hour=limits["hour"],
        flips_per_day=limits["day"],
        cooldown=timedelta(seconds=limits["cooldown"]),
    )


@given(series=_series, limits=_limits)
def test_no_readings_make_more_flips_than_the_budget_allows(
    series: list[tuple[int, float | None, str]], limits: dict[str, int]
) -> None:
    times = [f.at for f in run(limited(limits), moments_of(series)).flips]
    assert within_budget(times, **limits)


@given(
    gap=st.sampled_from([30, 120, 240, 600, 1500]),
    looks=st.integers(min_value=100, max_value=300),
    limits=_limits,
)
def test_not_even_readings_that_always_ask_for_the_other_setting_do(
    gap: int, looks: int, limits: dict[str, int]
) -> None:
    """The worst there is: at every moment the rules ask for what is not in force."""
    one = limited(limits)
    memory = one.begin("ngram")
    times = []
    for look in range(looks):
        batch = QUIET if memory.policy.active == "off" else BUSY
        step = one.step(moment(gap * look / 60, batch), memory)
        assert step.wanted is not None
        memory = step.memory
        times += [step.at] if step.flipped else []
    assert within_budget(times, **limits)
    assert bool(times) is bool(limits["hour"] and limits["day"])


@given(series=_series)
def test_stretches_follow_each_other_and_tell_the_flips(
    series: list[tuple[int, float | None, str]],
) -> None:
    moments = moments_of(series)
    found = run(replay(), moments)
    assert found.stretches[0].since == moments[0].at
    assert found.stretches[-1].until == moments[-1].at
    assert all(a.until == b.since for a, b in pairwise(found.stretches))
    changes = [b.since for a, b in pairwise(found.stretches) if a.setting != b.setting]
    assert [f.at for f in found.flips if f.at != moments[0].at] == changes
