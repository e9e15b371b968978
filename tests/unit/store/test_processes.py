"""Several processes at once: command line and supervisor, an old leader and a new one."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from specpilot.store import Store
from tests.unit.store import workers
from tests.unit.store.examples import target


def at_once(work: Callable[..., object], arguments: list[tuple[object, ...]]) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(arguments))
    with ProcessPoolExecutor(
        len(arguments), mp_context=context, initializer=workers.prepare, initargs=(barrier,)
    ) as pool:
        futures = [pool.submit(work, *given) for given in arguments]
        return [future.result(timeout=180) for future in futures]


def test_a_new_database_is_made_once(store_url: str) -> None:
    assert at_once(workers.open_at_once, [(store_url,)] * 2) == ["0003"] * 2


def test_appending_at_once_keeps_the_chain_whole(store: Store, store_url: str) -> None:
    counts = at_once(workers.append_records, [(store_url, writer, 50) for writer in range(2)])
    with store.read() as unit:
        verified = unit.audit.verify()
    assert verified.ok, verified.message
    assert verified.records == sum(counts)


def test_one_target_gets_one_change(store: Store, store_url: str) -> None:
    results = at_once(workers.add_for_one_target, [(store_url, writer) for writer in range(2)])
    assert sorted(results) == ["TargetBusyError", "added"]
    with store.read() as unit:
        assert unit.changes.in_flight(target("contended")) is not None
