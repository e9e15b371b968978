"""Two minutes of bad answers of a Prometheus, from the wire to the status, on the real loop.

The table over all phases is `tests/unit/controller/test_telemetry_faults.py`; here the answers are
bytes, and the source, the evaluator and the reconciler are the real ones, on a clock of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from specpilot.controller.registry import Condition
from specpilot.domain.changes import Phase
from specpilot.telemetry import PrometheusServer, PrometheusTelemetry
from specpilot.telemetry.promql import State
from tests.integration.telemetry.servers import Answer, Seen, serving
from tests.unit.controller.model import Modelled

TICK_S = 15.0
OUTAGE = 8
"""Ticks: two minutes."""
USUAL, BUSY = 10.0, 40.0
"""Running requests; above 32 a rule asks for off."""

Series = list[tuple[dict[str, str], float | str]]


@dataclass
class Prometheus:
    """Knows the pods of a modelled target; each finishes five requests a second."""

    world: Modelled
    running: float = 10.0
    frozen_at: float | None = None
    spoils: Callable[[Series], Series | Answer] = lambda series: series

    def __call__(self, request: Seen) -> Answer:
        query, at = request.asked["query"], float(request.asked["time"])
        if self.frozen_at is not None:
            at = min(at, self.frozen_at)
        series = [
            ({"namespace": "serving", "pod": pod.replica.id, "job": "vllm", **labels}, value)
            for pod in self.world.model.pods
            for labels, value in self._of_pod(query, at)
        ]
        spoilt = self.spoils(series)
        return spoilt if isinstance(spoilt, Answer) else vector(spoilt)

    def _of_pod(self, query: str, at: float) -> Series:
        if State.LIVE in query:
            return [({"series": State.LIVE}, at)]
        gauges: Series = []
        if "avg_over_time" in query:
            gauges = [({"series": "num_requests_running"}, self.running)]
        if "process_start_time" not in query:
            return gauges
        return gauges + [
            ({"__name__": f"vllm:{name}"}, each * at) for name, each in A_SECOND.items()
        ]


A_SECOND = {
    "generation_tokens_total": 500.0,
    "request_success_total": 5.0,
    "request_time_per_output_token_seconds_sum": 5 * 0.02,
    "request_time_per_output_token_seconds_count": 5.0,
    "e2e_request_latency_seconds_sum": 5 * 2.0,
    "e2e_request_latency_seconds_count": 5.0,
}


def vector(series: Series) -> Answer:
    result = [{"metric": metric, "value": [0, str(value)]} for metric, value in series]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return Answer(json.dumps(body).encode(), content_type="application/json")


@dataclass(frozen=True)
class Fault:
    """What a Prometheus answers.

    Attributes:
        name: What it is.
        reason: What the status calls it in the end.
        says: What the status says of it from the first tick on; "" where that is too early to tell.
        spoils: Makes the answers.
        freezes: They are those of when it began.
    """

    name: str
    reason: str
    says: str
    spoils: Callable[[Series], Series | Answer]
    freezes: bool = False


def as_nan(series: Series) -> Series:
    return [(m, v if m.get("series") == State.LIVE else "NaN") for m, v in series]


def twice(series: Series) -> Series:
    return [*series, *(({**metric, "job": "other"}, value) for metric, value in series)]


FAULTS = [
    Fault("empty", "NoData", "Prometheus has no series of this pod", lambda _: []),
    Fault("NaN", "NaN", "batch_size is Unknown (NaN)", as_nan),
    Fault("stale", "Stale", "", lambda series: series, freezes=True),
    Fault("twice", "Ambiguous", "2 copies of this pod's series", twice),
    Fault("not at all", "SourceError", "503", lambda _: Answer(b"", status=503)),
]


@dataclass(frozen=True)
class Loop:
    """The loop of the product with a tick every 15 s."""

    world: Modelled
    source: PrometheusTelemetry

    def tick(self) -> Condition:
        """What the status says of the signals after another tick."""
        world = self.world
        world.clock.at += timedelta(seconds=TICK_S)
        world.model.move()
        self.source.sample()
        world.evaluator.tick()
        world.reconciler.run()
        return next(c for c in world.status().conditions if c.type == "MetricsAvailable")

    def phases(self) -> list[Phase]:
        return [change.phase for change in self.world.changes()]


@pytest.fixture
def world(tmp_path: Path) -> Modelled:
    made = Modelled(tmp_path, probe=None)
    assert made.policy is not None
    canary = replace(made.policy.canary, analysis=timedelta(minutes=3))
    made.policy = replace(made.policy, canary=canary)
    return made


@pytest.mark.parametrize("phases", [[], [Phase.ANALYSING]], ids=["at rest", "analysing"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_two_minutes_of_it_change_nothing(
    world: Modelled, fault: Fault, phases: list[Phase]
) -> None:
    """keda#3065, #965, flagger#664, #883, #1754, argo-rollouts#1466, #2101, #1591, #1905."""
    prometheus = Prometheus(world, running=BUSY if phases else USUAL)
    with (
        serving(prometheus) as server,
        closing(
            PrometheusTelemetry(
                server=PrometheusServer(url=server.url), clock=world.clock, interval_s=TICK_S
            )
        ) as source,
    ):
        world.telemetry = source  # type: ignore[assignment]
        world.boot()
        loop = Loop(world, source)
        seen = [loop.tick() for _ in range(10)]
        assert loop.phases() == phases
        assert (seen[-1].status, seen[-1].message) == (True, "")
        told = set(world.model.spoken)

        prometheus.spoils = fault.spoils
        if fault.freezes:
            prometheus.frozen_at = world.clock.at.timestamp()
        else:
            prometheus.running = BUSY  # which cannot be seen
        seen = [loop.tick() for _ in range(OUTAGE)]
        assert loop.phases() == phases
        assert set(world.model.spoken) == told
        assert [c.message for c in seen if fault.says not in c.message] == []
        assert (seen[-1].status, seen[-1].reason) == (False, fault.reason)
        assert not any(c.status for c in seen[3:]), "what is older than three looks is not used"

        prometheus.spoils, prometheus.frozen_at = (lambda series: series), None
        prometheus.running = BUSY
        seen = [loop.tick() for _ in range(60)]
        assert loop.phases() == [Phase.SUCCEEDED]
        assert (seen[-1].status, seen[-1].message) == (True, "")
