"""What an engine counts. Plain numbers, so that a step costs little; text is made on scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

FINISH_REASONS: Final = ("stop", "length", "abort", "error", "repetition")

_TTFT: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_LATENCY: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
    *(2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_LATENCY: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0),
    *(60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_ITERATION: Final = (
    *(1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0),
    *(2048.0, 4096.0, 8192.0, 16384.0),
)
_REQUEST_N: Final = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTIONS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def token_buckets(max_model_len: int) -> tuple[float, ...]:
    """Return vLLM's buckets for counts of tokens: 1, 2, 5, 10, ... up to the longest context."""
    buckets: list[float] = []
    decade = 1
    while True:
        for mantissa in (1, 2, 5):
            bound = mantissa * decade
            if bound > max_model_len:
                return tuple(buckets)
            buckets.append(float(bound))
        decade *= 10


class Histogram:
    """A Prometheus histogram: observations counted by upper bound."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.total += value

    def cumulative(self) -> list[int]:
        """Return the count of every bucket with all lower ones, ``+Inf`` last."""
        running = 0
        result = []
        for count in self.counts:
            running += count
            result.append(running)
        return result


@dataclass(slots=True)
class SpecCounters:
    """Counters of speculation, true to what happened."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    emitted: int = 0
    per_position: list[int] = field(default_factory=list)

    def observe(self, *, drafted: int, accepted: int) -> None:
        """Count the verification of one request's draft in one step."""
        self.drafts += 1
        self.draft_tokens += drafted
        self.accepted += accepted
        self.emitted += accepted + 1
        for position in range(accepted):
            self.per_position[position] += 1


@dataclass(slots=True)
class V0SpecReport:
    """What the V0 engine exports about speculation, which is not what happened.

    At every report the *running totals* are added to the counters, so that they grow like a sum of
    sums; the gauges are right, and NaN before the first draft. Seen on 0.8.5: true 332, 564, 565,
    565, 870; exported 2896.
    """

    interval: float = 5.0
    due: float | None = None
    reported: bool = False
    accepted: int = 0
    draft_tokens: int = 0
    emitted: int = 0
    acceptance_rate: float = float("nan")
    efficiency: float = float("nan")

    def update(self, spec: SpecCounters, *, now: float, depth: int) -> None:
        """Report if the interval is over."""
        if self.due is None:
            self.due = now + self.interval
        if now < self.due:
            return
        self.due = now + self.interval
        self.reported = True
        self.accepted += spec.accepted
        self.draft_tokens += spec.draft_tokens
        self.emitted += spec.emitted
        if spec.draft_tokens:
            self.acceptance_rate = spec.accepted / spec.draft_tokens
            most = spec.draft_tokens + spec.draft_tokens / depth
            self.efficiency = spec.emitted / most


class EngineStats:
    """Everything that one engine counts. Gauges are set once a step, counters only grow."""

    def __init__(self, *, max_model_len: int, depth: int) -> None:
        tokens = token_buckets(max_model_len)
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        self.steps = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.generation_outputs = 0
        self.prefix_queries = 0
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.spec = SpecCounters(per_position=[0] * depth)
        self.v0_report = V0SpecReport()
        self.ttft = Histogram(_TTFT)
        self.inter_token = Histogram(_TOKEN_LATENCY)
        self.request_tpot = Histogram(_TOKEN_LATENCY)
        self.e2e = Histogram(_REQUEST_LATENCY)
        self.queue = Histogram(_REQUEST_LATENCY)
        self.inference = Histogram(_REQUEST_LATENCY)
        self.prefill = Histogram(_REQUEST_LATENCY)
        self.decode = Histogram(_REQUEST_LATENCY)
        self.iteration_tokens = Histogram(_ITERATION)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.request_max_tokens = Histogram(tokens)
        self.params_max_tokens = Histogram(tokens)
        self.params_n = Histogram(_REQUEST_N)
        self.request_preemptions = Histogram(_PREEMPTIONS)
        self.prefill_kv_computed = Histogram(tokens)
