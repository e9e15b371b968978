"""Memory of many policies, in bulk."""

import time

from specpilot.domain.memory import Pending, PolicyMemory
from specpilot.store import Store
from tests.unit.store.examples import MINUTE, T0


def test_a_policy_never_seen_remembers_nothing(store: Store) -> None:
    with store.read() as unit:
        assert unit.memory.get("new") == PolicyMemory()
        assert unit.memory.get_many([]) == {}


def test_memory_is_overwritten_and_forgotten(store: Store) -> None:
    first = PolicyMemory(
        active="eagle3",
        active_since=T0,
        pending={"off-when-busy": Pending(since=T0, last_true=T0 + MINUTE)},
    )
    with store.begin() as unit:
        unit.memory.put("a", first)
    with store.begin() as unit:
        assert unit.memory.get("a") == first
        unit.memory.put("a", PolicyMemory(active="off"))
        assert unit.memory.get("a") == PolicyMemory(active="off")
        unit.memory.delete("a")
        unit.memory.delete("a")
        assert unit.memory.get("a") == PolicyMemory()


def test_five_thousand_policies_fit_into_a_tick(store: Store) -> None:
    memories = {
        f"uid-{n}": PolicyMemory(
            active="eagle3",
            active_since=T0,
            probes_lost=n,
            pending={"off-when-busy": Pending(since=T0, last_true=T0 + MINUTE)},
        )
        for n in range(5000)
    }
    began = time.monotonic()
    for _ in range(2):  # insert, then update
        with store.begin() as unit:
            unit.memory.put_many(memories)
    with store.read() as unit:
        assert unit.memory.get_many([*memories, "new"]) == memories | {"new": PolicyMemory()}
    took = time.monotonic() - began
    assert took < 15, f"5,000 policies took {took:.1f} s; a tick has 15 s for everything"
