"""One request on its way to a replica, and the answer on its way back.

Each request has a connection of its own to the replica. A kept one could be closed by the replica
just as the request goes out, and then nobody knows whether it was taken; a refused connection is
certain, and tried elsewhere.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import h11

from specpilot.fleets.local.framing import Body, ChunkedBody, EndlessBody, FramingError
from specpilot.fleets.local.messages import (
    BUFFER_LIMIT,
    RawHeaders,
    asks_to_close,
    body_of,
    end_to_end,
    head,
)
from specpilot.fleets.local.routing import Lease, Router

SERVED_BY = b"X-Specpilot-Replica"
"""Header of each answer that tells the replica it comes from."""

_CONNECT_TIMEOUT = 5.0
_RETRY_AFTER = b"5"


class Client(Protocol):
    """The client's side of an exchange."""

    slow: bool
    """The client has yet to read what was written; do not write more for now."""

    def write(self, data: bytes) -> None:
        """Send to the client."""
        ...

    def pause_request(self, why: str, *, paused: bool) -> None:
        """Stop or go on reading what the client sends."""
        ...

    def refuse(self, status: int, message: str, *, kind: str, headers: RawHeaders) -> None:
        """Answer with an error of our own."""
        ...

    def exchange_ended(self, *, keep: bool) -> None:
        """The answer is out; go on to the next request, or close."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class Exchange(asyncio.Protocol):
    """One request and its answer; the protocol of the connection to the replica."""

    def __init__(self, client: Client, router: Router, request: h11.Request) -> None:
        self._client = client
        self._router = router
        self._lease: Lease | None = None
        self._transport: asyncio.Transport | None = None
        self._keep = not asks_to_close(request)
        self._http = h11.Connection(h11.CLIENT)
        headers = end_to_end(request.headers.raw_items(), framing_kept=True)
        # h11 frames the request's body anew: it is small, and comes in one piece.
        self._pending = bytearray(
            self._http.send(
                h11.Request(
                    method=request.method,
                    target=request.target,
                    headers=[*headers, (b"Connection", b"close")],
                )
            )
            or b""
        )
        self._is_head = request.method == b"HEAD"
        self._body: Body | None = None
        self._ended = False
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    # From the client.

    def send(self, data: bytes) -> None:
        """A piece of the request's body."""
        self._forward(self._http.send(h11.Data(data=data)))

    def send_end(self) -> None:
        """The request is complete."""
        self._forward(self._http.send(h11.EndOfMessage()))

    def cancel(self) -> None:
        """The client has gone."""
        self._ended = True
        self._connecting.cancel()
        self._close()

    def pause_answer(self, *, paused: bool) -> None:
        """Stop or go on reading the answer."""
        if self._transport is not None and not self._transport.is_closing():
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # From asyncio: the replica.

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._ended:
            return
        try:
            if self._body is None:
                data = self._read_head(data)
            if self._body is not None:
                self._pass_on(self._body, data)
        except (h11.RemoteProtocolError, FramingError) as error:
            self._fail(f"the replica's answer is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        if self._ended:
            return
        if isinstance(self._body, EndlessBody) and exc is None:
            self._finish(keep=False)
        else:
            self._fail("the replica closed the connection before its answer was complete")

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._client.pause_request("upstream", paused=True)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._client.pause_request("upstream", paused=False)

    # Own steps.

    async def _connect(self) -> None:
        """Find a replica that takes the connection. Nothing has been sent before that."""
        loop = asyncio.get_running_loop()
        refused: list[str] = []
        while True:
            self._lease = self._router.acquire(avoid=refused)
            if self._lease is None:
                self._refuse_unavailable(refused)
                return
            host, port = self._lease.address
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT):
                    transport, _ = await loop.create_connection(lambda: self, host, port)
            except (OSError, TimeoutError):
                refused.append(self._lease.key)
                self._lease.release()
                continue
            self._transport = transport
            transport.write(bytes(self._pending))
            self._pending.clear()
            if self._client.slow:
                transport.pause_reading()
            self._client.pause_request("connecting", paused=False)
            return

    def _forward(self, data: bytes | None) -> None:
        if not data or self._ended:
            return
        if self._transport is not None:
            self._transport.write(data)
            return
        self._pending += data
        if len(self._pending) > BUFFER_LIMIT:
            self._client.pause_request("connecting", paused=True)

    def _read_head(self, data: bytes) -> bytes:
        """Read the head, pass it on when complete, and return what follows it."""
        self._http.receive_data(data)
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.InformationalResponse):
                continue
            if not isinstance(event, h11.Response):
                return b""
            self._body = body_of(event, is_head=self._is_head)
            headers = end_to_end(
                event.headers.raw_items(), framing_kept=not isinstance(self._body, ChunkedBody)
            )
            if isinstance(self._body, ChunkedBody):
                headers.append((b"Transfer-Encoding", b"chunked"))
            if isinstance(self._body, EndlessBody):
                self._keep = False
            if not self._keep:
                headers.append((b"Connection", b"close"))
            if self._lease is not None:
                headers.append((SERVED_BY, self._lease.key.encode()))
            rest, _ = self._http.trailing_data
            taken = self._body.feed(rest)
            self._client.write(
                head(event.status_code, headers, reason=bytes(event.reason)) + rest[:taken]
            )
            if self._body.done:
                self._finish(keep=self._keep)
            return b""

    def _pass_on(self, body: Body, data: bytes) -> None:
        if self._ended or not data:
            return
        taken = body.feed(data)
        self._client.write(data if taken == len(data) else data[:taken])
        if body.done:
            self._finish(keep=self._keep)

    def _finish(self, *, keep: bool) -> None:
        self._ended = True
        self._close()
        self._client.exchange_ended(keep=keep)

    def _fail(self, message: str) -> None:
        """The request was taken and not answered: it is not for us to send it once more."""
        self._ended = True
        answering = self._body is not None
        self._close()
        if answering:
            self._client.abort()  # an answer cut short must not look complete
            return
        self._client.refuse(502, message, kind="bad_gateway", headers=[(b"Connection", b"close")])
        self._client.exchange_ended(keep=False)

    def _refuse_unavailable(self, refused: Sequence[str]) -> None:
        self._ended = True
        detail = f" ({', '.join(refused)} refused the connection)" if refused else ""
        self._client.refuse(
            503,
            f"no replica of this group is ready{detail}; try again shortly",
            kind="service_unavailable",
            headers=[(b"Retry-After", _RETRY_AFTER), (b"Connection", b"close")],
        )
        self._client.exchange_ended(keep=False)

    def _close(self) -> None:
        if self._lease is not None:
            self._lease.release()
        if self._transport is not None:
            self._transport.abort()
