"""A Prometheus in a thread, and a source whose rounds a test takes one by one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta

from bench.queries import read
from specpilot.domain.ports import Ask
from specpilot.domain.readings import Reading
from specpilot.domain.targets import Replica
from specpilot.telemetry import PrometheusServer, PrometheusTelemetry
from specpilot.telemetry.promql import State
from tests.integration.telemetry.servers import Answer, Seen, Server
from tests.unit.telemetry.builders import FrozenClock, ask, replica

SETTLED_S = 1.0
JSON = "application/json"


def error(kind: str, words: str) -> bytes:
    """The body of an answer that is none."""
    return json.dumps({"status": "error", "errorType": kind, "error": words}).encode()


def vector(*elements: tuple[dict[str, str], float]) -> Answer:
    """A successful answer."""
    result = [{"metric": metric, "value": [0, str(value)]} for metric, value in elements]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return Answer(json.dumps(body).encode(), content_type=JSON)


@dataclass
class Prometheus:
    """Knows pods by (namespace, name); their counter grows by 3 a second since the epoch."""

    pods: list[tuple[str, str]] = field(default_factory=lambda: [("serving", "a")])
    limit: int = 1_000_000  # most pods in one answer
    since: float = 0.0  # samples older than this are not there

    def __call__(self, request: Seen) -> Answer:
        query, at = request.asked["query"], float(request.asked["time"])
        pods = self.pods if at >= self.since else []
        parts = [(p.text, [pod for pod in pods if p.chosen.fullmatch(pod[1])]) for p in read(query)]
        if any(len(some) > self.limit and "__name__, le" in text for text, some in parts):
            words = "query processing would load too many samples into memory in query execution"
            return Answer(error("execution", words), status=422, content_type=JSON)
        return vector(
            *(
                ({"namespace": namespace, "pod": pod} | labels, value)
                for text, some in parts
                for namespace, pod in some
                for labels, value in self._of_pod(text, at)
            )
        )

    def _of_pod(self, query: str, at: float) -> list[tuple[dict[str, str], float]]:
        if State.LIVE in query:
            return [({"job": "vllm", "series": State.LIVE}, at)]
        if "_bucket" in query:
            name = "vllm:e2e_request_latency_seconds_bucket"
            return [({"__name__": name, "le": bound}, at) for bound in ("1.0", "+Inf")]
        gauges = [({"series": "num_requests_running"}, 4.0)] if "avg_over_time" in query else []
        if "process_start_time" not in query:
            return gauges
        return [
            *gauges,
            ({"__name__": "vllm:generation_tokens_total"}, 3 * at),
            ({"__name__": "vllm:e2e_request_latency_seconds_sum"}, at / 2),
            ({"__name__": "vllm:e2e_request_latency_seconds_count"}, at),
        ]


@dataclass
class Rounds:
    """A source whose rounds are taken one by one."""

    server: Server
    clock: FrozenClock = field(default_factory=FrozenClock)
    source: PrometheusTelemetry = field(init=False)

    def __post_init__(self) -> None:
        self.source = PrometheusTelemetry(
            server=PrometheusServer(url=self.server.url),
            clock=self.clock,
            interval_s=15.0,
            settle_s=SETTLED_S,
            deadline_s=5.0,
        )

    def round(self, *asks: Ask, after_s: float = 15.0) -> list[Seen]:
        """Let time pass, look, and return what was asked."""
        self.clock.at += timedelta(seconds=after_s)
        before = len(self.server.seen)
        self.source.track([r for each in asks for r in each.replicas])
        self.source.windows(asks, deadline_s=0.0)
        self.source.sample()
        return self.server.seen[before:]

    def reading(self, signal: str, *, seconds: float = 300.0, pod: str = "a") -> Reading:
        question = ask(pod_named(pod), end=self.clock.at, seconds=seconds)
        return self.source.collect([question])["k"][signal]


def pod_named(name: str, namespace: str = "serving") -> Replica:
    return replica(name, namespace=namespace)


def moment_of(seen: Seen) -> float:
    """The moment that a query was about."""
    return float(seen.asked["time"])


def text_of(seen: Seen) -> str:
    """The query."""
    return seen.asked["query"]
