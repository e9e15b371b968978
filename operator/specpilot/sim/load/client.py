"""Sends arrivals over HTTP to replicas that come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx

from specpilot.sim.load.records import Record
from specpilot.sim.load.workload import Arrival

Endpoints = Callable[[], Iterable[str]]
"""Returns the base URLs of the replicas as of now; asked again and again."""

_OK: Final = 200
_AFTER_FAILURE_SECONDS: Final = 0.5
"""A client of a closed loop that was refused would otherwise ask again at once, for ever."""


def endpoints_of_file(path: Path) -> Endpoints:
    """Read base URLs from a file, one a line, anew each time; a missing file is an empty list."""

    def read() -> list[str]:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]

    return read


@dataclass(slots=True)
class _Endpoint:
    url: str
    ready: bool = False
    outstanding: int = 0


class Balancer:
    """Picks the ready replica with the least outstanding requests, as a router would."""

    def __init__(self, endpoints: Endpoints, *, http: httpx.AsyncClient, probe_seconds: float):
        self._endpoints: Final = endpoints
        self._http: Final = http
        self._probe_seconds: Final = probe_seconds
        self._known: dict[str, _Endpoint] = {}
        self._changed = asyncio.Event()
        self._turn = 0

    async def run(self) -> None:
        """Probe ``/health`` of every replica for ever."""
        while True:
            await self.probe()
            await asyncio.sleep(self._probe_seconds)

    async def probe(self) -> None:
        """Learn which replicas there are and which of them answer."""
        urls = [url.rstrip("/") for url in self._endpoints()]
        self._known = {url: self._known.get(url) or _Endpoint(url) for url in urls}
        await asyncio.gather(*(self._probe_one(each) for each in self._known.values()))
        self._changed.set()

    async def _probe_one(self, endpoint: _Endpoint) -> None:
        try:
            answer = await self._http.get(f"{endpoint.url}/health", timeout=2.0)
        except httpx.HTTPError:
            endpoint.ready = False
        else:
            endpoint.ready = answer.status_code == _OK

    async def pick(self, *, deadline: float) -> _Endpoint | None:
        """Return a replica; wait for one to be ready until ``deadline`` on the loop's clock."""
        loop = asyncio.get_running_loop()
        while True:
            ready = [each for each in self._known.values() if each.ready]
            if ready:
                self._turn += 1  # equals are served in turn
                turned = ready[self._turn % len(ready) :] + ready[: self._turn % len(ready)]
                return min(turned, key=lambda each: each.outstanding)
            self._changed.clear()
            left = deadline - loop.time()
            if left <= 0:
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout=left)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How requests are sent.

    Attributes:
        model: name in the requests; None leaves it out, which recent engines take as whatever they
            serve.
        stream: stream the answers, which gives the time of the first token.
        timeout: seconds after which a request counts as failed.
        wait_for_replica: seconds that a request waits for a ready replica.
        probe_seconds: interval of the readiness probes.
        sampling: further fields of the request body, such as a temperature.
    """

    model: str | None = None
    stream: bool = False
    timeout: float = 120.0
    wait_for_replica: float = 60.0
    probe_seconds: float = 0.5
    sampling: dict[str, object] = field(default_factory=lambda: {"ignore_eos": True})


async def send(
    arrivals: Sequence[Arrival],
    *,
    endpoints: Endpoints,
    options: ClientOptions | None = None,
    on_record: Callable[[Record], None] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> list[Record]:
    """Send every arrival at its time and return the records, in order of arrival (open loop).

    A request is tried again elsewhere only if the connection was refused, that is before a byte of
    it was sent; whatever happens later counts as its failure.

    Args:
        arrivals: in ascending order of time.
        endpoints: the replicas.
        options: see :class:`ClientOptions`.
        on_record: told of every request as it ends.
        transport: what carries the requests, instead of the network.
    """
    async with _session(endpoints, options, on_record, transport) as session:
        tasks: list[asyncio.Task[Record]] = []
        try:
            for arrival in arrivals:
                await asyncio.sleep(max(0.0, arrival.at - session.now()))
                tasks.append(asyncio.create_task(session.send(arrival)))
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def circulate(
    draw: Callable[[], Arrival | None],
    *,
    clients: int,
    endpoints: Endpoints,
    options: ClientOptions | None = None,
    on_record: Callable[[Record], None] | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> None:
    """Keep ``clients`` requests in flight until there are no more (closed loop).

    Args:
        draw: gives the next request, whose time is set when it is sent; None ends one client.
        clients: each sends its next request when the last one has ended.
        endpoints: the replicas.
        options: see :class:`ClientOptions`.
        on_record: told of every request as it ends.
        transport: what carries the requests, instead of the network.
    """
    async with _session(endpoints, options, on_record, transport) as session:

        async def client() -> None:
            while (drawn := draw()) is not None:
                record = await session.send(replace(drawn, at=session.now()))
                if record.error is not None:
                    await asyncio.sleep(_AFTER_FAILURE_SECONDS)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())


@dataclass(frozen=True, slots=True)
class _Session:
    """A run of requests: one client, one balancer, one clock."""

    http: httpx.AsyncClient
    balancer: Balancer
    options: ClientOptions
    started: float
    on_record: Callable[[Record], None] | None

    def now(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - self.started

    async def send(self, arrival: Arrival) -> Record:
        record = await _send_one(
            arrival, self.http, self.balancer, options=self.options, started=self.started
        )
        if self.on_record is not None:
            self.on_record(record)
        return record


@asynccontextmanager
async def _session(
    endpoints: Endpoints,
    options: ClientOptions | None,
    on_record: Callable[[Record], None] | None,
    transport: httpx.AsyncBaseTransport | None,
) -> AsyncIterator[_Session]:
    chosen = options or ClientOptions()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2)
    # Replicas are addressed directly: no proxy of the environment may come between.
    async with httpx.AsyncClient(
        limits=limits,
        timeout=httpx.Timeout(chosen.timeout, connect=5.0),
        trust_env=False,
        transport=transport,
    ) as http:
        balancer = Balancer(endpoints, http=http, probe_seconds=chosen.probe_seconds)
        await balancer.probe()
        prober = asyncio.create_task(balancer.run())
        try:
            yield _Session(http, balancer, chosen, asyncio.get_running_loop().time(), on_record)
        finally:
            prober.cancel()
            await asyncio.gather(prober, return_exceptions=True)


async def _send_one(
    arrival: Arrival,
    http: httpx.AsyncClient,
    balancer: Balancer,
    *,
    options: ClientOptions,
    started: float,
) -> Record:
    loop = asyncio.get_running_loop()
    body: dict[str, object] = {
        "prompt": arrival.prompt,
        "max_tokens": arrival.max_tokens,
        **options.sampling,
    }
    if options.model is not None:
        body["model"] = options.model
    if arrival.temperature is not None:
        body["temperature"] = arrival.temperature
    deadline = loop.time() + options.wait_for_replica
    while True:
        endpoint = await balancer.pick(deadline=deadline)
        if endpoint is None:
            return Record(arrival, end=loop.time() - started, error="no replica")
        endpoint.outstanding += 1
        try:
            call = _stream if options.stream else _ask
            answer = await call(http, f"{endpoint.url}/v1/completions", body)
        except httpx.ConnectError:
            endpoint.ready = False
            continue
        except (httpx.HTTPError, ValueError, KeyError) as failure:
            return Record(
                arrival,
                end=loop.time() - started,
                endpoint=endpoint.url,
                error=type(failure).__name__,
            )
        finally:
            endpoint.outstanding -= 1
        first = None if answer.first_token is None else answer.first_token - started
        return Record(
            arrival,
            end=loop.time() - started,
            tokens=answer.tokens,
            first_token=first,
            endpoint=endpoint.url,
            status=answer.status,
            error=answer.error,
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    tokens: int = 0
    first_token: float | None = None
    error: str | None = None


def _judge(status: int, tokens: int, reason: str | None, first: float | None) -> _Answer:
    # An engine that gives a request up answers 200 all the same.
    error = "aborted" if reason in (None, "abort") else None
    return _Answer(status=status, tokens=tokens, first_token=first, error=error)


async def _ask(http: httpx.AsyncClient, url: str, body: dict[str, object]) -> _Answer:
    answer = await http.post(url, json=body)
    if answer.status_code != _OK:
        return _Answer(status=answer.status_code, error=f"HTTP {answer.status_code}")
    content: dict[str, Any] = answer.json()
    reason = content["choices"][0]["finish_reason"]
    return _judge(answer.status_code, int(content["usage"]["completion_tokens"]), reason, None)


async def _stream(http: httpx.AsyncClient, url: str, body: dict[str, object]) -> _Answer:
    loop = asyncio.get_running_loop()
    asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
    first: float | None = None
    reason: str | None = None
    tokens = 0
    async with http.stream("POST", url, json=asked) as answer:
        if answer.status_code != _OK:
            return _Answer(status=answer.status_code, error=f"HTTP {answer.status_code}")
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event: dict[str, Any] = json.loads(line[len("data: ") :])
            if event["choices"]:
                choice = event["choices"][0]
                if first is None and choice.get("text"):
                    first = loop.time()
                reason = choice.get("finish_reason") or reason
            if event.get("usage"):
                tokens = int(event["usage"]["completion_tokens"])
    return _judge(_OK, tokens, reason, first)
