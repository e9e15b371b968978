"""Sending the same arrivals to every fleet at the same time."""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specpilot.cli.demo.background import Background
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


class Traffic(Background):
    """One load on several fleets."""

    def __init__(self, arrivals: Sequence[Arrival], *, gateways: Mapping[str, str]) -> None:
        super().__init__(self._send)
        self._arrivals = arrivals
        self._gateways = gateways
        self.scores = {name: Score() for name in gateways}

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
