"""HTTP servers that behave as a test says, in threads."""

from __future__ import annotations

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


@dataclass
class Seen:
    """One request."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


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
def serving(answer: Callable[[Seen], Answer] | Answer) -> Iterator[Server]:
    """Serve on a free port until the block ends."""
    server = Server(answer=answer if callable(answer) else lambda _: answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            request = Seen(path=parts.path, query=query, headers=dict(self.headers.items()))
            server.enter(request)
            try:
                self._send(server.answer(request))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client had enough
            finally:
                server.leave()

        def _send(self, answer: Answer) -> None:
            time.sleep(answer.delay_s)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if not answer.trickle_s:
                self.wfile.write(answer.body)
                return
            for byte in answer.body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(answer.trickle_s)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
