"""Applied resources behave as they would in Kubernetes."""

import pytest

from specpilot.store import NoSuchResourceError, Resource, Store, UnitOfWork
from tests.unit.store.examples import MINUTE, T0

CHAT = {"kind": "SpeculationPolicy", "namespace": "local", "name": "chat"}


def apply(
    unit: UnitOfWork, spec: dict[str, object], *, labels: str = "", minute: int = 0
) -> Resource:
    metadata = {"labels": {"team": labels}, "annotations": {}}
    return unit.resources.apply(**CHAT, spec=spec, metadata=metadata, at=T0 + minute * MINUTE)


def test_the_generation_rises_with_the_spec_alone(store: Store) -> None:
    with store.begin() as unit:
        first = apply(unit, {"mode": "Auto", "limits": {"a": 1, "b": 2}})
        same = apply(unit, {"limits": {"b": 2, "a": 1}, "mode": "Auto"}, minute=1)
        labelled = apply(unit, {"mode": "Auto", "limits": {"a": 1, "b": 2}}, labels="x", minute=2)
        changed = apply(unit, {"mode": "Off"}, labels="x", minute=3)
    assert same == first
    assert (labelled.generation, labelled.updated_at) == (1, T0 + 2 * MINUTE)
    assert labelled.metadata["labels"] == {"team": "x"}
    assert (changed.generation, changed.uid, changed.created_at) == (2, first.uid, T0)
    assert changed.spec == {"mode": "Off"}


def test_the_status_is_apart(store: Store) -> None:
    with store.begin() as unit:
        apply(unit, {"mode": "Auto"})
        unit.resources.put_status(**CHAT, status={"ready": True})
        after = apply(unit, {"mode": "Off"})
        assert after.status == {"ready": True}
        assert after.generation == 2


def test_a_deleted_resource_comes_back_as_another(store: Store) -> None:
    with store.begin() as unit:
        first = apply(unit, {"mode": "Auto"})
        assert unit.resources.delete(**CHAT)
        assert not unit.resources.delete(**CHAT)
        assert unit.resources.get(**CHAT) is None
        with pytest.raises(NoSuchResourceError, match="no SpeculationPolicy local/chat"):
            unit.resources.put_status(**CHAT, status={})
        again = apply(unit, {"mode": "Auto"})
    assert (again.generation, again.uid != first.uid) == (1, True)


def test_list_is_by_kind_and_namespace(store: Store) -> None:
    with store.begin() as unit:
        for kind, namespace, name in [
            ("A", "n", "2"),
            ("A", "n", "1"),
            ("A", "m", "3"),
            ("B", "n", "1"),
        ]:
            unit.resources.apply(kind=kind, namespace=namespace, name=name, spec={}, at=T0)
        listed = unit.resources.list
        assert [(r.namespace, r.name) for r in listed(kind="A")] == [
            ("m", "3"),
            ("n", "1"),
            ("n", "2"),
        ]
        assert [r.name for r in listed(kind="A", namespace="n")] == ["1", "2"]
