"""HTTP servers that behave as a test says, in threads."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Answer:
    """What to send, and how slowly."""

    body: bytes = b""
    status: int = 200
    delay_s: float = 0.0
    trickle_s: float = 0.0  # one byte at a time, this far apart
    content_type: str = "text/plain"
    headers: dict[str, str] = field(default_factory=dict)
    trickle_head: bool = False  # the header, too, comes one byte at a time
    length: int | None = None  # what the header claims; None: the truth; -1: nothing


@dataclass
class Seen:
    """One request."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    form: dict[str, str] = field(default_factory=dict)
    method: str = "GET"
    client: tuple[str, int] = ("", 0)
    certificate: str = ""  # common name of the client's

    @property
    def asked(self) -> dict[str, str]:
        """Parameters, wherever they were."""
        return self.query | self.form


@dataclass
class Server:
    """A server that asks `answer` what to say."""

    answer: Callable[[Seen], Answer]
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    most_at_once: int = 0
    _now: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def enter(self, request: Seen) -> None:
        with self._lock:
            self.seen.append(request)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)

    def leave(self) -> None:
        with self._lock:
            self._now -= 1


@contextmanager
def serving(
    answer: Callable[[Seen], Answer] | Answer, *, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    """Serve on a free port until the block ends."""
    server = Server(answer=answer if callable(answer) else lambda _: answer)

    http = _Listener(server, tls)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # header and body are two writes

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", "0"))
        request = Seen(
            path=parts.path,
            query=_parameters(parts.query),
            headers=dict(self.headers.items()),
            form=_parameters(self.rfile.read(length).decode()),
            method=self.command,
            client=self.client_address,
            certificate=_common_name(self.connection),
        )
        self.server.owner.enter(request)
        try:
            self._send(self.server.owner.answer(request))
        except OSError:
            self.close_connection = True  # the client had enough
        finally:
            self.server.owner.leave()

    def do_POST(self) -> None:
        self.do_GET()

    def _send(self, answer: Answer) -> None:
        time.sleep(answer.delay_s)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        length = len(answer.body) if answer.length is None else answer.length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if length != len(answer.body):
            self.send_header("Connection", "close")  # and tells the base class to close it
        if answer.trickle_head:
            self._trickle(b"".join(self._headers_buffer), answer.trickle_s)
            self._headers_buffer.clear()
        self.end_headers()
        if answer.trickle_s:
            self._trickle(answer.body, answer.trickle_s)
        else:
            self.wfile.write(answer.body)

    def _trickle(self, body: bytes, apart_s: float) -> None:
        for byte in body:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(apart_s)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
        pass


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, owner: Server, tls: ssl.SSLContext | None) -> None:
        self.owner = owner
        self.tls = tls
        super().__init__(("127.0.0.1", 0), _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            super().finish_request(request, client_address)
            return
        with contextlib.suppress(OSError):  # who has no certificate is turned away here
            request.settimeout(10)
            secured = self.tls.wrap_socket(request, server_side=True)
            try:
                super().finish_request(secured, client_address)
            finally:
                secured.close()


def _parameters(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


def _common_name(connection: Any) -> str:
    if not isinstance(connection, ssl.SSLSocket):
        return ""
    certificate: Any = connection.getpeercert() or {}
    pairs = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((value for name, value in pairs if name == "commonName"), "")
