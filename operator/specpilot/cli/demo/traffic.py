"""Sending the same arrivals to every fleet at the same time, from a process of its own.

A process, because the load must not wait for the interpreter that steers, nor the other way round.
"""

import asyncio
import functools
import multiprocessing
import queue
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

from specpilot.sim.load.client import ClientOptions, send
from specpilot.sim.load.records import Record
from specpilot.sim.load.workload import Arrival

_SPAWN = multiprocessing.get_context("spawn")

STARTED = "started"


@dataclass(slots=True)
class Score:
    """What one fleet has done so far."""

    records: list[Record] = field(default_factory=list)

    def goodput(self, met: Callable[[Record], bool], *, span: float) -> float:
        """Output tokens per second of requests that met their objective."""
        return sum(r.tokens for r in self.records if met(r)) / max(span, 1e-9)

    def share(self, met: Callable[[Record], bool]) -> float | None:
        """Part of the ended requests that met their objective; None before the first."""
        return sum(map(met, self.records)) / len(self.records) if self.records else None


class Traffic:
    """One load on several fleets.

    Args:
        arrivals: What arrives and when.
        gateways: URL by fleet.
    """

    def __init__(self, arrivals: Sequence[Arrival], *, gateways: Mapping[str, str]) -> None:
        self.scores = {name: Score() for name in gateways}
        self._messages: Queue[tuple[str, Record | None]] = _SPAWN.Queue()
        self._go = _SPAWN.Event()
        self._process = _SPAWN.Process(
            target=_run,
            args=(list(arrivals), dict(gateways), self._messages, self._go),
            daemon=True,
        )
        self._process.start()
        self._began = 0.0

    def start(self) -> None:
        """Begin to send.

        Raises:
            RuntimeError: The load generator did not start.
        """
        try:
            self._messages.get(timeout=60)
        except queue.Empty:
            raise RuntimeError("the load generator did not start within 60 s") from None
        self._go.set()
        self._began = time.monotonic()

    @property
    def second(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def poll(self) -> bool:
        """Take in what has ended; return whether requests are still to be sent or answered."""
        alive = self._process.is_alive()
        while True:
            try:
                name, record = self._messages.get_nowait()
            except queue.Empty:
                return alive
            if record is not None:
                self.scores[name].records.append(record)

    def check(self) -> None:
        """Raise when the load generator ended in any way but well."""
        self._process.join(timeout=5)
        if self._process.exitcode != 0:
            raise RuntimeError(f"the load generator ended with {self._process.exitcode}")


def _run(
    arrivals: list[Arrival],
    gateways: dict[str, str],
    messages: "Queue[tuple[str, Record | None]]",
    go: Event,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    messages.put((STARTED, None))
    go.wait()
    asyncio.run(_send(arrivals, gateways, messages))


async def _send(
    arrivals: list[Arrival],
    gateways: dict[str, str],
    messages: "Queue[tuple[str, Record | None]]",
) -> None:
    async with asyncio.TaskGroup() as group:
        for name, url in gateways.items():
            group.create_task(
                send(
                    arrivals,
                    endpoints=functools.partial(tuple, [url]),
                    options=ClientOptions(model="demo-8b", timeout=60.0),
                    on_record=functools.partial(_tell, messages, name),
                )
            )


def _tell(messages: "Queue[tuple[str, Record | None]]", name: str, record: Record) -> None:
    messages.put((name, record))
