"""One stable port in front of the replicas of a group.

Clients know this port alone. A replica that is to be replaced gets no new requests from here, and
is stopped when its last one is answered: so a switch of setting loses no request.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable

from specpilot.domain.ports import FleetError
from specpilot.fleets.local.proxy import ClientConnection, Connections
from specpilot.fleets.local.routing import Router

_BACKLOG = 1024


class Gateway:
    """The listening port and the thread that serves it."""

    def __init__(self, router: Router, *, name: str, host: str, port: int) -> None:
        self._router = router
        self._name = name
        self._host = host
        self._port = port
        self._connections = Connections()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"gateway-{name}", daemon=True
        )

    @property
    def url(self) -> str:
        """Base URL for clients."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    def start(self) -> None:
        """Listen.

        Raises:
            FleetError: The port cannot be had.
        """
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        except OSError as error:
            self._end_loop()
            raise FleetError(
                f"gateway of local group {self._name!r}: cannot listen on "
                f"{self._host}:{self._port}: {error.strerror}; free the port or set another "
                "gateway_port"
            ) from error

    def stop(self, *, drain: float) -> None:
        """Take no further requests, wait up to `drain` seconds for those in flight, and end."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close(drain), self._loop).result()
            self._end_loop()

    async def _listen(self) -> None:
        make: Callable[[], asyncio.Protocol] = lambda: ClientConnection(  # noqa: E731
            self._router, self._connections
        )
        self._server = await self._loop.create_server(
            make, self._host, self._port, backlog=_BACKLOG
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def _close(self, drain: float) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.close_when_idle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain):
                await self._connections.wait_empty()
        for connection in self._connections:
            connection.abort()
        await asyncio.sleep(0)  # let the transports tell their protocols

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
