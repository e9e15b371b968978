"""What a termination does to requests in flight, with ``--shutdown-timeout`` and without.

This decides whether a rolling update loses answers, so the product's preflight asks for the flag.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from tests.engine.metrics import scrape
from tests.engine.servers import MODEL_NAME, Server, Subject, deadline, started

pytestmark = pytest.mark.timeout(1200)

TOKENS = 1900
"""Long enough to be in flight for seconds on either subject."""

CROWD = 8
"""Requests side by side, so that a quick machine too is still at work when a termination shows.

On the real engine that took 3 s; one request alone took 11 s on one machine, less on another.
"""


@pytest.fixture
def client_threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CROWD) as pool:
        yield pool


def ask(server: Server, *, tokens: int = TOKENS, timeout: float = 120) -> httpx.Response:
    body = {
        "model": MODEL_NAME,
        "prompt": "ba be bi bo " * 8,
        "max_tokens": tokens,
        "temperature": 1,
        "ignore_eos": True,
    }
    url = f"http://127.0.0.1:{server.port}/v1/completions"
    return httpx.post(url, json=body, timeout=timeout)


def in_flight(
    server: Server, pool: ThreadPoolExecutor, *, requests: int = 1, timeout: float
) -> list[Future[httpx.Response]]:
    """Return requests that the engine is working on, all of them at once."""
    sent = [pool.submit(ask, server, timeout=timeout) for _ in range(requests)]
    for _ in deadline(30, server.describe):
        if running(server) == requests:
            return sent
    raise AssertionError  # the deadline raises


def running(server: Server) -> float:
    return scrape(server)["vllm:num_requests_running"].total()


@pytest.fixture(scope="module")
def pair(
    subject: Subject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """Two servers, the first of which lets requests finish."""
    folder = tmp_path_factory.mktemp("drain")
    with started(subject, ["--shutdown-timeout=120"], [], folder=folder) as (patient, abrupt):
        yield patient.ready(), abrupt.ready()


def test_a_timeout_lets_requests_finish(
    pair: tuple[Server, Server], client_threads: ThreadPoolExecutor
) -> None:
    """What is in flight is answered, what comes late is refused, then the process ends."""
    server, _ = pair
    requests = in_flight(server, client_threads, requests=CROWD, timeout=300)
    server.terminate()

    for _ in deadline(30, server.describe):
        late = ask(server, tokens=1)
        if late.status_code == 500:
            break
    assert "cannot schedule new futures after shutdown" in late.json()["error"]["message"]
    assert server.answers(), "still healthy: a draining replica reports, and must be left out"
    assert not any(request.done() for request in requests), "too quick to see it drain"
    assert running(server) == CROWD

    for request in requests:
        assert request.result(300).json()["usage"]["completion_tokens"] == TOKENS
    server.wait_exit(within=60)


def test_without_a_timeout_requests_are_lost(
    pair: tuple[Server, Server], client_threads: ThreadPoolExecutor
) -> None:
    """The port closes at once, no answer is completed, and the process waits for its clients."""
    _, server = pair
    (request,) = in_flight(server, client_threads, timeout=10)
    server.terminate()

    for _ in deadline(30, server.describe):
        if not server.answers():
            break
    with pytest.raises(httpx.ConnectError):
        ask(server, tokens=1)

    assert fate(request) in {"hangs", "fails", "is cut short"}
    server.wait_exit(within=30)


def fate(request: Future[httpx.Response]) -> str:
    """Tell what a client got.

    It nearly always hangs: the engine is killed before it can say that it aborts the request. The
    simulator always does that, since it is the worst that can happen.
    """
    try:
        answer = request.result(60)
    except httpx.ReadTimeout:
        return "hangs"
    if answer.status_code != 200:
        return "fails"
    (choice,) = answer.json()["choices"]
    return "is cut short" if choice["finish_reason"] == "abort" else "is answered"
