"""Quantiles lie inside their bucket, and merging does not depend on order."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.telemetry.histograms import Buckets, Quantile, merge, quantile

INF = math.inf


@dataclass(frozen=True)
class Case:
    reason: str
    buckets: Buckets
    q: float
    want: Quantile | None


CASES = [
    Case(
        "half way through the second bucket",
        ((1.0, 10.0), (2.0, 20.0), (INF, 20.0)),
        0.75,
        Quantile(value=1.5, low=1.0, high=2.0),
    ),
    Case(
        "the first bucket starts at 0",
        ((0.3, 10.0), (0.5, 10.0), (INF, 10.0)),
        0.5,
        Quantile(value=0.15, low=0.0, high=0.3),
    ),
    Case(
        "beyond the last finite bound all that is known is a lower bound",
        ((1.0, 1.0), (2.0, 2.0), (INF, 100.0)),
        0.99,
        Quantile(value=2.0, low=2.0, high=None),
    ),
    Case(
        "empty buckets in between are skipped",
        ((1.0, 5.0), (2.0, 5.0), (3.0, 10.0), (INF, 10.0)),
        0.9,
        Quantile(value=2.8, low=2.0, high=3.0),
    ),
    Case("no observation", ((1.0, 0.0), (INF, 0.0)), 0.5, None),
    Case("no finite bound", ((INF, 9.0),), 0.5, None),
    Case("no +Inf bucket: the total is not known", ((1.0, 1.0), (2.0, 2.0)), 0.5, None),
    Case("no bucket", (), 0.5, None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_quantile(case: Case) -> None:
    found = quantile(case.buckets, case.q)
    if case.want is None:
        assert found is None
        return
    assert found is not None
    assert found.value == pytest.approx(case.want.value)
    assert (found.low, found.high) == (case.want.low, case.want.high)


def test_bounds_that_differ_are_merged_where_they_agree() -> None:
    fine = ((0.1, 1.0), (0.2, 3.0), (0.5, 4.0), (INF, 4.0))
    coarse = ((0.2, 2.0), (0.5, 2.0), (INF, 6.0))
    assert merge([fine, coarse]) == ((0.2, 5.0), (0.5, 6.0), (INF, 10.0))


def test_a_replica_without_buckets_does_not_hide_the_others() -> None:
    assert merge([(), ((1.0, 2.0), (INF, 2.0))]) == ((1.0, 2.0), (INF, 2.0))


@st.composite
def tables(draw: st.DrawFn) -> Buckets:
    bounds = sorted(draw(st.sets(st.sampled_from([0.1, 0.2, 0.5, 1.0, 2.0, 5.0]), min_size=1)))
    counts = draw(st.lists(st.integers(0, 50), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    total, table = 0.0, []
    for bound, count in zip([*bounds, INF], counts, strict=True):
        total += count
        table.append((bound, total))
    return tuple(table)


@given(st.lists(tables(), min_size=1, max_size=5), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_estimate_lies_in_the_bucket_that_holds_the_rank(many: list[Buckets], q: float) -> None:
    merged = merge(many)
    assert merged == merge(reversed(many)), "the order of replicas must not matter"
    found = quantile(merged, q)
    if found is None:
        assert merged[-1][1] == 0 or len(merged) == 1
        return
    assert found.low <= found.value
    cumulative = dict(merged)
    rank = q * cumulative[INF]
    if found.high is None:
        assert cumulative[found.low] < rank
    else:
        assert found.value <= found.high
        assert cumulative.get(found.low, 0.0) < rank <= cumulative[found.high]


@given(st.lists(tables(), min_size=1, max_size=4))
def test_quantiles_do_not_fall_as_q_rises(many: list[Buckets]) -> None:
    found = [quantile(merge(many), q) for q in (0.5, 0.9, 0.95, 0.99)]
    values = [each.value for each in found if each is not None]
    assert values == sorted(values)
