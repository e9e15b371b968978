"""What another setting would have been worth: from measurements of both, or not at all."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.economics import Measurement
from specpilot.domain.gains import Basis, Costs, Gain, Recorded, Spell, Worth, spells, worth
from specpilot.domain.policy import CostPoint
from specpilot.domain.readings import Reading, Readings
from tests.unit.domain.builders import at
from tests.unit.domain.test_recall import measurement

NONE = Recorded()
WINDOW_S = 300.0

OFF_READINGS: dict[str, float] = {
    "batch_size": 32.0,
    "tokens_per_second": 1000.0,
    "tokens_per_second_per_request": 30.0,
}
# 60,000 tokens in the window, 20,000 drafts with one of their tokens accepted each: 40,000 steps of
# which half drafted, so that a step brings 1.5 tokens.
ON_READINGS: dict[str, float] = OFF_READINGS | {
    "generated_tokens": 60_000.0,
    "drafts": 20_000.0,
    "mean_acceptance_length": 2.0,
}


def known(values: dict[str, float], *, window_s: float | None = WINDOW_S) -> Readings:
    return Readings.of(
        Reading(signal=name, value=value, window_s=window_s) for name, value in values.items()
    )


def spell(
    values: dict[str, float], *, ran: str, simulated: str, minutes: float = 1.0, **fields: Any
) -> Spell:
    given: dict[str, Any] = {"ran_since": None, **fields}
    return Spell(
        start=at(0),
        end=at(60 * minutes),
        readings=known(values),
        ran=ran,
        simulated=simulated,
        **given,
    )


def one(found: Spell, *, recorded: Recorded = NONE, **costs: Costs) -> Worth:
    (only,) = worth(found, costs=costs, recorded=recorded)
    return only


def measured(*each: Measurement) -> Costs:
    return Costs(measured=each)


# The ratio is per drafted step: with half of the steps drafted, a ratio of 1.8 makes R = 1.4.
AT_32 = measurement(batch=32, ratio=1.8, speedup=1.1)


@pytest.mark.parametrize(
    ("ran", "simulated", "costs", "ratio", "basis", "reason"),
    [
        pytest.param(
            "ngram", "off", {"ngram": measured(AT_32)}, 1.4 / 1.5, Basis.MEASURED,
            "R over L: what a step cost over what it brought", id="off instead of what ran",
        ),
        pytest.param(
            "off", "ngram", {"ngram": measured(AT_32)}, 1.1, Basis.MEASURED,
            "its acceptance is not seen while off: the speedup that was measured", id="on instead",
        ),
        pytest.param(
            "ngram", "eagle3",
            {"ngram": measured(AT_32), "eagle3": measured(measurement(batch=32, speedup=1.5))},
            1.5 * 1.4 / 1.5, Basis.MEASURED, "each against off", id="one instead of another",
        ),
        pytest.param(
            "ngram", "off", {"ngram": Costs(stated=(CostPoint(ratio=1.4),))}, 1.2 / 1.5,
            Basis.STATED, "the acceptance is measured, the cost is stated", id="a stated cost",
        ),
        pytest.param(
            "ngram", "off",
            {"ngram": Costs(measured=(AT_32,), stated=(CostPoint(ratio=1.0),))},
            1.4 / 1.5, Basis.MEASURED, "a measurement goes first", id="both",
        ),
    ],
)  # fmt: skip
def test_worth_by_costs(
    *,
    ran: str,
    simulated: str,
    costs: dict[str, Costs],
    ratio: float,
    basis: Basis,
    reason: str,
) -> None:
    values = OFF_READINGS if ran == "off" else ON_READINGS
    found = one(spell(values, ran=ran, simulated=simulated), **costs)
    assert found.basis is basis, reason
    assert found.ran == pytest.approx(60_000)
    assert found.would == pytest.approx(60_000 * ratio), reason


@pytest.mark.parametrize(
    ("values", "ran", "simulated", "costs", "says"),
    [
        pytest.param(
            OFF_READINGS, "off", "ngram", {"ngram": Costs(stated=(CostPoint(ratio=1.4),))},
            "no measurement of ngram and off", id="a cost without an acceptance is half of it",
        ),
        pytest.param(
            OFF_READINGS | {"batch_size": 128.0}, "off", "ngram", {"ngram": measured(AT_32)},
            "at a like load", id="another load: nothing is read off beyond a factor of two",
        ),
        pytest.param(
            ON_READINGS, "ngram", "eagle3", {"ngram": measured(AT_32)}, "eagle3",
            id="only one of two was measured",
        ),
        pytest.param(
            {"batch_size": 32.0}, "off", "ngram", {"ngram": measured(AT_32)},
            "tokens_per_second is Unknown", id="how much came out is not known",
        ),
        pytest.param(
            {"tokens_per_second": 9.0}, "off", "ngram", {"ngram": measured(AT_32)},
            "batch_size is Unknown", id="at which load is not known",
        ),
        pytest.param(
            OFF_READINGS, "unrecognised", "off", {}, "none of the policy's settings",
            id="what ran is not known",
        ),
        pytest.param({}, "off", "ngram", {}, "Unknown", id="nothing is known"),
    ],
)  # fmt: skip
def test_what_was_not_measured_is_not_known(
    values: dict[str, float], ran: str, simulated: str, costs: dict[str, Costs], says: str
) -> None:
    found = one(spell(values, ran=ran, simulated=simulated), **costs)
    assert (found.basis, found.would) == (None, None)
    assert says in found.why


def test_readings_that_reach_back_to_another_setting_are_not_used() -> None:
    changed = spell(ON_READINGS, ran="ngram", simulated="off", ran_since=at(-60))
    assert "had changed" in one(changed, ngram=measured(AT_32)).why
    settled = spell(ON_READINGS, ran="ngram", simulated="off", ran_since=at(60 - WINDOW_S))
    assert one(settled, ngram=measured(AT_32)).basis is Basis.MEASURED


def test_what_lies_between_windows_is_not_known() -> None:
    found = spell(ON_READINGS, ran="ngram", simulated="off", minutes=20)
    first, rest = worth(found, costs={"ngram": measured(AT_32)}, recorded=NONE)
    assert (first.seconds, first.basis) == (300, Basis.MEASURED)
    assert (rest.seconds, rest.basis) == (900, None)


def recording(*minutes: tuple[str, float, float]) -> Recorded:
    """A minute each: setting, batch and tokens per second of a request."""
    moments: list[tuple[datetime, Readings, str]] = [(at(-60), known({}), minutes[0][0])]
    for number, (ran, batch, speed) in enumerate(minutes):
        values = {"batch_size": batch, "tokens_per_second_per_request": speed}
        moments.append((at(60 * number), known(values), ran))
    return Recorded.of(spells(moments, [""] * len(moments)))


def test_worth_by_the_recording_itself() -> None:
    found = recording(*[("ngram", 30.0, 45.0)] * 15)
    worth_of = one(spell(OFF_READINGS, ran="off", simulated="ngram"), recorded=found)
    assert worth_of.basis is Basis.RECORDED
    assert worth_of.would == pytest.approx(60_000 * 45 / 30)


@pytest.mark.parametrize(
    "minutes",
    [
        pytest.param([("ngram", 30.0, 45.0)] * 14, id="less than three windows"),
        pytest.param([("ngram", 50.0, 45.0)] * 60, id="at another load"),
        pytest.param([("eagle3", 32.0, 45.0)] * 60, id="another setting"),
        pytest.param(
            [("ngram", 32.0, 45.0), ("off", 32.0, 30.0)] * 60, id="it never ran for a whole window"
        ),
    ],
)
def test_a_recording_that_does_not_show_it_tells_nothing(
    minutes: Sequence[tuple[str, float, float]],
) -> None:
    found = one(spell(OFF_READINGS, ran="off", simulated="ngram"), recorded=recording(*minutes))
    assert found.basis is None


def test_a_measurement_goes_before_the_recording_and_that_before_a_statement() -> None:
    shown = recording(*[("off", 32.0, 31.0)] * 20)
    on = spell(ON_READINGS, ran="ngram", simulated="off")
    stated = Costs(stated=(CostPoint(ratio=1.4),))
    assert one(on, recorded=shown, ngram=measured(AT_32)).basis is Basis.MEASURED
    assert one(on, recorded=shown, ngram=stated).basis is Basis.RECORDED
    assert one(on, ngram=stated).basis is Basis.STATED


_worths = st.lists(
    st.one_of(
        st.builds(
            Worth,
            setting=st.just("off"),
            seconds=st.floats(1, 600),
            ran=st.floats(1, 1e6),
            would=st.floats(1, 1e6),
            basis=st.sampled_from([Basis.MEASURED, Basis.RECORDED, Basis.STATED]),
        ),
        st.builds(
            Worth, setting=st.just("off"), seconds=st.floats(1, 600), why=st.sampled_from("ab")
        ),
        st.floats(1, 600).map(
            lambda s: Worth(setting="ngram", seconds=s, ran=s, would=s, basis=Basis.SAME)
        ),
    )
)


@given(_worths)
def test_no_second_is_lost_or_counted_twice(worths: list[Worth]) -> None:
    gain = Gain.of(worths)
    whole = sum(w.seconds for w in worths)
    same = gain.seconds.get(Basis.SAME, 0.0)
    assert gain.judged_s + gain.not_known_s + same == pytest.approx(whole)
    assert (gain.tokens is None) == (gain.judged_s == 0), "known exactly where something was judged"


@given(_worths)
def test_what_would_have_run_anyway_adds_nothing(worths: list[Worth]) -> None:
    other = [w for w in worths if w.basis is not Basis.SAME]
    assert Gain.of(worths).tokens == pytest.approx(Gain.of(other).tokens)
