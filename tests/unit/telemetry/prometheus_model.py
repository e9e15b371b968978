"""A Prometheus in memory: what it scraped of pods, and the answers to the product's own queries."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.queries import read
from specpilot.telemetry.connection import FaultKind, PrometheusError
from specpilot.telemetry.exposition import PROCESS_START
from specpilot.telemetry.promql import State

LOOKBACK_S = 300.0
BOUNDS = ("0.5", "1.0", "+Inf")
HISTOGRAMS = ("e2e_request_latency_seconds", "time_to_first_token_seconds")


@dataclass(frozen=True, slots=True)
class Scraped:
    """What one scrape of a pod saw; requests that took up to 0.5 s, 1 s, and longer."""

    at: float
    started: float | None
    requests: tuple[float, float, float]
    running: float


@dataclass
class ModelServer:
    """Stands in for the connection to a server.

    Attributes:
        scrapes: Of each pod, by name, oldest first; None where the pod was gone from then on.
        down: Whether it answers with an error.
        empty: Whether it answers that there is nothing.
        asked: Each query that was put, with its time.
    """

    scrapes: dict[str, list[tuple[float, Scraped | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    down: bool = False
    empty: bool = False
    asked: list[tuple[str, float]] = field(default_factory=list)

    def query(self, text: str, *, at: float, timeout_s: float) -> bytes:
        """The answer to an instant query, as the connection gives it."""
        del timeout_s
        self.asked.append((text, at))
        if self.down:
            raise PrometheusError("the model is down", kind=FaultKind.UNREACHABLE)
        result = [
            {"metric": {"namespace": "serving", "pod": name, **labels}, "value": [at, str(value)]}
            for part in read(text)
            for name in sorted(self.scrapes)
            if part.chosen.fullmatch(name)
            if (seen := self.at(name, at)) is not None
            for labels, value in _of(part.text, seen)
        ]
        if self.empty:
            result = []
        data = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return json.dumps(data).encode()

    def at(self, name: str, at: float) -> Scraped | None:
        """What stands of a pod at a moment."""
        newest = next((s for when, s in reversed(self.scrapes[name]) if when <= at), None)
        return newest if newest is not None and at - newest.at < LOOKBACK_S else None

    def close(self) -> None:
        """As the connection does."""


def _of(text: str, seen: Scraped) -> Iterator[tuple[dict[str, str], float]]:
    if State.LIVE in text:
        yield {"job": "vllm", "series": State.LIVE}, seen.at
        return
    if "avg_over_time" in text:
        yield {"series": "num_requests_running"}, seen.running
    if PROCESS_START[0] not in text and "_bucket" not in text:
        return
    if "_bucket" in text:
        for name in HISTOGRAMS:
            if name in text:
                total = 0.0
                for bound, more in zip(BOUNDS, seen.requests, strict=True):
                    total += more
                    yield {"__name__": f"vllm:{name}_bucket", "le": bound}, total
        return
    count = sum(seen.requests)
    yield {"__name__": "vllm:generation_tokens_total"}, 10 * count
    yield {"__name__": "vllm:request_success_total"}, count
    for name in HISTOGRAMS:
        if name in text:
            yield {"__name__": f"vllm:{name}_sum"}, count / 2
            yield {"__name__": f"vllm:{name}_count"}, count
    if seen.started is not None:
        yield {"__name__": "process_start_time_seconds"}, seen.started
