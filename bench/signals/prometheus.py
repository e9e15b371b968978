"""A real Prometheus that holds a fleet's series, written into it and not scraped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.signals import remote_write
from bench.signals.fleet import STEP_S, Pod
from bench.signals.pages import Series, series
from tests.cluster import build
from tests.cluster.ports import free_port
from tests.cluster.processes import Process

_SAMPLES_A_REQUEST = 40_000
_SAMPLE = re.compile(rb"^(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the server says of itself, since it started.

    Attributes:
        queries: Instant queries answered.
        cpu_s: CPU time of the server.
        rss_mb: Memory now.
    """

    queries: int
    cpu_s: float
    rss_mb: float


class Prometheus:
    """One server; `origin` is the time of its step 0, in seconds since the epoch."""

    def __init__(self, *, url: str, origin: float) -> None:
        self.url = url
        self.origin = origin
        self._http = httpx.Client(base_url=url, timeout=120.0, trust_env=False)

    def write(
        self,
        pods: Iterable[Pod],
        *,
        steps: Sequence[int],
        keep: Callable[[Series], bool] = lambda _: True,
    ) -> int:
        """Write these pods' series at these steps; returns how many series there are.

        Raises:
            httpx.HTTPStatusError: The server refused a request.
        """
        templates: dict[tuple[str, bool], tuple[Pod, bytes]] = {}
        kept = {kind: tuple(filter(keep, series(kind))) for kind in (False, True)}

        def encoded(pod: Pod) -> bytes:
            kind = (pod.namespace, pod.speculates)
            if kind not in templates:
                templates[kind] = (pod, self._encode(pod, kept[pod.speculates], steps))
            template, body = templates[kind]
            return renamed(body, template, pod)

        def send(some: Sequence[Pod]) -> int:
            body = remote_write.request(b"".join(map(encoded, some)))
            answer = self._http.post("/api/v1/write", content=body, headers=remote_write.HEADERS)
            if answer.is_error:
                raise RuntimeError(f"Prometheus refused the series: {answer.text[:300]}")
            return sum(len(kept[pod.speculates]) for pod in some)

        each = list(pods)
        size = max(1, _SAMPLES_A_REQUEST // len(steps) // len(kept[True]))
        parts = [each[i : i + size] for i in range(0, len(each), size)]
        with ThreadPoolExecutor(max_workers=2) as pool:
            return sum(pool.map(send, parts))

    def _encode(self, pod: Pod, page: Iterable[Series], steps: Sequence[int]) -> bytes:
        at = {step: round((self.origin + step * STEP_S) * 1000) for step in steps}
        scrape = pod.scrape_labels
        return b"".join(
            remote_write.time_series(
                {"__name__": each.name, **dict(each.labels), **scrape},
                [(at[step], each.value(pod.namespace, step)) for step in steps],
            )
            for each in page
        )

    def account(self) -> Account:
        """Read the server's own metrics."""
        page = self._http.get("/metrics").raise_for_status().content
        queries = cpu = rss = 0.0
        for found in _SAMPLE.finditer(page):
            labels = found["labels"] or b""
            if found["name"] == b"prometheus_http_requests_total":
                queries += float(found["value"]) if b'handler="/api/v1/query"' in labels else 0.0
            elif found["name"] == b"process_cpu_seconds_total":
                cpu = float(found["value"])
            elif found["name"] == b"process_resident_memory_bytes":
                rss = float(found["value"]) / 1e6
        return Account(queries=int(queries), cpu_s=cpu, rss_mb=rss)


def renamed(text: bytes, one: Pod, other: Pod) -> bytes:
    """A text made for one pod, as it is for another of the same kind."""
    return text.replace(one.name.encode(), other.name.encode()).replace(
        one.instance.encode(), other.instance.encode()
    )


@contextmanager
def running(directory: Path, *, origin: float) -> Iterator[Prometheus]:
    """A server with an empty store, until the block ends."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "prometheus.yaml").write_text("global: {}\n")
    port = free_port()
    process = Process(
        name="prometheus",
        command=[
            build.tools(quiet=True)["prometheus"],
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        ],
        log=directory / "prometheus.log",
    )
    server = Prometheus(url=f"http://127.0.0.1:{port}", origin=origin)
    process.start()
    try:
        process.wait_ready(lambda: _ready(server.url), deadline=60)
        yield server
    finally:
        process.stop(grace=20)


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=2, trust_env=False).is_success
    except httpx.HTTPError:
        return False
