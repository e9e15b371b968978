"""The engines of one replica, driven by the wall clock.

A step is a timer: between two steps nothing runs, so that a replica at full load costs a few
percent of a core. A request that does not stream costs nothing but its share of the steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from specpilot.sim.engine import Engine, engines
from specpilot.sim.exposition import Exposition
from specpilot.sim.faults import Faults, Hang, change
from specpilot.sim.launch import LaunchConfig
from specpilot.sim.requests import Request

_CATCH_UP_SECONDS: Final = 0.25
"""A driver that was late by less than this makes up for it; more is lost, as on a real machine."""


class Ticket:
    """One request in flight, as the HTTP side sees it."""

    __slots__ = ("_chunks", "done", "engine", "request")

    def __init__(self, request: Request, engine: Engine, *, streaming: bool) -> None:
        self.request = request
        self.engine = engine
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Resolves to the finish reason."""
        self._chunks: asyncio.Queue[int] | None = asyncio.Queue() if streaming else None

    def deliver(self, tokens: int) -> None:
        """Hand over new tokens."""
        if self._chunks is not None:
            self._chunks.put_nowait(tokens)

    def finish(self, reason: str) -> None:
        """End the request."""
        if not self.done.done():
            self.done.set_result(reason)
        self.deliver(0)

    async def chunks(self) -> AsyncIterator[int]:
        """Yield the number of new tokens of every step until the request ends."""
        if self._chunks is None:
            raise RuntimeError("the request was not submitted as streaming")
        while not (self.done.done() and self._chunks.empty()):
            tokens = await self._chunks.get()
            if tokens:
                yield tokens


class Replica:
    """Engines, their loops and their requests."""

    def __init__(
        self,
        config: LaunchConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.config: Final = config
        self.engines: Final = list(engines(config))
        self.exposition: Final = Exposition(config=config, created=wall_clock())
        self.draining = False
        self._clock: Final = clock
        self._wakers: Final = [asyncio.Event() for _ in self.engines]
        self._tickets: Final[dict[int, Ticket]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._hanging = asyncio.Event()  # set while HTTP may answer
        self._hanging.set()

    def start(self) -> None:
        """Begin to step."""
        self._loops = [
            asyncio.create_task(self._run(engine, waker), name=f"sim-engine-{rank}")
            for rank, (engine, waker) in enumerate(zip(self.engines, self._wakers, strict=True))
        ]

    async def stop(self) -> None:
        """Stop stepping and end every request as aborted."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        for ticket in list(self._tickets.values()):
            self.abort(ticket)

    @property
    def outstanding(self) -> int:
        """Requests queued or running on all engines."""
        return sum(engine.outstanding for engine in self.engines)

    @property
    def faults(self) -> Faults:
        """The faults in force."""
        return self.engines[0].faults

    def change_faults(self, to: Mapping[str, object]) -> Faults:
        """Put other faults in force.

        Raises:
            ValueError: see :func:`.faults.change`.
        """
        faults = change(self.faults, to=to)
        for engine, waker in zip(self.engines, self._wakers, strict=True):
            engine.faults = faults
            waker.set()
        if faults.hang is Hang.HTTP:
            self._hanging.clear()
        else:
            self._hanging.set()
        return faults

    async def until_answering(self) -> None:
        """Wait while HTTP hangs."""
        await self._hanging.wait()

    def submit(
        self,
        *,
        prompt: str,
        prompt_tokens: int,
        max_tokens: int,
        natural_stop: bool = False,
        streaming: bool = False,
    ) -> Ticket:
        """Queue a request on the engine with the least to do; while draining it is aborted."""
        rank = min(range(len(self.engines)), key=lambda each: self.engines[each].outstanding)
        engine = self.engines[rank]
        request = engine.request(
            prompt=prompt,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            natural_stop=natural_stop,
        )
        ticket = Ticket(request, engine, streaming=streaming)
        if self.draining:
            ticket.finish("abort")
            return ticket
        self._tickets[id(request)] = ticket
        engine.add(request, now=self._clock())
        self._wakers[rank].set()
        return ticket

    def abort(self, ticket: Ticket) -> None:
        """Give up a request, as when its client has gone."""
        if self._tickets.pop(id(ticket.request), None) is not None:
            ticket.engine.abort(ticket.request)
            ticket.finish("abort")
            self._wakers[self.engines.index(ticket.engine)].set()

    def metrics(self) -> str:
        """Return the text of ``/metrics``."""
        return self.exposition.render(self.engines)

    async def _run(self, engine: Engine, waker: asyncio.Event) -> None:
        scale = self.config.sim.time_scale
        due = self._clock()
        while True:
            now = self._clock()
            start = due if now - due < _CATCH_UP_SECONDS else now
            seconds = engine.begin_step(start)
            if seconds is None:
                waker.clear()
                await waker.wait()
                due = self._clock()
                continue
            due = start + seconds * scale
            await asyncio.sleep(max(0.0, due - self._clock()))
            for output in engine.finish_step(due):
                ticket = self._tickets.get(id(output.request))
                if ticket is None:
                    continue
                ticket.deliver(output.tokens)
                if output.finished:
                    del self._tickets[id(output.request)]
                    ticket.finish(output.request.finish_reason or "length")
