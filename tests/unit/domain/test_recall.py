"""Reading a remembered cost off at the load of now, and the median of a day."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.economics import Measurement
from specpilot.domain.policy import CostPoint
from specpilot.domain.readings import Reading, UnknownReason, unknown
from specpilot.domain.recall import (
    AcceptanceHour,
    Point,
    Subject,
    acceptance_baseline,
    cost_ratio,
    hour_of,
    read_off,
)
from tests.unit.domain.builders import T0, at

NOW = T0
WEEK = timedelta(days=7)
SUBJECT = Subject(name="ngram", config="n", engine="0.32.0", template="t1", runs=False)


def measurement(batch: float = 32.0, ratio: float = 1.2, **fields: object) -> Measurement:
    base = Measurement(
        change_id=f"c-{batch}-{ratio}",
        target="Local/local/chat",
        setting="ngram",
        config="n",
        engine="0.32.0",
        template="t1",
        start=at(-3700),
        at=at(-3600),
        batch_on=batch,
        batch_off=batch,
        ratio=ratio,
        error=0.02,
        step_ratio=ratio,
        acceptance_length=2.0,
        tokens_per_step=2.0,
        speedup=2.0 / ratio,
        requests_on=50,
        requests_off=100,
        drafts=5000,
        slices=6,
        same_window=True,
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def recalled(
    *measurements: Measurement,
    batch: float | None = 32.0,
    stated: tuple[CostPoint, ...] = (),
    subject: Subject = SUBJECT,
) -> Reading:
    load = (
        unknown("batch_size", UnknownReason.SOURCE_ERROR, "no answer")
        if batch is None
        else Reading(signal="batch_size", value=batch)
    )
    return cost_ratio(
        subject, batch=load, measurements=measurements, stated=stated, max_age=WEEK, now=NOW
    )


@dataclass(frozen=True, kw_only=True)
class Known:
    reason: str
    measurements: tuple[Measurement, ...] = ()
    batch: float | None = 32.0
    stated: tuple[CostPoint, ...] = ()
    value: float
    says: str = ""


KNOWN = [
    Known(reason="the very batch", measurements=(measurement(32, 1.3),), value=1.3),
    Known(
        reason="half the batch is near enough",
        measurements=(measurement(16, 1.3),),
        value=1.3,
        says="at a batch of 16",
    ),
    Known(reason="twice the batch is too", measurements=(measurement(64, 1.3),), value=1.3),
    Known(
        reason="between two it is read off a line",
        measurements=(measurement(24, 1.2), measurement(40, 1.4)),
        value=1.3,
        says="2 comparison(s), at a batch of 24, 40",
    ),
    Known(
        reason="only neighbours count, however many lie beyond them",
        measurements=(
            measurement(17, 9.0),
            measurement(24, 1.2),
            measurement(40, 1.4),
            measurement(60, 9.0),
        ),
        value=1.3,
    ),
    Known(
        reason="two at one batch are weighted by how certain they are",
        measurements=(measurement(32, 1.2, error=0.01), measurement(32, 2.0, error=0.4)),
        value=1.2,
    ),
    Known(
        reason="arms of one window count four times a comparison with before",
        measurements=(measurement(32, 1.0), measurement(32, 1.5, error=0.03, same_window=False)),
        value=1.1,
    ),
    Known(
        reason="a mean below one is a batch of one to the step",
        measurements=(measurement(1.5, 1.3),),
        batch=0.2,
        value=1.3,
    ),
    Known(
        reason="a measurement goes before a statement",
        measurements=(measurement(32, 1.3),),
        stated=(CostPoint(batch=32, ratio=2.0), CostPoint(ratio=3.0)),
        value=1.3,
    ),
    Known(
        reason="a statement goes before nothing",
        measurements=(measurement(4, 1.1),),
        stated=(CostPoint(ratio=1.5),),
        value=1.5,
        says="stated by the policy",
    ),
    Known(
        reason="statements are read off like measurements",
        stated=(CostPoint(batch=24, ratio=1.2), CostPoint(batch=40, ratio=1.4)),
        value=1.3,
    ),
    Known(
        reason="beyond the batches stated the number for any batch holds",
        stated=(CostPoint(batch=4, ratio=1.2), CostPoint(ratio=1.9)),
        value=1.9,
    ),
    Known(
        reason="a number for any batch needs no batch",
        batch=None,
        stated=(CostPoint(ratio=1.5),),
        value=1.5,
    ),
    Known(
        reason="an edit of the template is told",
        measurements=(measurement(template="t0"),),
        value=1.2,
        says="template was edited since",
    ),
]


@pytest.mark.parametrize("case", KNOWN, ids=lambda c: c.reason)
def test_known(case: Known) -> None:
    found = recalled(*case.measurements, batch=case.batch, stated=case.stated)
    assert found.value == pytest.approx(case.value, abs=0.01), found.message
    assert case.says in found.message


def test_a_reading_says_what_is_behind_it() -> None:
    found = recalled(measurement(24, 1.2), measurement(40, 1.4, at=at(-60)))
    assert (found.count, found.at) == (300, at(-60))


@dataclass(frozen=True, kw_only=True)
class Unknown:
    reason: str
    measurements: tuple[Measurement, ...] = ()
    batch: float | None = 40.0
    stated: tuple[CostPoint, ...] = ()
    subject: Subject = SUBJECT
    why: UnknownReason = UnknownReason.NO_DATA
    says: str


UNKNOWN = [
    Unknown(
        reason="never measured",
        says="never measured for ngram at a batch near 40; let a probe run, or state "
        "settings[ngram].costRatio",
    ),
    Unknown(
        reason="while it runs no probe will",
        subject=replace(SUBJECT, runs=True),
        says="the next change from ngram to off, or back, measures it; or state settings[ngram]",
    ),
    Unknown(
        reason="what runs is not the policy's",
        subject=replace(SUBJECT, name="unrecognised", runs=True),
        says="add it to spec.settings",
    ),
    Unknown(
        reason="never extrapolated",
        measurements=(measurement(19, 1.2), measurement(10, 1.1)),
        says="only at 10, 19",
    ),
    Unknown(
        reason="not between two that are both too far",
        measurements=(measurement(10, 1.1), measurement(90, 1.6)),
        says="only at 10, 90",
    ),
    Unknown(
        reason="another engine version",
        measurements=(measurement(40, engine="0.31.0"),),
        says="never measured for ngram on 0.32.0, only on 0.31.0",
    ),
    Unknown(
        reason="another config under the same name",
        measurements=(measurement(40, config="other"),),
        says="never measured for ngram",
    ),
    Unknown(
        reason="too old",
        measurements=(measurement(40, at=at(-8 * 86400)),),
        why=UnknownReason.STALE,
        says="last measured for ngram on 2026-02-22 12:00 UTC, too long ago",
    ),
    Unknown(
        reason="load not known",
        measurements=(measurement(40),),
        batch=None,
        why=UnknownReason.SOURCE_ERROR,
        says="batch_size is Unknown",
    ),
    Unknown(
        reason="statements are not extrapolated either",
        stated=(CostPoint(batch=8, ratio=1.1),),
        says="never measured",
    ),
]


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda c: c.reason)
def test_unknown(case: Unknown) -> None:
    found = recalled(*case.measurements, batch=case.batch, stated=case.stated, subject=case.subject)
    assert found.value is None
    assert found.reason is case.why
    assert case.says in found.message


points = st.lists(
    st.builds(
        Point,
        batch=st.floats(1, 500),
        ratio=st.floats(0.5, 10),
        weight=st.floats(0.01, 1000),
    ),
    max_size=12,
)


@given(points, st.floats(0, 600))
def test_a_cost_lies_between_those_it_is_read_off_and_their_order_does_not_matter(
    some: list[Point], batch: float
) -> None:
    found = read_off(some, batch)
    again = read_off(list(reversed(some)), batch)
    assert (found is None) == (again is None)
    near = any(0.5 <= p.batch / max(1.0, batch) <= 2 for p in some)
    assert (found is not None) == near
    if found is not None and again is not None:
        assert found.ratio == pytest.approx(again.ratio)
        ratios = [p.ratio for p in found.points]
        assert min(ratios) - 1e-6 <= found.ratio <= max(ratios) + 1e-6


def hours(*means: float, ago: int = 1, samples: int = 60) -> list[AcceptanceHour]:
    """One hour each, the newest first, the newest `ago` hours before this one."""
    this = hour_of(NOW)
    return [
        AcceptanceHour(hour=this - timedelta(hours=ago + i), samples=samples, total=samples * mean)
        for i, mean in enumerate(means)
    ]


def baseline(some: list[AcceptanceHour]) -> Reading:
    return acceptance_baseline("ngram", hours=some, now=NOW + timedelta(minutes=30))


def test_a_baseline_is_the_median_of_the_day() -> None:
    found = baseline(hours(1.0, 2.0, 2.1, 2.2, 2.3, 2.4, 9.0))
    assert found.value == pytest.approx(2.2)
    assert (found.count, found.at, found.window_s) == (420, hour_of(NOW), 86400)
    assert baseline(hours(*[1.0, 3.0] * 4)).value == pytest.approx(2.0)


def test_hours_count_by_how_often_they_were_noted() -> None:
    busy, quiet = hours(2.0, 2.0), hours(*[3.0] * 5, ago=3, samples=10)
    assert baseline(busy + quiet).value == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("some", "reason"),
    [
        ([], "never seen"),
        (hours(*[2.0] * 5), "five hours"),
        (hours(*[2.0] * 6, ago=0), "the hour that runs does not count"),
        (hours(*[2.0] * 10, ago=20), "nor do those of more than a day ago"),
    ],
)
def test_too_few_hours_make_no_baseline(some: list[AcceptanceHour], reason: str) -> None:
    found = baseline(some)
    assert found.reason is UnknownReason.TOO_FEW_SAMPLES, reason
    assert "of at least 6 whole hours" in found.message
