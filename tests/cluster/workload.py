"""A small web server to run in pods of the tests; standard library only.

It binds the pod's own address, as everything does here, and answers

- ``/``: a JSON object with its arguments and environment,
- ``/metrics``: the counter ``workload_requests_total``,
- ``/health``: 200, or 503 while the file named by ``UNHEALTHY_FILE`` exists.

With ``REFUSES`` it does not start when an argument contains that text, as an engine does with a
setting it does not know. After SIGTERM it serves for ``LINGER`` more seconds and exits with 0.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_requests = 0


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        global _requests  # noqa: PLW0603 - the whole state of this program
        _requests += 1
        status, body = 200, ""
        if self.path == "/":
            body = json.dumps({"arguments": sys.argv[1:], "environment": dict(os.environ)})
        elif self.path == "/metrics":
            body = f"# TYPE workload_requests_total counter\nworkload_requests_total {_requests}\n"
        elif self.path == "/health":
            unhealthy = os.environ.get("UNHEALTHY_FILE")
            status = 503 if unhealthy and Path(unhealthy).exists() else 200
        else:
            status = 404
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Keep the log for what matters."""


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the container's log


def main() -> None:
    refused = os.environ.get("REFUSES")
    if refused and any(refused in argument for argument in sys.argv[1:]):
        sys.exit(f"an argument contains {refused}")
    address = (os.environ["POD_IP"], int(os.environ.get("PORT", "8000")))
    server = ThreadingHTTPServer(address, _Handler)

    def finish() -> None:
        time.sleep(float(os.environ.get("LINGER", "0")))
        server.shutdown()

    def on_term(_number: int, _frame: object) -> None:
        _say("got SIGTERM")
        threading.Thread(target=finish).start()

    signal.signal(signal.SIGTERM, on_term)
    _say(f"serving {address}")
    server.serve_forever()
    _say("done")


if __name__ == "__main__":
    main()
