"""One flag change in flight per target, and no write is lost."""

from dataclasses import replace

import pytest

from specpilot.domain.changes import Phase
from specpilot.domain.policy import PolicyRef
from specpilot.domain.targets import TargetRef
from specpilot.store import (
    ConcurrentUpdateError,
    DuplicateChangeError,
    Store,
    TargetBusyError,
)
from tests.unit.store.examples import MINUTE, T0, change, ended, target


def test_a_change_is_stored_whole(store: Store) -> None:
    with store.begin() as unit:
        unit.changes.add(change())
    with store.read() as unit:
        assert unit.changes.get("chat-1") == change()
        assert unit.changes.get("chat-2") is None


def test_an_exception_undoes_everything(store: Store) -> None:
    def fail() -> None:
        with store.begin() as unit:
            unit.changes.add(change())
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    with store.read() as unit:
        assert unit.changes.open() == []


def test_put_counts_revisions_and_refuses_an_old_one(store: Store) -> None:
    with store.begin() as unit:
        unit.changes.add(change())
        stored = unit.changes.put(replace(change(), message="first"))
    assert stored.revision == 1
    with (
        store.begin() as unit,
        pytest.raises(ConcurrentUpdateError, match="is at revision 1, not at revision 0"),
    ):
        unit.changes.put(replace(change(), message="second, from an old copy"))
    with store.read() as unit:
        assert unit.changes.get("chat-1") == stored


def test_put_of_what_does_not_exist_says_so(store: Store) -> None:
    with store.begin() as unit, pytest.raises(ConcurrentUpdateError, match="does not exist"):
        unit.changes.put(change("gone"))


@pytest.mark.parametrize("phase", [p for p in Phase if not p.ended])
def test_a_target_has_one_change_in_flight(store: Store, phase: Phase) -> None:
    other_container = replace(target(), container="sidecar")
    with store.begin() as unit:
        unit.changes.add(change("first", phase=phase))
        with pytest.raises(TargetBusyError, match=f"first of policy serving/chat in phase {phase}"):
            unit.changes.add(change("second", target=other_container))
        unit.changes.add(change("elsewhere", target=target("other")))
    with store.read() as unit:
        found = unit.changes.in_flight(other_container)
        assert found is not None
        assert found.id == "first"
        assert {c.id for c in unit.changes.open()} == {"first", "elsewhere"}


@pytest.mark.parametrize("phase", [p for p in Phase if p.ended])
def test_an_ended_change_frees_its_target(store: Store, phase: Phase) -> None:
    with store.begin() as unit:
        unit.changes.add(change("first"))
        unit.changes.put(replace(change("first"), phase=phase, ended_at=T0))
        assert unit.changes.in_flight(target()) is None
        unit.changes.add(change("second"))
        assert [c.id for c in unit.changes.open()] == ["second"]


def test_open_changes_that_are_known_are_not_read_anew(store: Store) -> None:
    names = ("same", "moved", "over", "new")
    with store.begin() as unit:
        for name in names[:3]:
            unit.changes.add(change(name, target=target(name)))
    with store.read() as unit:
        known = {each.id: each for each in unit.changes.open()}
    with store.begin() as unit:
        unit.changes.put(replace(known["moved"], message="on"))
        unit.changes.put(replace(known["over"], phase=Phase.SUCCEEDED, ended_at=T0))
        unit.changes.add(change("new", target=target("new")))
    with store.read() as unit:
        found = {each.id: each for each in unit.changes.open(known=known)}
        assert [*found.values()] == unit.changes.open(), "the same as without"
    assert found.keys() == {"same", "moved", "new"}
    assert found["same"] is known["same"]
    assert found["moved"].message == "on"


def test_an_id_is_used_once(store: Store) -> None:
    with store.begin() as unit:
        unit.changes.add(ended("same"))
        with pytest.raises(DuplicateChangeError, match="same"):
            unit.changes.add(change("same", target=target("other")))


def test_recent_is_newest_first_and_by_policy_or_target(store: Store) -> None:
    other = PolicyRef(namespace="serving", name="other", uid="uid-other")
    with store.begin() as unit:
        for n in range(5):
            unit.changes.add(ended(f"chat-{n}", created_at=T0 + n * MINUTE))
        unit.changes.add(ended("x", created_at=T0, policy=other, target=target("other")))
    with store.read() as unit:
        recent = unit.changes.recent
        assert [c.id for c in recent(policy_uid="uid-chat", limit=2)] == ["chat-4", "chat-3"]
        assert [c.id for c in recent(target=target("other"))] == ["x"]
        assert len(recent()) == 6
        assert recent(policy_uid="uid-other", target=target()) == []


def test_ended_since_counts_from_the_end_of_a_change(store: Store) -> None:
    with store.begin() as unit:
        for n in range(4):
            unit.changes.add(ended(f"c-{n}", created_at=T0, ended_at=T0 + n * MINUTE))
        unit.changes.add(ended("other", target=target("other"), ended_at=T0 + 3 * MINUTE))
        unit.changes.add(change("running"))
        found = unit.changes.ended_since(target(), since=T0 + 2 * MINUTE)
    assert {c.id for c in found} == {"c-2", "c-3"}


def test_advice_has_ended_even_when_it_does_not_say_when(store: Store) -> None:
    with store.begin() as unit:
        unit.changes.add(change("advice", phase=Phase.ADVISED))
        assert unit.changes.open() == []
        assert [c.id for c in unit.changes.ended_since(target(), since=T0)] == ["advice"]


def test_prune_keeps_what_runs_and_what_is_young(store: Store) -> None:
    with store.begin() as unit:
        unit.changes.add(ended("old", ended_at=T0))
        unit.changes.add(ended("young", ended_at=T0 + MINUTE))
        unit.changes.add(change("running"))
        assert unit.changes.prune(ended_before=T0 + MINUTE) == 1
        assert {c.id for c in unit.changes.recent()} == {"young", "running"}


def test_names_with_quotes_are_just_names(store: Store) -> None:
    odd = TargetRef(kind="Deployment", namespace="a'b", name='x"; DROP TABLE flag_change; --')
    with store.begin() as unit:
        unit.changes.add(change(target=odd))
        assert unit.changes.in_flight(odd) == change(target=odd)
