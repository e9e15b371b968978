"""The demo's receiver of alerts: a real HTTP server that checks signatures and drops duplicates."""

import base64
import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class Receiver:
    """Listens on a free loopback port.

    Args:
        secret: `whsec_...`, shared with the sender.
    """

    def __init__(self, *, secret: str) -> None:
        self._key = base64.b64decode(secret.removeprefix("whsec_"))
        self._lock = threading.Lock()
        self._seen: dict[str, dict[str, Any]] = {}
        self.refused = 0
        """Requests without a valid signature."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200 if receiver.take(dict(self.headers), body) else 401)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing: the demo draws the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where to send."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/alerts"

    def take(self, headers: dict[str, str], body: bytes) -> bool:
        """Take an alert when its signature holds."""
        sent = {name.lower(): value for name, value in headers.items()}
        signed = f"{sent.get('webhook-id')}.{sent.get('webhook-timestamp')}.".encode() + body
        want = base64.b64encode(hmac.new(self._key, signed, hashlib.sha256).digest()).decode()
        given = [part.removeprefix("v1,") for part in sent.get("webhook-signature", "").split()]
        valid = any(hmac.compare_digest(want, g) for g in given)
        with self._lock:
            if valid:
                self._seen[sent["webhook-id"]] = json.loads(body)
            else:
                self.refused += 1
        return valid

    def alerts(self) -> list[dict[str, Any]]:
        """Alerts received, in order, each once."""
        with self._lock:
            return list(self._seen.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
