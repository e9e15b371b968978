"""A client's connection: one request after the other, each handed to an exchange.

Written on asyncio protocols, because all traffic of the group runs through here: h11 reads and
writes the heads, bodies of answers pass as they come (`framing`). An idle connection is never
closed from this side: the client's next request could cross the closing, and be lost.
"""

import asyncio
from collections.abc import Iterator

import h11

from specpilot.fleets.local.exchange import Exchange
from specpilot.fleets.local.messages import (
    BUFFER_LIMIT,
    RawHeaders,
    error_body,
    head,
    unsupported,
)
from specpilot.fleets.local.routing import Router

_LINGER = 2.0


class Connections:
    """The client connections that are open."""

    def __init__(self) -> None:
        self._open: set[ClientConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __iter__(self) -> Iterator["ClientConnection"]:
        return iter(tuple(self._open))

    def add(self, connection: "ClientConnection") -> None:
        """A client has connected."""
        self._open.add(connection)
        self._empty.clear()

    def discard(self, connection: "ClientConnection") -> None:
        """A client has gone."""
        self._open.discard(connection)
        if not self._open:
            self._empty.set()

    async def wait_empty(self) -> None:
        """Wait until none is open."""
        await self._empty.wait()


class ClientConnection(asyncio.Protocol):
    """A client's connection: requests are read one at a time, in order."""

    def __init__(self, router: Router, connections: "Connections") -> None:
        self._router = router
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._parser = h11.Connection(h11.SERVER)
        self._exchange: Exchange | None = None
        self._read_paused: set[str] = set()
        self._closing = False
        self._deaf = False
        self.slow = False

    # From asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        """See `asyncio.Protocol`. Nobody waits for the answer: the replica need not work on it."""
        self._connections.discard(self)
        self._transport = None
        if self._exchange is not None:
            self._exchange.cancel()
            self._exchange = None

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if not self._deaf:
            self._parser.receive_data(data)
            self._read()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the client reads slower than the replica writes."""
        self.slow = True
        if self._exchange is not None:
            self._exchange.pause_answer(paused=True)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self.slow = False
        if self._exchange is not None:
            self._exchange.pause_answer(paused=False)

    # From the gateway.

    def close_when_idle(self) -> None:
        """Take no further request."""
        self._closing = True
        if self._exchange is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # From the exchange.

    def write(self, data: bytes) -> None:
        """Send to the client."""
        if self._transport is not None:
            self._transport.write(data)

    def pause_request(self, why: str, *, paused: bool) -> None:
        """Stop or go on reading what the client sends."""
        if self._transport is None:
            return
        if paused:
            if not self._read_paused:
                self._transport.pause_reading()
            self._read_paused.add(why)
        elif why in self._read_paused:
            self._read_paused.remove(why)
            if not self._read_paused:
                self._transport.resume_reading()

    def refuse(self, status: int, message: str, *, kind: str, headers: RawHeaders) -> None:
        """Answer with an error of our own, in the form the engine's clients know."""
        body = error_body(status, message, kind=kind)
        self.write(
            head(
                status,
                [
                    (b"Content-Type", b"application/json"),
                    (b"Content-Length", str(len(body)).encode()),
                    *headers,
                ],
            )
            + body
        )

    def exchange_ended(self, *, keep: bool) -> None:
        """The answer is out; go on to the next request, or close."""
        self._exchange = None
        for why in tuple(self._read_paused):
            self.pause_request(why, paused=False)
        if self._transport is None:
            return
        self._closing = self._closing or not keep
        if self._parser.their_state is not h11.SEND_BODY:
            self._next()
        elif self._closing:
            self._hang_up()

    def _next(self) -> None:
        """Request and answer are both complete."""
        assert self._transport is not None
        if self._closing:
            self._transport.close()
            return
        rest, _ = self._parser.trailing_data
        self._parser = h11.Connection(h11.SERVER)
        if rest:
            self._parser.receive_data(rest)
            # Not from within: a client may have sent thousands at once.
            asyncio.get_running_loop().call_soon(self._read)

    def _hang_up(self) -> None:
        """Close, but hear the client out for a while.

        Closing on data not read resets the connection, and our answer may be lost with it.
        """
        if self._transport is not None:
            self._deaf = True
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER, self.abort)

    def _read(self) -> None:
        if self._transport is None:
            return
        try:
            self._read_events()
        except h11.RemoteProtocolError as error:
            if self._exchange is not None:
                self.abort()
                return
            self.refuse(
                error.error_status_hint,
                f"not a request: {error}",
                kind="invalid_request_error",
                headers=[(b"Connection", b"close")],
            )
            self._hang_up()

    def _read_events(self) -> None:
        while True:
            event = self._parser.next_event()
            match event:
                case h11.Request():
                    self._begin(event)
                case h11.Data():
                    if self._exchange is not None:
                        self._exchange.send(bytes(event.data))
                case h11.EndOfMessage():
                    if self._exchange is not None:
                        self._exchange.send_end()
                    else:  # answered before it was complete
                        self._next()
                        return
                case _:  # NEED_DATA, PAUSED
                    rest, _ = self._parser.trailing_data
                    if self._exchange is not None and len(rest) > BUFFER_LIMIT:
                        self.pause_request("pipelined", paused=True)
                    return
            if self._transport is None or self._deaf:
                return

    def _begin(self, request: h11.Request) -> None:
        if problem := unsupported(request):
            status, message = problem
            self.refuse(
                status,
                message,
                kind="invalid_request_error",
                headers=[(b"Connection", b"close")],
            )
            self._hang_up()
            return
        if self._parser.they_are_waiting_for_100_continue:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._exchange = Exchange(self, self._router, request)
