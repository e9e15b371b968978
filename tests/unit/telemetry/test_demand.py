"""What rounds fetch: buckets of those replicas of which somebody wants a percentile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specpilot.domain.ports import Ask
from specpilot.telemetry.behind import behind
from specpilot.telemetry.demand import MOST_NAMED, Demand, Plan
from specpilot.telemetry.looks import FRESH
from specpilot.telemetry.names import Counter, Family, buckets_of
from specpilot.telemetry.promql import Labels, Scope
from specpilot.telemetry.rings import identity
from tests.unit.telemetry.builders import ask, replica

LASTING = 4
CHEAP = frozenset({"batch_size", "tpot_mean"})
FLEET = [replica(f"pod-{n}") for n in range(20)]
KEYS = [identity(each) for each in FLEET]
E2E = frozenset({Family.E2E})


def _ask(signals: frozenset[str], *numbers: int) -> Ask:
    return replace(ask(*(FLEET[n] for n in numbers)), signals=signals)


RESTING = _ask(CHEAP, *range(20))
CANARY = _ask(CHEAP | {"e2e_p99"}, 3)


def _round(demand: Demand, *asks: Ask) -> Plan:
    """Questions, and the round after them."""
    if asks:
        demand.ask(asks)
    plan = demand.plan(KEYS)
    assert plan is not None
    demand.done(plan, KEYS)
    return plan


def _scopes(parts: int) -> list[Scope]:
    return [
        Scope(namespaces=["serving"], labels=Labels(), part=part, parts=parts)
        for part in range(parts)
    ]


def test_nothing_is_fetched_before_somebody_asks() -> None:
    demand = Demand(lasting=LASTING)
    assert demand.plan(KEYS) is None
    assert not demand.anything
    demand.ask([RESTING])
    assert demand.anything
    assert demand.plan(KEYS) is not None


def test_buckets_are_fetched_of_the_replicas_in_flight_alone() -> None:
    plan = _round(Demand(lasting=LASTING), RESTING, CANARY)
    assert plan.series == behind(CHEAP | {"e2e_p99"})
    assert [key for key in KEYS if plan.buckets(key)] == [KEYS[3]]
    queries = plan.queries(_scopes(2), over_s=15.0)
    assert 'pod=~"pod-3"' in queries.chosen
    assert len(queries.texts) == 5, "state, gauges, the chosen, and two shares of everything else"
    assert not any("_bucket" in text for share in queries.shares for text in share)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [(range(10), "half of the fleet is no choice any more"), (range(20), "everybody")],
)
def test_of_many_the_buckets_of_all_are_fetched(numbers: range, reason: str) -> None:
    plan = _round(Demand(lasting=LASTING), RESTING, _ask(frozenset({"e2e_p99"}), *numbers))
    assert all(plan.buckets(key) == E2E for key in KEYS), reason
    queries = plan.queries(_scopes(2), over_s=15.0)
    assert queries.chosen == ""
    assert [len(share) for share in queries.shares] == [2, 2]


def test_a_query_never_names_more_than_it_should() -> None:
    fleet = [replica(f"pod-{n}") for n in range(4 * MOST_NAMED)]
    demand = Demand(lasting=LASTING)
    demand.ask([replace(ask(*fleet[: MOST_NAMED + 1]), signals=frozenset({"e2e_p99"}))])
    plan = demand.plan([identity(each) for each in fleet])
    assert plan is not None
    assert plan.named is None


def test_a_replica_that_took_over_a_name_has_what_is_fetched_under_it() -> None:
    """A StatefulSet's new pod is called like the old one, and so may a pod of another namespace."""
    demand = Demand(lasting=LASTING)
    demand.ask([RESTING, CANARY])
    heir, other = replica("pod-3", instance="uid-new"), replica("pod-3", namespace="elsewhere")
    plan = demand.plan([*KEYS, identity(heir), identity(other)])
    assert plan is not None
    for each in (heir, other):
        assert plan.buckets(identity(each)) == E2E
        assert buckets_of(Family.E2E) in plan.fresh(identity(each))


def test_they_are_fetched_for_as_long_as_somebody_asks_and_a_little_longer() -> None:
    demand = Demand(lasting=LASTING)
    first = _round(demand, RESTING, CANARY)
    assert first.fresh(KEYS[3]) >= {buckets_of(Family.E2E), Counter.GENERATION_TOKENS}
    assert buckets_of(Family.E2E) not in first.fresh(KEYS[0])
    again = _round(demand, RESTING, CANARY)
    assert again.fresh(KEYS[3]) == frozenset()
    fetched = [bool(_round(demand, RESTING).buckets(KEYS[3])) for _ in range(LASTING + 2)]
    assert fetched[:2] == [True, True], "a question that comes a round late loses nothing"
    assert fetched[-1] is False
    last = fetched.index(False)
    assert not any(fetched[last:])


def test_what_is_fetched_no_more_is_dropped_once_and_is_fresh_when_it_comes_back() -> None:
    demand = Demand(lasting=LASTING)
    _round(demand, RESTING, CANARY)
    dropped = [_round(demand, RESTING).dropped(KEYS[3]) for _ in range(LASTING + 2)]
    assert [each for each in dropped if each] == [{buckets_of(Family.E2E)}]
    back = _round(demand, RESTING, CANARY)
    assert back.fresh(KEYS[3]) == {buckets_of(Family.E2E)}
    assert back.dropped(KEYS[3]) == frozenset()


def test_a_question_is_told_what_was_never_looked_for() -> None:
    demand = Demand(lasting=LASTING)
    demand.ask([CANARY])
    assert demand.lacking()(CANARY, [KEYS[3]])[KEYS[3]][buckets_of(Family.E2E)] is FRESH
    _round(demand, RESTING)
    assert demand.lacking()(CANARY, [KEYS[3]]) == {}, "asked for before the round"
    late = _ask(frozenset({"ttft_p50"}), 3)
    demand.ask([late])
    told = demand.lacking()(late, [KEYS[3]])[KEYS[3]]
    assert told.keys() == {Family.TTFT, buckets_of(Family.TTFT)}
    assert demand.lacking()(RESTING, KEYS) == {}


def test_a_round_that_failed_has_fetched_nothing() -> None:
    demand = Demand(lasting=LASTING)
    demand.ask([RESTING, CANARY])
    plan = demand.plan(KEYS)
    again = demand.plan(KEYS)
    assert plan is not None
    assert again is not None
    assert again.fresh(KEYS[3]) == plan.fresh(KEYS[3])
    assert KEYS[3] in demand.lacking()(CANARY, [KEYS[3]])
