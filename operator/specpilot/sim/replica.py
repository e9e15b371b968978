"""The engines of one replica, driven by the wall clock.

A step is a timer: between two steps nothing runs, so that a replica at full load costs a few
percent of a core. A request that does not stream costs nothing but its share of the steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specpilot.sim.calls import Call, Refusal
from specpilot.sim.engine import Engine, engines
from specpilot.sim.exposition import Exposition
from specpilot.sim.faults import Faults, Hang, change
from specpilot.sim.httpcount import HttpCount
from specpilot.sim.launch import Generation, LaunchConfig
from specpilot.sim.requests import Output, Request

_CATCH_UP_SECONDS: Final = 0.25
"""A driver that was late by less than this makes up for it; more is lost, as on a real machine."""


@dataclass(frozen=True, slots=True)
class Gain:
    """New tokens of one choice of a call.

    Attributes:
        index: The choice.
        tokens: How many.
        reason: Why it ended, with its last tokens.
    """

    index: int
    tokens: int
    reason: str | None = None


class Flight:
    """One call in flight, as the HTTP side sees it: a request for each choice."""

    __slots__ = ("_gains", "ended", "engine", "reasons", "requests")

    def __init__(self, requests: Sequence[Request], engine: Engine, *, streaming: bool) -> None:
        self.requests = tuple(requests)
        self.engine = engine
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when all choices have ended."""
        self.reasons: dict[int, str] = {}
        """Finish reason by choice."""
        self._gains: asyncio.Queue[Gain] | None = asyncio.Queue() if streaming else None

    @property
    def generated(self) -> int:
        """Tokens of all choices."""
        return sum(request.generated for request in self.requests)

    def deliver(self, gain: Gain) -> None:
        """Hand over new tokens, or the end of a choice."""
        if gain.index in self.reasons:
            return
        if gain.reason is not None:
            self.reasons[gain.index] = gain.reason
            if len(self.reasons) == len(self.requests) and not self.ended.done():
                self.ended.set_result(None)
        if self._gains is not None:
            self._gains.put_nowait(gain)

    async def gains(self) -> AsyncIterator[Gain]:
        """Yield what every choice gains in every step, until all have ended."""
        if self._gains is None:
            raise RuntimeError("the call was not submitted as streaming")
        while not (self.ended.done() and self._gains.empty()):
            yield await self._gains.get()


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
        self.http: Final = HttpCount()
        self.draining = False
        self._clock: Final = clock
        self._wakers: Final = [asyncio.Event() for _ in self.engines]
        self._flights: Final[dict[int, tuple[Flight, int]]] = {}  # by request
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
        for flight, _ in list(self._flights.values()):
            self.abort(flight)

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

    def submit(self, call: Call) -> Flight:
        """Queue a call on the engine with the least to do.

        Raises:
            Refusal: The replica is draining.
        """
        if self.draining:
            raise Refusal("cannot schedule new futures after shutdown", status=500)
        rank = min(range(len(self.engines)), key=lambda each: self.engines[each].outstanding)
        engine = self.engines[rank]
        requests = [
            engine.request(
                prompt=prompt.text,
                prompt_tokens=prompt.tokens,
                max_tokens=call.max_tokens,
                natural_stop=call.natural_stop,
            )
            for prompt in call.prompts
        ]
        flight = Flight(requests, engine, streaming=call.stream)
        now = self._clock()
        for index, request in enumerate(requests):
            self._flights[id(request)] = (flight, index)
            engine.add(request, now=now)
        self._wakers[rank].set()
        return flight

    def abort(self, flight: Flight) -> None:
        """Give a call up, as when its client has gone; what has ended stays as it is."""
        for index, request in enumerate(flight.requests):
            if self._flights.pop(id(request), None) is not None:
                flight.engine.abort(request)
                flight.deliver(Gain(index=index, tokens=0, reason="abort"))
                self._wakers[self.engines.index(flight.engine)].set()

    def metrics(self) -> str:
        """Return the text of ``/metrics``."""
        text = self.exposition.render(self.engines)
        if self.config.generation is Generation.V0:
            return text  # its page has none
        one_process = self.config.api_server_count == 1
        lines = self.http.lines(created=self.exposition.created if one_process else None)
        return text + "".join(f"{line}\n" for line in lines)

    async def _run(self, engine: Engine, waker: asyncio.Event) -> None:
        scale = self.config.sim.time_scale
        due = self._clock()
        while True:
            now = self._clock()
            start = due if now - due < _CATCH_UP_SECONDS else now
            seconds = engine.begin_step(start)
            if seconds is None and start < now:
                start = now  # what arrived while the driver was late
                seconds = engine.begin_step(start)
            if seconds is None:
                waker.clear()
                await waker.wait()
                due = self._clock()
                continue
            due = start + seconds * scale
            await asyncio.sleep(max(0.0, due - self._clock()))
            for output in engine.finish_step(due):
                self._hand_over(output)

    def _hand_over(self, output: Output) -> None:
        request = output.request
        found = self._flights.get(id(request))
        if found is None:
            return
        flight, index = found
        reason = (request.finish_reason or "length") if output.finished else None
        if reason is not None:
            del self._flights[id(request)]
        flight.deliver(Gain(index=index, tokens=output.tokens, reason=reason))
