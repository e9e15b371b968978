"""One process that samples a fleet from one server, and says what that took of it.

    python -m bench.signals.rounds --url URL --pods 20000 --signals rules --origin SECONDS

Prints JSON. A process of its own, so that its memory is that of the product and of nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import psutil

from bench.signals.fleet import STEP_S, Fleet
from bench.signals.meter import Clock, Meter, peak_mb
from specpilot.domain.ports import Ask
from specpilot.domain.readings import Readings
from specpilot.domain.signals import SIGNALS, STANDING
from specpilot.telemetry import PrometheusServer, PrometheusTelemetry
from specpilot.telemetry.memory import calm_collector

RULES = Path(__file__).parents[2] / "rules" / "hit-rate.yaml"
COMPARED = frozenset({"tpot_mean"})
BOUNDED = frozenset({"e2e_p99"})
"""What a policy's two guardrails name: one against the control arm, one with a bound."""
IN_FLIGHT = 20
"""Of so many policies one has a change in flight, with one canary."""
PATIENCE_S = 120.0
"""The limits of the product are for servers that are not on the same two cores."""


def signals(which: str) -> frozenset[str]:
    """What a tick asks of each policy.

    Args:
        which: `rules` for the shipped rules and two guardrails, `percentile` where a rule names the
            percentile too, so that it is asked of every pod at every tick, `all` for all signals.
    """
    if which == "all":
        return frozenset()
    words = set(re.findall(r"\w+", RULES.read_text()))
    rules = {name for name in SIGNALS if name in words}
    more = BOUNDED if which == "percentile" else frozenset()
    return STANDING | rules | COMPARED | more | ({"drafts"} if "minDrafts" in words else set())


def asks(fleet: Fleet, at: datetime, *, which: str) -> list[Ask]:
    """What a tick asks: a question a policy, and one more for each canary."""
    resting = fleet.asks(at, signals=signals(which))
    if which != "rules":
        return resting
    flights = [
        replace(
            ask,
            key=f"{ask.key}/flight",
            replicas=ask.replicas[:1],
            signals=STANDING | COMPARED | BOUNDED,
        )
        for ask in resting[::IN_FLIGHT]
    ]
    return resting + flights


def source(url: str, clock: Clock) -> PrometheusTelemetry:
    """The product's, as it is shipped but for its patience."""
    return PrometheusTelemetry(
        server=PrometheusServer(url=url), clock=clock, interval_s=STEP_S, deadline_s=PATIENCE_S
    )


def measure(
    *, url: str, pods: int, which: str, origin: float, first: int, rounds: int
) -> dict[str, object]:
    """Sample `rounds` times, a step apart, and answer every policy's question from it."""
    fleet = Fleet(pods)
    clock = Clock(at=_time(origin, first))
    first_asks = asks(fleet, clock.at, which=which)
    replicas = [pod.replica() for pod in fleet.all]
    process = psutil.Process()
    rss = [process.memory_info().rss / 1e6]
    telemetry = source(url, clock)
    calm_collector()
    try:
        telemetry.track(replicas)
        telemetry.collect(first_asks)  # says what will be asked; there is no answer yet
        samples: list[Meter] = []
        queries: list[int] = []
        for step in range(first, first + rounds):
            clock.at = _time(origin, step)
            with Meter() as sampled:
                telemetry.sample()
            samples.append(sampled)
            queries.append(telemetry.queries)
            rss.append(process.memory_info().rss / 1e6)
            tick = asks(fleet, clock.at, which=which)
            with Meter() as collected:
                found = telemetry.collect(tick)
    finally:
        telemetry.close()
    return {
        "pods": pods,
        "policies": fleet.policies,
        "signals": which,
        # The first two rounds also make what later ones find, and look at the past.
        "sample_cpu_s": median(each.cpu_s for each in samples[2:]),
        "sample_wall_s": median(each.wall_s for each in samples[2:]),
        "first_cpu_s": [each.cpu_s for each in samples[:2]],
        "queries": queries[-1],
        "most_queries": max(queries),
        "all_queries": sum(queries),
        "collect_cpu_s": collected.cpu_s,
        "collect_wall_s": collected.wall_s,
        "peak_rss_mb": peak_mb(),
        "rss_mb": rss,
        "said": said(found),
    }


def said(found: Mapping[str, Readings]) -> dict[str, object]:
    """The answers in short: how many are known, and the mean of each signal."""
    values: dict[str, list[float]] = {}
    unknown: dict[str, int] = {}
    for readings in found.values():
        for name, reading in readings.items():
            if reading.value is None:
                words = f"{name}: {reading.reason}"
                unknown[words] = unknown.get(words, 0) + 1
            else:
                values.setdefault(name, []).append(reading.value)
    means = {name: math.fsum(each) / len(each) for name, each in sorted(values.items())}
    return {"known": {n: len(v) for n, v in values.items()}, "mean": means, "unknown": unknown}


def _time(origin: float, step: int) -> datetime:
    """A second after a scrape."""
    return datetime.fromtimestamp(origin + step * STEP_S + 1, UTC)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.signals.rounds", description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--signals", choices=["rules", "percentile", "all"], required=True)
    parser.add_argument("--origin", type=float, required=True, help="time of step 0")
    parser.add_argument("--first", type=int, default=0, help="the step of the first round")
    parser.add_argument("--rounds", type=int, default=4, help="at least 3")
    given = parser.parse_args()
    found = measure(
        url=given.url,
        pods=given.pods,
        which=given.signals,
        origin=given.origin,
        first=given.first,
        rounds=given.rounds,
    )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
