"""What became of the requests, and what it was worth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from specpilot.sim.load.workload import Arrival


@dataclass(frozen=True, slots=True)
class Record:
    """One request, from its arrival to its end; times in seconds after the start of the load.

    Attributes:
        arrival: what was to be sent.
        end: when it ended, in whatever way.
        tokens: output tokens received.
        first_token: when the first one came; None without streaming.
        endpoint: which replica served it; None if none did.
        status: HTTP status; None if there was no answer.
        error: why it failed, in a word; None if it did not.
    """

    arrival: Arrival
    end: float
    tokens: int = 0
    first_token: float | None = None
    endpoint: str | None = None
    status: int | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it was served in full."""
        return self.error is None

    @property
    def latency(self) -> float:
        """Seconds from arrival to end, time spent waiting for a replica included."""
        return self.end - self.arrival.at

    @property
    def ttft(self) -> float | None:
        """Seconds from arrival to the first token."""
        return None if self.first_token is None else self.first_token - self.arrival.at

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; without streaming, latency per token."""
        if self.tokens == 0:
            return None
        if self.first_token is None:
            return self.latency / self.tokens
        return (self.end - self.first_token) / max(1, self.tokens - 1)


@dataclass(frozen=True, slots=True)
class Objective:
    """What a user would call good: every bound that is given must hold, in seconds."""

    e2e: float | None = None
    ttft: float | None = None
    tpot: float | None = None

    def met(self, record: Record) -> bool:
        """Tell whether a request met it; a failed one never does."""
        if not record.ok:
            return False
        pairs = ((self.e2e, record.latency), (self.ttft, record.ttft), (self.tpot, record.tpot))
        return all(bound is None or (seen is not None and seen <= bound) for bound, seen in pairs)


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a set of requests. Latencies are those of served requests.

    Attributes:
        goodput: output tokens of requests that met the objective, per second of the load's span.
        throughput: output tokens of served requests, per second until the last one ended.
    """

    requests: int
    served: int
    met: int
    tokens: int
    goodput: float
    throughput: float
    latency_mean: float | None
    latency_p50: float | None
    latency_p95: float | None
    latency_p99: float | None
    ttft_mean: float | None
    tpot_mean: float | None
    errors: Mapping[str, int] = field(default_factory=dict)


def summarise(records: Sequence[Record], *, objective: Objective, span: float) -> Summary:
    """Summarise requests that arrived within ``span`` seconds."""
    served = [record for record in records if record.ok]
    met = [record for record in served if objective.met(record)]
    latencies = sorted(record.latency for record in served)
    ttfts = [record.ttft for record in served if record.ttft is not None]
    tpots = [record.tpot for record in served if record.tpot is not None]
    tokens = sum(record.tokens for record in served)
    begin = min((record.arrival.at for record in records), default=0.0)
    lasted = max([span, *(record.end - begin for record in served)])
    return Summary(
        requests=len(records),
        served=len(served),
        met=len(met),
        tokens=tokens,
        goodput=sum(record.tokens for record in met) / span,
        throughput=tokens / lasted,
        latency_mean=_mean(latencies),
        latency_p50=quantile(latencies, 0.5),
        latency_p95=quantile(latencies, 0.95),
        latency_p99=quantile(latencies, 0.99),
        ttft_mean=_mean(ttfts),
        tpot_mean=_mean(tpots),
        errors=dict(Counter(record.error for record in records if record.error is not None)),
    )


def by_phase(
    records: Iterable[Record], *, objective: Objective, spans: Mapping[str, float]
) -> dict[str, Summary]:
    """Summarise each phase by itself; ``spans`` gives the seconds that each lasted."""
    groups: dict[str, list[Record]] = {name: [] for name in spans}
    for record in records:
        groups[record.arrival.phase].append(record)
    return {
        name: summarise(group, objective=objective, span=spans[name])
        for name, group in groups.items()
    }


def as_json(summary: Summary) -> dict[str, object]:
    """Return a summary as plain values."""
    return asdict(summary)


def quantile(ordered: Sequence[float], q: float) -> float | None:
    """Return the q-quantile of sorted values, by nearest rank; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
