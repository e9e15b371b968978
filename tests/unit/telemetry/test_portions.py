"""How a fleet is cut: evenly, within what may be asked, and so that namespaces stay in place."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.telemetry.demand import MOST_LETTERS_TOGETHER, Demand
from specpilot.telemetry.portions import MOST_QUERIES, NamespacePortions, Size
from specpilot.telemetry.promql import Labels, Scope
from tests.unit.telemetry.builders import ask, replica


def teams(count: int, size: int) -> dict[str, int]:
    return {f"team-{n:02d}": size for n in range(count)}


@pytest.mark.parametrize(
    ("sizes", "count", "reason"),
    [
        ({}, 1, "nobody is there yet"),
        (teams(50, 32), 1, "1,600 replicas are looked at quickly enough"),
        (teams(50, 40), 2, "2,000 are worth two looks"),
        (teams(50, 60), 3, "3,000 are worth three"),
        (teams(50, 100), 5, "5,000 are worth five"),
        (teams(50, 120), 6, "6,000 are worth six"),
        (teams(50, 202), 6, "10,100: one answer holds a sixth with its buckets, and a tenth more"),
        (teams(50, 204), 4, "10,200: buckets may need an answer of their own, so there are fewer"),
        (teams(50, 278), 4, "13,900: one answer holds a quarter, and a tenth more"),
        (teams(50, 280), 2, "14,000: four portions would soon take 22 queries"),
        (teams(50, 400), 1, "20,000: five shares are within the queries only when all are one"),
        (
            {f"{n:063d}": 80 for n in range(100)},
            3,
            "names so long that gauges have a query of their own: four would take 18",
        ),
        ({"serving": 9000}, 1, "one namespace cannot be cut"),
        ({"serving": 4500, "test": 500}, 2, "two can be cut once"),
    ],
)
def test_into_how_many(sizes: dict[str, int], count: int, reason: str) -> None:
    portions = NamespacePortions()
    portions.divide(sizes)
    assert portions.count == count, reason
    assert {portions.of(name) for name in sizes} == set(range(count if sizes else 0))


def weights(portions: NamespacePortions, sizes: dict[str, int]) -> list[int]:
    found = [0] * portions.count
    for name, size in sizes.items():
        found[portions.of(name)] += size
    return found


def test_portions_are_even() -> None:
    sizes = {f"team-{n:02d}": 10 * n for n in range(1, 40)}
    portions = NamespacePortions()
    portions.divide(sizes)
    found = weights(portions, sizes)
    assert len(found) == 6
    assert max(found) <= 1.1 * min(found)


def test_who_comes_and_goes_moves_nobody_else() -> None:
    sizes = teams(50, 60)
    portions = NamespacePortions()
    portions.divide(sizes)
    before = {name: portions.of(name) for name in sizes}
    del sizes["team-07"]
    sizes |= {"new-a": 200, "new-b": 200, "team-09": 90}
    portions.divide(sizes)
    assert {name: portions.of(name) for name in before if name in sizes} == {
        name: portion for name, portion in before.items() if name in sizes
    }
    assert portions.of("new-a") != portions.of("new-b"), "each joins the lightest"


def test_a_portion_that_has_grown_too_heavy_has_all_spread_anew() -> None:
    sizes = teams(6, 500)
    portions = NamespacePortions()
    portions.divide(sizes)
    grown = [name for name in sizes if portions.of(name) == portions.of("team-00")]
    assert len(grown) == 2
    portions.divide(sizes | dict.fromkeys(grown, 900))
    assert portions.of(grown[0]) == portions.of(grown[1]), "somewhat heavier is no reason"
    portions.divide(sizes | dict.fromkeys(grown, 2000))
    assert portions.of(grown[0]) != portions.of(grown[1])


def test_a_fleet_about_the_limit_is_not_cut_one_way_and_the_other() -> None:
    portions = NamespacePortions()
    seen = []
    for size in (60, 59, 61, 55, 60, 47):
        portions.divide(teams(50, size))
        seen.append(portions.count)
    assert seen == [3, 3, 3, 3, 3, 2], "fewer only when a fifth is gone"


def test_a_pod_more_or_less_moves_nobody() -> None:
    """Wherever the limits are: else namespaces would be looked at twice in an interval, or not."""
    for size in range(3000, 18_000, 60):
        portions = NamespacePortions()
        sizes = teams(50, size // 50)
        portions.divide(sizes)
        before = {name: portions.of(name) for name in sizes}
        moved = 0
        for extra in range(6):  # a surge pod here, one there
            for name in ("team-03", "team-17", "team-31"):
                portions.divide(sizes | {name: sizes[name] + extra % 2 + 1})
                now = {each: portions.of(each) for each in sizes}
                moved += now != before
                before = now
        assert moved <= 1, f"{size} replicas: at most once, when it has outgrown its portions"


def test_portions_that_fail_at_the_same_time_are_one_reason_to_cut() -> None:
    portions = NamespacePortions()
    size = portions.size(3000)
    for _ in range(4):
        portions.too_large(size, whole=False)
    assert portions.size(3000).shares == 2


def test_answers_that_were_too_large_are_cut_and_paid_for_with_portions() -> None:
    portions = NamespacePortions()
    sizes = teams(50, 60)
    portions.divide(sizes)
    assert portions.count == 3
    assert portions.size(1000) == Size(replicas=1000, shares=1, small=True)
    portions.too_large(portions.size(1000), whole=True)
    assert portions.size(1000) == Size(replicas=1000, shares=1, small=False), "buckets are apart"
    portions.divide(sizes)
    assert portions.count == 3, "within what may be asked"
    portions.too_large(portions.size(1000), whole=False)
    assert portions.size(1000) == Size(replicas=1000, shares=2, small=False)
    portions.divide(sizes)
    assert portions.count == 1, "of six shares, which is all that may be asked"


def test_a_small_portion_whose_answer_had_no_buckets_is_cut_at_once() -> None:
    """Leaving out what was not in it would ask for the same again."""
    portions = NamespacePortions()
    portions.too_large(portions.size(1000), whole=False)
    assert portions.size(1000).shares == 2


def test_light_namespaces_are_spread_by_what_their_names_take() -> None:
    """Sixty of one replica each weigh nothing, but a query has no room for all of their names."""
    heavy = {f"serving-{n}": 1500 for n in range(5)}
    light = {f"kubeflow-user-{n:04d}": 1 for n in range(60)}
    portions = NamespacePortions()
    portions.divide(heavy | light)
    assert portions.count == 6


def test_a_namespace_more_or_less_moves_nobody() -> None:
    """Wherever their names become too many for so many portions."""
    for count in range(100, 400, 10):
        portions = NamespacePortions()
        sizes = {f"kubeflow-user-{n:04d}-serving": 40 for n in range(count)}
        portions.divide(sizes)
        seen = []
        for extra in (1, 0, 2, 0, 1, 0):
            more = {f"preview-{n:04d}-of-a-branch": 2 for n in range(extra)}
            portions.divide(sizes | more)
            seen.append({name: portions.of(name) for name in sizes})
        changes = sum(now != before for before, now in pairwise(seen))
        assert changes <= 1, f"{count} namespaces: at most once, when they have outgrown a query"


def test_who_does_not_ask_for_portions_gets_none() -> None:
    portions = NamespacePortions(most=1)
    portions.divide(teams(50, 100))
    assert portions.count == 1


@pytest.mark.parametrize("name", ["team-{}", "a-b-c-d-e-{}", "n{:062d}"])
@pytest.mark.parametrize("matchers", ["", 'cluster="a"', f'cluster="{"c" * 500}"'])
def test_where_a_look_counts_as_two_queries_all_of_it_fits_into_one(
    name: str, matchers: str
) -> None:
    """Counters, gauges and the buckets of all, of every signal there is."""
    labels = Labels(matchers=matchers)
    portions, names = NamespacePortions(labels=labels), [name.format(0)]
    while portions.queries(1500, more := [*names, name.format(len(names))]) == 2:
        names = more
    pods = [replica("chat-0", namespace=name) for name in names]
    demand = Demand(lasting_s=60)
    demand.ask([ask(*pods)], now=0.0)
    plan = demand.plan([pod.key for pod in pods], now=0.0)
    assert plan is not None
    assert plan.named is None
    scope = Scope(namespaces=names, labels=labels)
    found = plan.queries([scope], over_s=86_400.0, small=True)
    assert len(found.texts) == 2
    assert len(found.texts[1]) > 0.9 * MOST_LETTERS_TOGETHER, "or more would have been possible"


@pytest.mark.parametrize("count", range(1, 7))
def test_every_portion_looks_back_in_turn_and_few_at_a_time(count: int) -> None:
    """When all of them have something to look up at each of their looks."""
    portions = NamespacePortions(most=count)
    portions.divide(teams(50, 120))
    assert portions.count == count
    turns = [portions.looks_back(n % count, wanted=True) for n in range(600)]
    most = max(sum(turns[n : n + count]) for n in range(600 - count))
    assert most == -(-count // 3)
    for portion in range(count):
        own = [n for n, turn in enumerate(turns[portion::count]) if turn]
        gaps = [later - turn for turn, later in pairwise(own)]
        assert max(gaps) <= 4, "in every fourth look"
        assert min(gaps) >= 2, "and the present in between"


def test_portions_without_anybody_take_no_turns_from_the_others() -> None:
    portions = NamespacePortions(most=3)
    portions.divide(teams(3, 1000))
    turns = {0: 0, 1: 0}
    for _ in range(30):
        for portion in turns:  # the third is empty, and does not look
            turns[portion] += portions.looks_back(portion, wanted=True)
    assert turns[0] >= 5
    assert turns[1] >= 5


def test_who_has_nothing_to_look_up_leaves_the_turn_to_others() -> None:
    portions = NamespacePortions(most=6)
    portions.divide(teams(50, 120))
    looks = [(n % 6, portions.looks_back(n % 6, wanted=n % 6 == 4)) for n in range(24)]
    assert [portion for portion, turn in looks if turn] == [4]


@dataclass(frozen=True)
class Step:
    sizes: dict[str, int]
    too_large: int | None


_STEPS = st.builds(
    Step,
    sizes=st.dictionaries(st.sampled_from([f"n{i}" for i in range(12)]), st.integers(0, 5000)),
    too_large=st.none() | st.integers(1, 20_000),
)


@given(st.lists(_STEPS, min_size=1, max_size=8), st.integers(1, 6))
def test_whatever_comes_it_stays_within_the_queries_and_holds_everybody(
    steps: list[Step], most: int
) -> None:
    portions = NamespacePortions(most=most)
    for step in steps:
        if step.too_large is not None:
            size = portions.size(step.too_large)
            portions.too_large(size, whole=size.small)
        portions.divide(step.sizes)
        assert 1 <= portions.count <= most
        assert all(0 <= portions.of(name) < portions.count for name in step.sizes)
        put = 0
        for portion, weight in enumerate(weights(portions, step.sizes)):
            names = [name for name in step.sizes if portions.of(name) == portion]
            put += portions.queries(weight, names)
        backwards = -(-portions.count // 3) if portions.count > 1 else 0
        assert put + backwards <= MOST_QUERIES
        again = {name: portions.of(name) for name in step.sizes}
        portions.divide(step.sizes)
        assert {name: portions.of(name) for name in step.sizes} == again, "nobody moves at rest"
