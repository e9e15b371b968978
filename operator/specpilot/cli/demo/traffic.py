"""Sending the same arrivals to every fleet at the same time, from a thread of its own."""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specpilot.sim.load.client import ClientOptions, send
from specpilot.sim.load.records import Record
from specpilot.sim.load.workload import Arrival


@dataclass(slots=True)
class Score:
    """What one fleet has done so far."""

    records: list[Record] = field(default_factory=list)

    def goodput(self, met: Callable[[Record], bool], *, span: float) -> float:
        """Output tokens per second of requests that met their objective."""
        return sum(r.tokens for r in list(self.records) if met(r)) / max(span, 1e-9)

    def share(self, met: Callable[[Record], bool]) -> float | None:
        """Part of the ended requests that met their objective; None before the first."""
        records = list(self.records)
        return sum(map(met, records)) / len(records) if records else None


class Traffic:
    """One load on several fleets."""

    def __init__(self, arrivals: Sequence[Arrival], *, gateways: Mapping[str, str]) -> None:
        self._arrivals = arrivals
        self._gateways = gateways
        self.scores = {name: Score() for name in gateways}
        self._began = 0.0
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin to send."""
        self._began = time.monotonic()
        self._thread.start()

    @property
    def second(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def running(self) -> bool:
        """Whether requests are still to be sent or answered."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what ended the traffic early, if anything did."""
        if self._error is not None:
            raise RuntimeError("the load generator failed") from self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:  # noqa: BLE001 - shown by the thread that draws
            self._error = error

    async def _send(self) -> None:
        async with asyncio.TaskGroup() as group:
            for name, url in self._gateways.items():
                group.create_task(
                    send(
                        self._arrivals,
                        endpoints=functools.partial(tuple, [url]),
                        options=ClientOptions(model="demo-8b", timeout=60.0),
                        on_record=self.scores[name].records.append,
                    )
                )
