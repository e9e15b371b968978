"""A stand-in for a Prometheus of any size: answers of a small real one, repeated for every pod.

A real server holds one pod of each kind (namespace, speculating or not). What a query selects, and
what it answers, that server says; each pod's part of its answer is then repeated for the other pods
of its kind, names replaced, in the order in which a large server gives them. So a fleet of any size
can be asked at the price of moving bytes.

    python -m bench.signals.recorded --upstream URL --port PORT

The first part of the path is the number of pods: `http://127.0.0.1:PORT/20000/api/v1/query`.
`/account` says what was sent for each moment that was asked about, since the last time.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, groupby
from urllib.parse import parse_qs, urlsplit

import httpx

from bench.queries import UnanswerableError, parts_of
from bench.signals.fleet import Fleet, Pod
from bench.signals.prometheus import renamed

_ELEMENT = re.compile(rb'\{"metric":\{[^}]*\},"values?":\[[^}]*\]\}')
_POD = re.compile(rb'"pod":"([^"]*)"')
_BY_NAME = re.compile(r'\bpod\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)",?')
_GZIP_LEVEL = 1
_GZIP = 16 + zlib.MAX_WBITS


def without_names(query: str) -> tuple[str, re.Pattern[str]]:
    """The query for pods of any name, and the pattern of the names that it selects.

    Raises:
        UnanswerableError: It selects by name in a way that is not understood here.
    """
    matchers = set(_BY_NAME.findall(query))
    if not matchers:
        return query, re.compile("")
    if len(matchers) > 1 or not all(kind == "=~" for kind, _ in matchers):
        raise UnanswerableError(f"it selects pods in several ways: {sorted(matchers)}")
    ((_, pattern),) = matchers
    return _BY_NAME.sub("", query), re.compile(f"(?:{pattern})$")


def scaled(answers: Sequence[tuple[bytes, re.Pattern[str]]], *, pods: int) -> Iterator[bytes]:
    """A small server's answer as it would be with `pods` pods, in pieces.

    Args:
        answers: Of the server with one pod of each kind, one for each part of the query, with the
            pods that this part selects.
        pods: How many there are, whether selected or not.

    Raises:
        UnanswerableError: An answer is not one of pods.
    """
    found = [(list(_ELEMENT.finditer(answer)), answer, names) for answer, names in answers]
    full = [(elements, answer, names) for elements, answer, names in found if elements]
    if not full:
        return iter([answers[0][0]])
    (first, answer, _), *_ = full
    parts = chain.from_iterable(
        _of_all(elements, kinds=_kinds(pods, names)) for elements, _, names in full
    )
    return chain([answer[: first[0].start()]], _joined(parts), [answer[first[-1].end() :]])


def _of_all(
    elements: Iterable[re.Match[bytes]], *, kinds: dict[bytes, tuple[Pod, list[Pod]]]
) -> Iterator[bytes]:
    """The elements of one pod of each kind, repeated for the others."""
    runs = [(name, b",".join(run)) for name, run in groupby((one[0] for one in elements), key=_pod)]
    if strange := next((text for name, text in runs if name not in kinds), None):
        raise UnanswerableError(f"a part of its answer is not of one pod: {strange[:200]!r}")
    return chain.from_iterable(
        _repeated([(*kinds[name], text) for name, text in sweep]) for sweep in _sweeps(runs)
    )


def _sweeps(runs: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Cut an answer where it comes back to a pod that it had before."""
    sweep: dict[bytes, bytes] = {}
    for name, text in runs:
        if name in sweep:
            yield list(sweep.items())
            sweep = {}
        sweep[name] = text
    yield list(sweep.items())


def _repeated(runs: list[tuple[Pod, list[Pod], bytes]]) -> Iterator[bytes]:
    """The runs of one sweep for all pods, kinds taking turns: neighbours have other numbers."""
    most = max((len(members) for _, members, _ in runs), default=0)
    for i in range(most):
        yield b",".join(
            [
                renamed(text, template, members[i])
                for template, members, text in runs
                if i < len(members)
            ]
        )


def _joined(parts: Iterable[bytes]) -> Iterator[bytes]:
    comma = b""
    for part in filter(None, parts):
        yield comma + part
        comma = b","


@lru_cache(maxsize=32)
def _kinds(pods: int, names: re.Pattern[str]) -> dict[bytes, tuple[Pod, list[Pod]]]:
    """The selected pods of each kind by the name of the one that stands for them."""
    return {
        members[0].name.encode(): (members[0], [pod for pod in members if names.match(pod.name)])
        for members in Fleet(pods).by_kind().values()
    }


def _pod(element: bytes) -> bytes:
    found = _POD.search(element)
    return found[1] if found else b""


class Server(ThreadingHTTPServer):
    """Counts what it is asked."""

    daemon_threads = True

    def __init__(self, port: int, *, upstream: str) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.upstream = httpx.Client(base_url=upstream, timeout=60.0, trust_env=False)
        self.lock = threading.Lock()
        self.moments: dict[str, Counter[str]] = {}

    def count(self, moment: str, **more: int) -> None:
        with self.lock:
            self.moments.setdefault(moment, Counter()).update(more)

    def account(self) -> dict[str, Counter[str]]:
        """Queries and bytes by the moment asked about; they begin anew."""
        with self.lock:
            moments, self.moments = self.moments, {}
            return moments


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/account":
            self._send_whole(json.dumps(self.server.account()).encode())
        else:
            self._answer(parts.path, parts.query)

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        parts = urlsplit(self.path)
        self._answer(parts.path, "&".join(filter(None, (parts.query, form))))

    def _answer(self, path: str, parameters: str) -> None:
        size, _, path = path.lstrip("/").partition("/")
        asked = parse_qs(parameters)
        try:
            answers = []
            for part in parts_of(asked["query"][0]):
                query, names = without_names(part)
                answer = self.server.upstream.post(f"/{path}", data=asked | {"query": [query]})
                if answer.is_error:
                    return self._send_whole(answer.content, status=answer.status_code)
                answers.append((answer.content, names))
            pieces = scaled(answers, pods=int(size))
        except UnanswerableError as error:
            words = {"status": "error", "errorType": "execution", "error": str(error)}
            body = json.dumps(words).encode()
            return self._send_whole(body, status=HTTPStatus.UNPROCESSABLE_ENTITY)
        return self._send(pieces, moment=asked.get("time", [""])[0])

    def _send_whole(self, body: bytes, *, status: int = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, pieces: Iterator[bytes], *, moment: str) -> None:
        """In chunks and compressed when that is asked for, as Prometheus does it."""
        squeeze = "gzip" in self.headers.get("Accept-Encoding", "")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        if squeeze:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP) if squeeze else None
        body = wire = 0
        for piece in pieces:
            body += len(piece)
            wire += self._chunk(packer.compress(piece) if packer else piece)
        if packer:
            wire += self._chunk(packer.flush())
        self.wfile.write(b"0\r\n\r\n")
        self.server.count(moment, queries=1, body_bytes=body, wire_bytes=wire)

    def _chunk(self, data: bytes) -> int:
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        return len(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: one line a query helps nobody."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.signals.recorded", description=__doc__)
    parser.add_argument("--upstream", required=True, help="URL of the small server")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    Server(arguments.port, upstream=arguments.upstream).serve_forever()


if __name__ == "__main__":
    main()
