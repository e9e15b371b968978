"""An inference server's outside: health, version, streamed answers, and ways to misbehave.

The speculation config decides how it behaves, as a bad setting would: `crash` ends it at start,
`slow` makes it listen late, `deaf` makes it never ready. Files in the directory CONTROL_DIR named
`hang-PORT` stop it from answering, without ending it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONTROL = Path(os.environ.get("CONTROL_DIR", "/nonexistent"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    config = ""
    port = 0

    def do_GET(self):
        while (CONTROL / f"hang-{self.port}").exists():
            time.sleep(0.05)
        match self.path:
            case "/health":
                self.answer(503 if self.config == "deaf" else 200, b"")
            case "/version":
                self.answer(200, b'{"version": "9.8.7"}')
            case "/env":
                self.answer(200, json.dumps(dict(os.environ)).encode())
            case _:
                self.answer(404, b"no such page")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked = json.loads(body or b"{}")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for n in range(asked.get("chunks", 3)):
                self.chunk(f"data: {n} {self.config or 'off'}\n\n".encode())
                time.sleep(asked.get("delay", 0.0))
            self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")
        except OSError:
            with (CONTROL / "disconnected").open("a") as file:
                file.write(f"{self.port}\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--speculative-config", default="")
    parser.add_argument("--family", action="store_true")
    given = parser.parse_args()
    sys.stderr.write(f"serving on {given.port} with {given.speculative_config or 'off'}\n")
    if given.family:
        # Children deaf to SIGTERM: a plain one, one whose environment tells nothing, and one that
        # leaves session and parent.
        deaf = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", deaf])
        subprocess.Popen([sys.executable, "-c", deaf], env={})
        leave = (
            "import subprocess, sys; "
            f"subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True)"
        )
        subprocess.run([sys.executable, "-c", leave], check=True)
    if given.speculative_config == "crash":
        sys.exit("ValueError: this setting cannot work")
    if given.speculative_config == "slow":
        time.sleep(1.0)
    Handler.config = given.speculative_config
    Handler.port = given.port
    Server((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
