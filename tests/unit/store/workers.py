"""What the processes of the tests with several processes do; here, so that they can import it."""

import itertools
import time
from multiprocessing.synchronize import Barrier

from specpilot.store import Store
from tests.unit.store.examples import T0, change, draft, target

_barrier: Barrier


def prepare(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - the one value a process of a pool is given at its start
    _barrier = barrier


def open_at_once(url: str) -> str:
    _barrier.wait(timeout=90)
    store = Store.open(url)
    try:
        return store.health().revision
    finally:
        store.close()


def append_records(url: str, writer: int, at_least: int) -> int:
    """Append until somebody else has written in between; return how many records it took."""
    store = Store.open(url)
    _barrier.wait(timeout=90)
    until = time.monotonic() + 60
    mine, interleaved = "", False
    for step in itertools.count():
        if step >= at_least and interleaved:
            store.close()
            return step
        assert time.monotonic() < until, f"{step} records, and the other process wrote none"
        with store.begin() as unit:
            record = unit.audit.append(draft(change_id=f"change-{writer}", step=step), at=T0)
        interleaved = interleaved or (step > 0 and record.prev_hash != mine)
        mine = record.hash
    raise AssertionError("unreachable")


def add_for_one_target(url: str, writer: int) -> str:
    store = Store.open(url)
    _barrier.wait(timeout=90)
    try:
        with store.begin() as unit:
            unit.changes.add(change(f"change-{writer}", target=target("contended")))
    except Exception as problem:  # noqa: BLE001 - its name is the result
        return type(problem).__name__
    finally:
        store.close()
    return "added"
