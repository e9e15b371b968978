"""Heads of HTTP messages: what a proxy passes on, what it keeps to itself, what it refuses."""

import json
from collections.abc import Sequence
from typing import TypeAlias

import h11

from specpilot.fleets.local.framing import Body, ChunkedBody, CountedBody, EndlessBody

BUFFER_LIMIT = 1 << 16
"""Bytes held back for one side that waits for the other."""

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    (
        b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection "
        b"te trailer transfer-encoding upgrade expect"
    ).split()
)


def error_body(status: int, message: str, *, kind: str) -> bytes:
    """Write an error in the form that clients of the engine know."""
    return json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode()


def head(status: int, headers: RawHeaders, *, reason: bytes = b"") -> bytes:
    """Write the head of an answer."""
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, reason)]
    lines += [b"%s: %s\r\n" % pair for pair in headers]
    return b"".join([*lines, b"\r\n"])


def end_to_end(headers: Sequence[tuple[bytes, bytes]], *, framing_kept: bool) -> RawHeaders:
    """Headers that are not about one connection only."""
    named = {
        token.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    dropped = (_HOP_BY_HOP | named) - ({b"transfer-encoding"} if framing_kept else set())
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def asks_to_close(request: h11.Request) -> bool:
    """Whether the client wants no further request on the connection."""
    return any(
        name == b"connection" and b"close" in [t.strip().lower() for t in value.split(b",")]
        for name, value in request.headers
    )


def unsupported(request: h11.Request) -> tuple[int, str] | None:
    """Return status and words for a request that is not passed on."""
    if request.http_version != b"1.1":
        return (505, "only HTTP/1.1 is spoken here")
    if request.method == b"CONNECT" or any(name == b"upgrade" for name, _ in request.headers):
        return (501, "connections cannot be upgraded here; use a replica's own address")
    return None


def body_of(answer: h11.Response, *, is_head: bool) -> Body:
    """Tell how an answer's body is framed (RFC 9112, section 6.3).

    h11 has checked that the headers do not contradict each other.
    """
    if is_head or answer.status_code in (204, 304):
        return CountedBody(0)
    headers = dict(answer.headers)
    if b"transfer-encoding" in headers:
        return ChunkedBody()
    if b"content-length" in headers:
        return CountedBody(int(headers[b"content-length"]))
    return EndlessBody()
