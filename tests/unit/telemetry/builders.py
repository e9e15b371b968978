"""Short ways to make the values that telemetry works on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from specpilot.domain.policy import TelemetrySource
from specpilot.domain.ports import Ask
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica, TargetRef
from specpilot.telemetry.exposition import parse
from specpilot.telemetry.history import History
from specpilot.telemetry.names import POSITIONS, Counter, DeviceGauge, Family, Gauge
from specpilot.telemetry.windows import Arm, Histogram, ReplicaWindow, Speculation
from tests import recordings

END = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
TARGET = TargetRef(kind="Deployment", namespace="serving", name="chat")
ON = Declared(setting="ngram", config='{"method":"ngram","num_speculative_tokens":4}')


@dataclass
class FrozenClock:
    """A clock that stands until it is moved."""

    at: datetime = END

    def now(self) -> datetime:
        return self.at


class WallClock:
    """The real time."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def recording(name: str) -> bytes:
    return recordings.read(name)


def replica(name: str = "a", *, on: bool = False, **fields: Any) -> Replica:
    declared = ON if on else Declared()
    given: dict[str, Any] = {"ready": True, "instance": f"uid-{name}", **fields}
    return Replica(id=name, declared=declared, **given)


def ask(
    *replicas: Replica,
    key: str = "k",
    end: datetime = END,
    seconds: float = 300.0,
    source: TelemetrySource = TelemetrySource.AUTO,
    warm_up_s: float = 0.0,
    target: TargetRef = TARGET,
) -> Ask:
    return Ask(
        key=key,
        target=target,
        replicas=replicas,
        start=end - timedelta(seconds=seconds),
        end=end,
        warm_up_s=warm_up_s,
        source=source,
    )


def histogram(total: float, count: float, *buckets: tuple[float, float]) -> Histogram:
    """A histogram with a `+Inf` bucket of `count`."""
    return Histogram(sum=total, count=count, buckets=(*buckets, (math.inf, count)))


@dataclass
class Busy:
    """The numbers of a replica that served ten requests in a minute while speculating."""

    counters: dict[Counter, float] = field(
        default_factory=lambda: {
            Counter.GENERATION_TOKENS: 6000.0,
            Counter.REQUESTS: 10.0,
            Counter.PREEMPTIONS: 1.0,
            Counter.DRAFTS: 2000.0,
            Counter.DRAFT_TOKENS: 8000.0,
            Counter.ACCEPTED_TOKENS: 4000.0,
            Counter.PREFIX_QUERIES: 1000.0,
            Counter.PREFIX_HITS: 250.0,
            Counter.HTTP_REQUESTS: 20.0,
            Counter.HTTP_FAILED: 5.0,
        }
    )
    positions: dict[int, float] = field(
        default_factory=lambda: {0: 1600.0, 1: 1200.0, 2: 800.0, 3: 400.0}
    )
    histograms: dict[Family, Histogram] = field(
        default_factory=lambda: {
            Family.TPOT: histogram(0.2, 10, (0.01, 0), (0.025, 8)),
            Family.TTFT: histogram(1.0, 10, (0.1, 5), (0.25, 10)),
            Family.E2E: histogram(40.0, 10, (2.5, 0), (5.0, 10)),
            Family.QUEUE_TIME: histogram(0.0, 10, (0.3, 10)),
            Family.DECODE_TIME: Histogram(sum=118.0, count=10),
            Family.PROMPT_TOKENS: Histogram(sum=1000, count=10),
            Family.GENERATION_TOKENS: Histogram(sum=5910, count=10),
            Family.STEPS: Histogram(sum=9000, count=1500),
        }
    )
    gauges: dict[Gauge, float] = field(
        default_factory=lambda: {Gauge.RUNNING: 4.0, Gauge.WAITING: 2.0, Gauge.KV_CACHE: 0.5}
    )


def window(
    name: str = "a", *, without: Iterable[str] = (), numbers: Busy | None = None, **fields: Any
) -> ReplicaWindow:
    """A busy replica; `without` names series it does not export."""
    busy = numbers or Busy()
    gone = set(without)
    given: dict[str, Any] = {
        "first": END - timedelta(seconds=60),
        "last": END,
        "samples": 13,
        "span_s": 60.0,
        "interval_s": 5.0,
        "counters": {k: v for k, v in busy.counters.items() if k not in gone},
        "histograms": {k: v for k, v in busy.histograms.items() if k not in gone},
        "positions": {} if POSITIONS in gone else dict(busy.positions),
        "gauges": {k: v for k, v in busy.gauges.items() if k not in gone},
        "speculation": Speculation.PRESENT,
        **fields,
    }
    return ReplicaWindow(replica=name, **given)


DEVICES = {
    DeviceGauge.UTIL: 0.98,
    DeviceGauge.TENSOR_ACTIVE: 0.2,
    DeviceGauge.DRAM_ACTIVE: 0.8,
    DeviceGauge.MEMORY_USED: 60e9,
    DeviceGauge.POWER: 400.0,
}


def device_window(name: str = "a", **fields: Any) -> ReplicaWindow:
    """What a GPU exporter says of a replica that keeps its device busy."""
    plain: dict[str, Any] = {"counters": {}, "histograms": {}, "positions": {}, "gauges": DEVICES}
    return window(name, **(plain | fields))


def arm(*windows: ReplicaWindow, **fields: Any) -> Arm:
    given: dict[str, Any] = {"source": "direct scrape", "end": END, "window_s": 60.0, **fields}
    return Arm(replicas=windows, **given)


def looked_at(pages: Sequence[tuple[float, bytes]], *, keep_s: float = 1e9) -> History:
    """The history of pages scraped at seconds before `END`."""
    history = History(keep_s=keep_s)
    for before, page in pages:
        history.add(END.timestamp() - before, parse(page))
    return history


def cut(history: History, *, declared_on: bool = False) -> ReplicaWindow:
    """All of a history as one window of replica `a`."""
    assert history.covers is not None
    found = history.window(*history.covers, replica="a", interval_s=5.0, declared_on=declared_on)
    assert found is not None
    return found


def page(values: Mapping[str, float | str]) -> bytes:
    """A metrics page with these lines."""
    return "".join(f"vllm:{name} {value}\n" for name, value in values.items()).encode()
