"""Replicas in virtual time: hours of load in seconds, without a socket.

The same engines, the same arrivals and the same records as over HTTP, so that a comparison of three
fleets takes no longer than its arithmetic. The owner moves the time, and may add and remove
replicas in between, as a controller would::

    fleet = VirtualFleet()
    fleet.add("a", Engine(config))
    fleet.submit(arrivals(phases, seed=1))
    fleet.advance(600.0)
    fleet.remove("a")
    fleet.add("b", Engine(other), ready_at=fleet.now + 120.0)
    fleet.finish()
    summarise(fleet.records, ...)
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from specpilot.sim.engine import Engine
from specpilot.sim.load.records import Record
from specpilot.sim.load.workload import Arrival
from specpilot.sim.requests import Request, count_tokens


@dataclass(slots=True, eq=False)
class VirtualReplica:
    """An engine on the virtual clock."""

    name: str
    engine: Engine
    ready_at: float
    leaving: bool = False
    stepping: bool = False
    flights: dict[int, tuple[Request, Arrival]] = field(default_factory=dict)


class VirtualFleet:
    """Replicas, a router that picks the one with the least to do, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.records: list[Record] = []
        self._replicas: dict[str, VirtualReplica] = {}
        self._events: list[tuple[float, int, VirtualReplica | None]] = []
        self._counter = 0
        self._arrivals: deque[Arrival] = deque()
        self._backlog: deque[Arrival] = deque()

    @property
    def engines(self) -> dict[str, Engine]:
        """Engines by the name of their replica, those that are leaving or starting included."""
        return {name: replica.engine for name, replica in self._replicas.items()}

    def add(self, name: str, engine: Engine, *, ready_at: float | None = None) -> None:
        """Add a replica that takes requests from ``ready_at`` on, by default from now on.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._replicas:
            raise ValueError(f"name: {name!r} is taken")
        ready = self.now if ready_at is None else max(ready_at, self.now)
        self._replicas[name] = VirtualReplica(name=name, engine=engine, ready_at=ready)
        self._schedule(ready, None)
        self._dispatch()

    def remove(self, name: str, *, drain: bool = True) -> None:
        """Take a replica out: at once for new requests, and after its last one if it drains.

        Without draining, its requests fail, as they do with a real engine's defaults.
        """
        replica = self._replicas[name]
        replica.leaving = True
        if not drain:
            for request, arrival in replica.flights.values():
                replica.engine.abort(request)
                self.records.append(
                    Record(
                        arrival,
                        end=self.now,
                        tokens=request.generated,
                        first_token=request.first_token,
                        endpoint=name,
                        error="aborted",
                    )
                )
            replica.flights.clear()
        if not replica.flights:
            del self._replicas[name]

    def submit(self, arrivals: Iterable[Arrival]) -> None:
        """Add arrivals; their times are on the fleet's clock, and not before those added earlier.

        Raises:
            ValueError: one of them is too early.
        """
        for arrival in arrivals:
            last = self._arrivals[-1].at if self._arrivals else self.now
            if arrival.at < last:
                raise ValueError(f"at: {arrival.at} is before {last}")
            self._arrivals.append(arrival)

    def advance(self, to: float) -> None:
        """Let the time pass."""
        while True:
            due = self._events[0][0] if self._events else float("inf")
            at = self._arrivals[0].at if self._arrivals else float("inf")
            if min(due, at) > to:
                break
            if at < due:
                self.now = at
                self._backlog.append(self._arrivals.popleft())
                self._dispatch()
            else:
                self.now, _, replica = heapq.heappop(self._events)
                if replica is not None:
                    self._finish_step(replica)
                else:
                    self._dispatch()
        self.now = max(self.now, to)

    def finish(self) -> None:
        """Let the time pass until every request that a replica could serve has ended."""
        while self._events or self._arrivals:
            due = self._events[0][0] if self._events else float("inf")
            at = self._arrivals[0].at if self._arrivals else float("inf")
            self.advance(min(due, at))

    def _schedule(self, at: float, replica: VirtualReplica | None) -> None:
        self._counter += 1
        heapq.heappush(self._events, (at, self._counter, replica))

    def _dispatch(self) -> None:
        """Hand waiting arrivals to replicas."""
        while self._backlog:
            ready = [
                replica
                for replica in self._replicas.values()
                if not replica.leaving and replica.ready_at <= self.now
            ]
            if not ready:
                return
            arrival = self._backlog.popleft()
            replica = min(ready, key=lambda each: each.engine.outstanding)
            request = replica.engine.request(
                prompt=arrival.prompt,
                prompt_tokens=count_tokens(arrival.prompt),
                max_tokens=arrival.max_tokens,
            )
            # The engine's own clock starts here: a wait for a replica is the router's.
            replica.engine.add(request, now=self.now)
            replica.flights[id(request)] = (request, arrival)
            self._begin_step(replica)

    def _begin_step(self, replica: VirtualReplica) -> None:
        if replica.stepping:
            return
        seconds = replica.engine.begin_step(self.now)
        if seconds is not None:
            replica.stepping = True
            self._schedule(self.now + seconds, replica)

    def _finish_step(self, replica: VirtualReplica) -> None:
        replica.stepping = False
        for output in replica.engine.finish_step(self.now):
            if not output.finished:
                continue
            request, arrival = replica.flights.pop(id(output.request))
            self.records.append(
                Record(
                    arrival,
                    end=self.now,
                    tokens=request.generated,
                    first_token=request.first_token,
                    endpoint=replica.name,
                    status=200,
                )
            )
        if replica.leaving and not replica.flights:
            self._replicas.pop(replica.name, None)
            return
        self._begin_step(replica)
