"""Rule sets: immutable versions, one owner."""

from collections.abc import Callable

import pytest

from specpilot.domain.rules import RuleSetVersion
from specpilot.store import RuleOwner, RuleSetOwnedError, Store, UnitOfWork
from tests.unit.store.examples import MINUTE, T0, rule_set


def apply(
    unit: UnitOfWork,
    *,
    busy: float = 32.0,
    owner: RuleOwner = RuleOwner.CLI,
    name: str = "hit-rate",
    namespace: str = "serving",
    minute: int = 0,
) -> RuleSetVersion:
    return unit.rules.apply(
        namespace=namespace,
        rule_set=rule_set(name, busy=busy),
        owner=owner,
        author="ada",
        source="rules.yaml",
        at=T0 + minute * MINUTE,
    )


def test_each_change_is_a_new_version(store: Store) -> None:
    with store.begin() as unit:
        versions = [apply(unit, busy=b).version for b in (32.0, 48.0, 48.0, 32.0)]
    assert versions == [1, 2, 2, 3], "the same content again is no new version; going back is one"


def test_versions_come_back_whole(store: Store) -> None:
    with store.begin() as unit:
        first = apply(unit, busy=32.0)
        second = apply(unit, busy=48.0, minute=1)
    with store.read() as unit:
        assert unit.rules.get(namespace="serving", name="hit-rate", version=1) == first
        assert unit.rules.latest(namespace="serving", name="hit-rate") == second
        assert first.rule_set == rule_set(busy=32.0)
        history = unit.rules.history(namespace="serving", name="hit-rate")
        assert [(h.version, h.at, h.owner) for h in history] == [
            (second, T0 + MINUTE, RuleOwner.CLI),
            (first, T0, RuleOwner.CLI),
        ]


def test_nothing_is_found_where_nothing_is(store: Store) -> None:
    with store.read() as unit:
        assert unit.rules.latest(namespace="serving", name="none") is None
        assert unit.rules.get(namespace="serving", name="none", version=1) is None
        assert unit.rules.owner(namespace="serving", name="none") is RuleOwner.NOBODY
        assert list(unit.rules.list()) == []


def test_list_shows_the_latest_of_each(store: Store) -> None:
    with store.begin() as unit:
        apply(unit, name="b")
        apply(unit, name="a")
        newest = apply(unit, name="a", busy=1.0)
        elsewhere = apply(unit, name="a", namespace="other")
    with store.read() as unit:
        assert [v.rule_set.name for v in unit.rules.list(namespace="serving")] == ["a", "b"]
        assert newest in unit.rules.list()
        assert list(unit.rules.list(namespace="other")) == [elsewhere]


@pytest.mark.parametrize(
    ("holder", "other", "words"),
    [
        (RuleOwner.RESOURCE, RuleOwner.CLI, "owned by the RuleSet resource .*edit it with kubectl"),
        (RuleOwner.CLI, RuleOwner.RESOURCE, "kept by the command line"),
        (RuleOwner.FILE, RuleOwner.CLI, "edit the file and apply it again"),
    ],
)
def test_only_the_owner_changes_a_rule_set(
    store: Store, holder: RuleOwner, other: RuleOwner, words: str
) -> None:
    with store.begin() as unit:
        apply(unit, owner=holder)
        with pytest.raises(RuleSetOwnedError, match=f"serving/hit-rate .*{words}"):
            apply(unit, owner=other, busy=48.0)
        with pytest.raises(RuleSetOwnedError):
            unit.rules.release(namespace="serving", name="hit-rate", owner=other)
        assert unit.rules.owner(namespace="serving", name="hit-rate") is holder


def test_a_released_rule_set_keeps_its_versions_and_gets_a_new_owner(store: Store) -> None:
    with store.begin() as unit:
        apply(unit, owner=RuleOwner.RESOURCE)
        for _ in range(2):
            unit.rules.release(namespace="serving", name="hit-rate", owner=RuleOwner.RESOURCE)
        assert unit.rules.latest(namespace="serving", name="hit-rate") is not None
        assert apply(unit, owner=RuleOwner.CLI, busy=48.0).version == 2
        assert unit.rules.owner(namespace="serving", name="hit-rate") is RuleOwner.CLI


@pytest.mark.parametrize(
    "statement", ["UPDATE rule_set_version SET content = '{}'", "DELETE FROM rule_set_version"]
)
def test_the_database_refuses_to_change_a_version(
    store: Store, sql: Callable[[str], object], statement: str
) -> None:
    with store.begin() as unit:
        apply(unit)
    with pytest.raises(Exception, match="append-only"):
        sql(statement)
