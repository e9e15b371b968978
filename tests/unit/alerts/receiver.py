"""A real receiver of webhooks, which checks signatures by an implementation of its own."""

import base64
import hmac
import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    def signed_with(self, key: bytes) -> bool:
        text = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode()
        expected = base64.b64encode(hmac.digest(key, text + self.body, "sha256")).decode()
        return self.headers["webhook-signature"] == f"v1,{expected}"


@dataclass
class Answer:
    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None


@dataclass
class Receiver:
    url: str = ""
    host: str = ""
    answers: deque[Answer] = field(default_factory=deque)
    received: list[Received] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [r.headers["webhook-id"] for r in self.received]


@contextmanager
def running(host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a receiver; it answers with `answers` in turn, then 200."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {k.lower(): v for k, v in self.headers.items()}
            receiver.received.append(Received(self.path, headers, body))
            answer = receiver.answers.popleft() if receiver.answers else Answer()
            answer.before()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that has gone is what some tests are about."""

    server = Server((host, 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.host = f"{host}:{server.server_port}"
    receiver.url = f"http://{receiver.host}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
