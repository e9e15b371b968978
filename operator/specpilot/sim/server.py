"""A replica behind a socket, from the bind to the exit code, as a container would see it.

The port is bound at once and refuses connections until the engine is ready, as vLLM's does. What
SIGTERM does depends on ``--shutdown-timeout``, as seen on 0.32.0 and assumed of the others. Without
it the port refuses at once and the engine is gone, but connections in flight are neither answered
nor closed, and the process stays until the last of their clients gives up. With it, ``/health``
stays 200 and what is in flight is finished, while new requests are answered 500.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import anyio.lowlevel
import uvicorn

from specpilot.sim.api import build_app
from specpilot.sim.faults import Hang
from specpilot.sim.launch import LaunchConfig
from specpilot.sim.replica import Replica

KILLED: Final = 137
"""Exit code of a process that SIGKILL ended, as a kubelet reports it."""

_KEEP_ALIVE_SECONDS: Final = 5
_LAST_BYTES_SECONDS: Final = 1.0


class _Embedded(uvicorn.Server):
    """A uvicorn server that leaves the signals to its owner."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets=sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def refuse_connections(self) -> None:
        """Close the port; connections stay."""
        for server in self.servers:
            server.close()

    def drop_connections(self) -> None:
        """Cut every connection without an answer."""
        for connection in list(self.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


class SimServer:
    """One simulated engine process: start it, terminate it, kill it, wait for its exit code."""

    def __init__(self, config: LaunchConfig) -> None:
        self.config: Final = config
        self.replica: Final = Replica(config)
        self.exit_code: int | None = None
        self._exited: Final = asyncio.Event()
        self._socket: socket.socket | None = None
        self._port: int | None = None
        self._http: _Embedded | None = None
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._serving: asyncio.Task[None] | None = None
        self._terminating = False

    @property
    def port(self) -> int:
        """The port bound; of use when port 0 was asked for."""
        if self._port is None:
            raise RuntimeError("the server is not bound")
        return self._port

    @property
    def url(self) -> str:
        """Base URL of the server."""
        host = self.config.host
        return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{self.port}"  # noqa: S104 -- compared, not bound

    def bind(self) -> None:
        """Take the port.

        Raises:
            OSError: it is in use, or the address is not this machine's.
        """
        family, kind, protocol, _, address = socket.getaddrinfo(
            self.config.host, self.config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
        self._socket = bound
        self._port = int(bound.getsockname()[1])

    async def start(self) -> None:
        """Come up: bind, wait as long as a start takes, answer.

        Returns after the first request can be answered, or when the start has failed; then
        :attr:`exit_code` is set.
        """
        if self._socket is None:
            self.bind()
        options = self.config.sim
        crash = options.crash_at_start
        if options.startup_seconds:
            share = 0.5 if crash is not None else 1.0
            await asyncio.sleep(options.startup_seconds * share)
        if self._exited.is_set():
            return  # killed meanwhile
        if crash is not None:
            await self._exit(crash)
            return
        application = build_app(self.replica, on_crash=self.kill)
        self._http = _Embedded(
            uvicorn.Config(
                application,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=None,
            )
        )
        # Else the first streamed answer would stall the engine for the import of anyio's backend.
        await anyio.lowlevel.checkpoint()
        self.replica.start()
        self._serving = asyncio.create_task(self._http.serve(sockets=[self._bound]))
        await self._http.listening.wait()
        if options.crash_after is not None:
            self._later(options.crash_after, self._crash)
        if options.hang_after is not None:
            self._later(options.hang_after, self._hang)

    async def wait(self) -> int:
        """Wait for the process to end and return its exit code."""
        await self._exited.wait()
        return self.exit_code or 0

    async def terminate(self) -> None:
        """Do what SIGTERM does; returns when the process has ended."""
        if self._terminating or self._http is None:
            await self._exit(0)
            return
        self._terminating = True
        options = self.config.sim
        if options.abort_on_term:
            await self._exit(0)
        elif options.hang_on_term is not None:
            self._http.refuse_connections()
            self.replica.change_faults({"hang": Hang.HTTP})
            await self._unless_killed(options.hang_on_term)
            await self._exit(0)
        elif self.config.shutdown_timeout > 0:
            await self._drain(within=self.config.shutdown_timeout)
            await self._exit(0, gracefully=True)
        else:
            await self._abandon(self._http)
            await self._exit(0)

    async def _drain(self, *, within: float) -> None:
        """Let what is in flight finish."""
        self.replica.draining = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while self.replica.outstanding and loop.time() < deadline:
            await self._unless_killed(0.02)

    async def _abandon(self, http: _Embedded) -> None:
        """Stop the engine under the HTTP server, which waits for its clients to go."""
        self.replica.change_faults({"hang": Hang.ENGINE})
        http.refuse_connections()
        http.should_exit = True
        killed = asyncio.ensure_future(self._exited.wait())
        serving = {self._serving} if self._serving is not None else set()
        await asyncio.wait({killed, *serving}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()

    def kill(self, code: int = KILLED) -> None:
        """End at once, as SIGKILL or a crash does."""
        if not self._exited.is_set():
            self._spawn(self._exit(code))

    @property
    def _bound(self) -> socket.socket:
        if self._socket is None:
            raise RuntimeError("the server is not bound")
        return self._socket

    async def _unless_killed(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), timeout=seconds)

    async def _exit(self, code: int, *, gracefully: bool = False) -> None:
        """Close everything and publish the exit code, once."""
        if self.exit_code is None:
            self.exit_code = code
            http, self._http = self._http, None
            if http is not None and self._serving is not None:
                await self._close(http, self._serving, gracefully=gracefully)
            await self.replica.stop()
            self._bound.close()
            self._exited.set()
            for task in self._tasks - {asyncio.current_task()}:
                task.cancel()
        await self._exited.wait()

    async def _close(
        self, http: _Embedded, serving: asyncio.Task[None], *, gracefully: bool
    ) -> None:
        http.refuse_connections()
        http.should_exit = True
        if gracefully:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(serving), timeout=_LAST_BYTES_SECONDS)
        http.force_exit = True
        http.drop_connections()
        # A handler may be hanging on purpose; nobody is left to read its answer.
        for task in list(http.server_state.tasks):
            task.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    def _crash(self) -> None:
        self.kill(1)

    def _hang(self) -> None:
        self.replica.change_faults({"hang": Hang.ENGINE})

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            action()

        self._spawn(wait())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
