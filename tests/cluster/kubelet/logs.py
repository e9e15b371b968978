"""The part of the kubelet's own server that ``kubectl logs`` needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.cluster.kubelet.options import KubeletOptions

_log = logging.getLogger(__name__)

_POLL = 0.2
_BLOCK = 1 << 16

FindLog = Callable[[str, str, str, bool], Path | None]
"""From namespace, pod, container and "the run before" to the file; None where there is none."""


async def serve(options: KubeletOptions, find: FindLog) -> asyncio.Server:
    """Answer ``/containerLogs/NAMESPACE/POD/CONTAINER`` over TLS, one request a connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.tls_cert_file, options.tls_key_file)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await _answer(reader, writer, find=find)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    return await asyncio.start_server(handle, "127.0.0.1", options.port, ssl=context)


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, find: FindLog
) -> None:
    request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    target = urlsplit(request.split(" ", 2)[1])
    query = {key: values[0] for key, values in parse_qs(target.query).items()}
    parts = target.path.strip("/").split("/")
    path = None
    if len(parts) == 4 and parts[0] == "containerLogs":
        path = find(parts[1], parts[2], parts[3], query.get("previous") == "true")
    if path is None:
        writer.write(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nno such log\n")
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
    await _copy(path, writer, query=query)


async def _copy(path: Path, writer: asyncio.StreamWriter, *, query: dict[str, str]) -> None:
    with path.open("rb") as log:
        if lines := query.get("tailLines"):
            text = log.read().splitlines(keepends=True)
            writer.write(b"".join(text[-int(lines) :] if int(lines) else []))
        while True:
            block = log.read(_BLOCK)
            if block:
                writer.write(block)
                await writer.drain()
            elif query.get("follow") != "true" or writer.is_closing():
                return
            else:
                await asyncio.sleep(_POLL)
