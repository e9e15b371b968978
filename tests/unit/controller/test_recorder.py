"""What is noted of changes between their steps."""

from dataclasses import replace
from pathlib import Path

from specpilot.controller.recorder import Recorder
from specpilot.store import open_store
from tests.unit.controller.world import WorldClock
from tests.unit.store.examples import change, target


def test_what_is_noted_is_written_but_for_changes_that_were_moved_on(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/notes.sqlite")
    recorder = Recorder(store=store, clock=WorldClock())
    names = ("a", "moved", "z")
    with store.begin() as unit:
        for name in names:
            unit.changes.add(change(name, target=target(name)))
    with store.read() as unit:
        seen = {each.id: each for each in unit.changes.open()}
    with store.begin() as unit:
        unit.changes.put(replace(seen["moved"], message="by another process"))

    recorder.note([replace(seen[name], seen_applied=True) for name in names])

    with store.read() as unit:
        found = {each.id: each for each in unit.changes.open()}
    assert found["a"].seen_applied
    assert found["z"].seen_applied, "one that cannot be written does not stop the others"
    assert not found["moved"].seen_applied
    assert found["moved"].message == "by another process"
    store.close()
