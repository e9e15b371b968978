"""Serves a recorded page on every address of this machine, at next to no cost.

python -m bench.signals.page_server --port PORT
"""

from __future__ import annotations

import argparse
import asyncio

from tests import recordings

PAGE = "0.32.0-ngram-repetitive-c16-after.prom"


class _Pages(asyncio.Protocol):
    """Answers any request with the page, and closes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if b"\r\n\r\n" in self._seen:
            self._transport.write(self._answer)
            self._transport.close()


async def serve(port: int) -> None:
    page = recordings.read(PAGE)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    answer = f"{head}Content-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode() + page
    loop = asyncio.get_running_loop()
    # All of 127.0.0.0/8 leads here, so that every replica can have an address of its own.
    server = await loop.create_server(lambda: _Pages(answer), "0.0.0.0", port, backlog=1024)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.signals.page_server")
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
