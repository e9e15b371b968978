"""The version a policy follows, found without asking the database for each policy."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from specpilot.controller.rulebook import Found, Rulebook
from specpilot.domain.evaluation import RuleSetError
from specpilot.domain.memory import PolicyMemory
from specpilot.domain.policy import Policy
from specpilot.domain.rules import Rule, RuleSet
from specpilot.store import RuleOwner, Store, UnitOfWork
from tests.unit.domain.builders import T0, policy

POLICY = policy()


class CountingStore:
    """Counts the transactions that read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        self.reads += 1
        with self._store.read() as unit:
            yield unit


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path}/rules.sqlite")
    yield opened
    opened.close()


def apply(store: Store, when: str) -> None:
    rules = RuleSet(name=POLICY.rule_set, rules=(Rule(name="r", when=when, setting="off"),))
    with store.begin() as unit:
        unit.rules.apply(
            namespace=POLICY.ref.namespace,
            rule_set=rules,
            owner=RuleOwner.RESOURCE,
            author="ann",
            source="test",
            at=T0,
        )


def find(book: Rulebook, store: Store, who: Policy = POLICY) -> Found | RuleSetError:
    with store.read() as unit:
        book.load(unit)
    return book.find(who, change=None, memory=PolicyMemory())


def version(found: Found | RuleSetError) -> int:
    assert not isinstance(found, RuleSetError), found
    return found[0].version


def test_a_version_is_read_once_however_many_policies_follow_it(store: Store) -> None:
    apply(store, "batch_size > 1")
    counting = CountingStore(store)
    book = Rulebook(counting)  # type: ignore[arg-type]  # reads are all that it does
    first = find(book, store)
    for _ in range(3):
        assert find(book, store) == first
    assert counting.reads == 1


def test_a_new_version_is_seen_at_the_next_tick_and_a_pinned_one_stays(store: Store) -> None:
    apply(store, "batch_size > 1")
    book = Rulebook(store)
    assert version(find(book, store)) == 1
    apply(store, "batch_size > 2")
    assert version(find(book, store)) == 2
    assert version(find(book, store, replace(POLICY, rule_version=1))) == 1


def test_what_is_not_there_is_not_asked_for_again_and_again(store: Store) -> None:
    counting = CountingStore(store)
    book = Rulebook(counting)  # type: ignore[arg-type]  # as above
    found = find(book, store)
    assert isinstance(found, RuleSetError)
    assert f"there is no rule set {POLICY.rule_set} in namespace" in str(found)
    apply(store, "batch_size > 1")
    found = find(book, store, replace(POLICY, rule_version=9))
    assert isinstance(found, RuleSetError)
    assert "version 9" in str(found)
    assert counting.reads == 0


def test_a_deleted_one_is_missed_and_comes_back(store: Store) -> None:
    apply(store, "batch_size > 1")
    book = Rulebook(store)
    find(book, store)
    with store.begin() as unit:
        unit.rules.release(
            namespace=POLICY.ref.namespace, name=POLICY.rule_set, owner=RuleOwner.RESOURCE
        )
    found = find(book, store)
    assert isinstance(found, RuleSetError)
    assert "was deleted" in str(found)
    apply(store, "batch_size > 1")
    assert version(find(book, store)) == 1
