"""What rounds fetch: buckets of those replicas of which somebody wants a percentile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from specpilot.domain.ports import Ask
from specpilot.telemetry import promql
from specpilot.telemetry.behind import behind
from specpilot.telemetry.demand import Demand, Plan, needed
from specpilot.telemetry.names import Counter, Family, buckets_of
from specpilot.telemetry.promql import Labels, Scope
from tests.unit.telemetry.builders import ask, replica

LASTING = 4
EVERY_S = 15.0
NOW = 1_000.0
CHEAP = frozenset({"batch_size", "tpot_mean"})
FLEET = [replica(f"pod-{n}") for n in range(20)]
KEYS = [each.key for each in FLEET]
E2E = frozenset({Family.E2E})


def _ask(signals: frozenset[str], *numbers: int) -> Ask:
    return replace(ask(*(FLEET[n] for n in numbers)), signals=signals)


RESTING = _ask(CHEAP, *range(20))
CANARY = _ask(CHEAP | {"e2e_p99"}, 3)


def _demand() -> Demand:
    return Demand(lasting_s=LASTING * EVERY_S)


class Rounds:
    """Questions, and the round after them, once an interval."""

    def __init__(self) -> None:
        self.demand = _demand()
        self._now = NOW

    def __call__(self, *asks: Ask, keys: Sequence[str] = KEYS) -> Plan:
        if asks:
            self.demand.ask(asks, now=self._now)
        plan = self.demand.plan(keys, now=self._now)
        assert plan is not None
        self._now += EVERY_S
        return plan


def _scopes(parts: int) -> list[Scope]:
    return [
        Scope(namespaces=["serving"], labels=Labels(), part=part, parts=parts)
        for part in range(parts)
    ]


def test_nothing_is_fetched_before_somebody_asks() -> None:
    demand = _demand()
    assert demand.plan(KEYS, now=NOW) is None
    assert not demand.anything
    demand.ask([RESTING], now=NOW)
    assert demand.anything
    assert demand.plan(KEYS, now=NOW) is not None


def test_buckets_are_fetched_of_the_replicas_in_flight_alone() -> None:
    plan = Rounds()(RESTING, CANARY)
    assert plan.series == behind(CHEAP | {"e2e_p99"})
    assert plan.takers == {KEYS[3]}
    queries = plan.queries(_scopes(2), over_s=15.0)
    assert 'pod=~"pod-3"' in queries.chosen[0]
    assert len(queries.texts) == 4, "state, the chosen, and two shares of everything else"
    assert not any("_bucket" in text for share in queries.shares for text in share)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [(range(10), "half of the fleet is no choice any more"), (range(20), "everybody")],
)
def test_of_many_the_buckets_of_all_are_fetched(numbers: range, reason: str) -> None:
    plan = Rounds()(RESTING, _ask(frozenset({"e2e_p99"}), *numbers))
    assert plan.takers == set(KEYS), reason
    queries = plan.queries(_scopes(2), over_s=15.0)
    assert queries.chosen == []
    assert [len(share) for share in queries.shares] == [2, 2]


@pytest.mark.parametrize(
    ("pods", "queries", "reason"),
    [
        (200, 1, "fit into one query"),
        (210, 2, "would make it too long"),
        (800, 4, "as many as there may be"),
        (801, 0, "are too many: the buckets of all come"),
    ],
)
def test_no_query_is_longer_than_servers_take(pods: int, queries: int, reason: str) -> None:
    fleet = [replica(f"chat-{n:034}") for n in range(4 * pods)]
    demand = _demand()
    demand.ask([replace(ask(*fleet[:pods]), signals=frozenset({"e2e_p99"}))], now=NOW)
    plan = demand.plan([each.key for each in fleet], now=NOW)
    assert plan is not None
    found = plan.queries(_scopes(6), over_s=15.0)
    assert len(found.chosen) == queries, reason
    assert max(map(len, found.texts)) < 16_384
    assert len(found.texts) <= 14
    named = {name for text in found.chosen for name in re.findall("chat-[0-9]+", text)}
    assert named == {each.id for each in fleet[:pods]} if queries else plan.named is None


@dataclass(frozen=True)
class Short:
    reason: str
    asked: tuple[int, ...] = ()
    namespaces: int = 1
    small: bool = False
    means_apart: bool = False
    queries: int = 2
    names_a_pod: bool = False


@pytest.mark.parametrize(
    "case",
    [
        Short("counters and gauges come in one"),
        Short("and the buckets of a few", asked=(3,), names_a_pod=True),
        Short("the buckets of all are an answer of their own", asked=tuple(range(20)), queries=3),
        Short("but of a small share", asked=tuple(range(20)), small=True),
        Short("means of another time do not", means_apart=True, queries=3),
        Short("buckets do", asked=(3,), means_apart=True, queries=3, names_a_pod=True),
        Short("nor does what would make a query too long", namespaces=90, queries=3),
        Short("buckets do as long as they fit", (3,), namespaces=90, queries=3, names_a_pod=True),
        Short("then all are apart", (3,), namespaces=200, queries=4, names_a_pod=True),
        Short("those of all as well", tuple(range(20)), namespaces=200, small=True, queries=4),
    ],
    ids=lambda case: case.reason,
)
def test_what_is_short_enough_comes_in_one_query(case: Short) -> None:
    asks = [_ask(frozenset({"e2e_p99"}), *case.asked)] if case.asked else []
    plan = Rounds()(RESTING, *asks)
    names = [f"team-{n:02d}-serving" for n in range(case.namespaces)]
    scope = Scope(namespaces=names, labels=Labels())
    found = plan.queries([scope], over_s=15.0, small=case.small, means_apart=case.means_apart)
    assert len(found.texts) == case.queries
    together = "\n".join(found.texts)
    assert together.count("_bucket") == (1 if case.asked else 0)
    assert together.count("avg_over_time") == promql.gauges(scope, over_s=15.0).count("avg_over")
    assert ('pod=~"pod-3"' in together) == case.names_a_pod


def test_with_the_buckets_of_all_everybody_takes_some() -> None:
    """Where the names of those whose buckets are wanted are too many for one query."""
    plan = Rounds()(RESTING, CANARY).of_all(KEYS)
    assert plan.takers == set(KEYS)
    assert plan.fetched(KEYS[0]) == plan.whole
    (text,) = plan.queries(_scopes(1), over_s=15.0, small=True).texts[1:]
    assert "_bucket" in text
    assert "pod-3" not in text


def test_of_many_namespaces_the_gauges_have_a_query_of_their_own() -> None:
    """All of them in one would be longer than VictoriaMetrics takes."""
    plan = Rounds()(RESTING)
    names = [f"namespace-of-team-{n:03}" for n in range(60)]
    parts = [replace(scope, namespaces=names) for scope in _scopes(6)]
    queries = plan.queries(parts, over_s=15.0)
    assert queries.gauges
    assert max(map(len, queries.texts)) < 16_384
    assert len(queries.texts) == 8


def test_a_replica_that_took_over_a_name_has_what_is_fetched_under_it() -> None:
    """A StatefulSet's new pod is called like the old one, and so may a pod of another namespace."""
    demand = _demand()
    demand.ask([RESTING, CANARY], now=NOW)
    heir, other = replica("pod-3", instance="uid-new"), replica("pod-3", namespace="elsewhere")
    plan = demand.plan([*KEYS, heir.key, other.key], now=NOW)
    assert plan is not None
    for each in (heir, other):
        assert buckets_of(Family.E2E) in plan.fetched(each.key)


def test_they_are_fetched_for_as_long_as_somebody_asks_and_a_little_longer() -> None:
    rounds = Rounds()
    assert _buckets(rounds(RESTING, CANARY))
    fetched = [_buckets(rounds(RESTING)) for _ in range(LASTING + 2)]
    assert fetched[:2] == [True, True], "a question that comes a round late loses nothing"
    assert fetched[-1] is False
    assert not any(fetched[fetched.index(False) :])


def test_a_percentile_that_is_asked_no_more_goes_though_another_stays() -> None:
    """A rule that named it was taken away; a guardrail asks for another of the same replica."""
    rounds = Rounds()
    rounds(_ask(frozenset({"ttft_p99"}), 3))
    plans = [rounds(CANARY) for _ in range(LASTING + 1)]
    assert plans[0].series.buckets == {Family.E2E, Family.TTFT}
    assert plans[-1].series.buckets == E2E


def test_a_replica_that_is_away_for_a_moment_is_still_wanted() -> None:
    rounds = Rounds()
    rounds(RESTING, CANARY)
    away = rounds(keys=[key for key in KEYS if key != KEYS[3]])
    assert not away.series.buckets
    assert _buckets(rounds())


def test_a_question_names_what_it_needs() -> None:
    assert needed(CANARY) - needed(RESTING) == {Family.E2E, buckets_of(Family.E2E)}
    assert Counter.GENERATION_TOKENS in needed(RESTING)


def _buckets(plan: Plan) -> bool:
    """Whether those of the canary are fetched, and of nobody else."""
    names = {key for key in KEYS if buckets_of(Family.E2E) in plan.fetched(key)}
    assert names == plan.takers
    assert names <= {KEYS[3]}
    return bool(names)
