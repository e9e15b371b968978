"""How many replicas the direct scrape manages.

    python -m bench.signals.scrape --port PORT --replicas 250 1000

Every replica has an address of its own in 127.0.0.0/8; `page_server` is behind all of them. Prints
JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from bench.signals.meter import Clock, Meter, peak_mb
from bench.signals.page_server import PAGE
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica
from specpilot.telemetry import ScrapeTelemetry
from specpilot.telemetry.exposition import parse
from tests import recordings

INTERVALS_S = (5.0, 15.0)
_PARSES = 20


def _replica(number: int, port: int) -> Replica:
    high, low = divmod(number, 250)
    return Replica(
        id=f"replica-{number}",
        instance=f"uid-{number}",
        declared=Declared(),
        ready=True,
        endpoint=f"http://127.1.{high}.{low + 1}:{port}",
    )


def measure(sizes: list[int], *, port: int, rounds: int) -> dict[str, object]:
    """Scrape fleets of these sizes, `rounds` times each after one to warm up."""
    page = recordings.read(PAGE)
    found = []
    for size in sizes:
        clock = Clock(at=datetime.now(UTC))
        telemetry = ScrapeTelemetry(clock=clock)
        telemetry.track([_replica(i, port) for i in range(size)])
        taken = []
        for _ in range(rounds + 1):
            clock.at = datetime.now(UTC)
            with Meter() as spent:
                telemetry.sample()
            taken.append(spent)
        best = min(taken[1:], key=lambda each: each.cpu_s)
        per_core = size / best.cpu_s
        found.append(
            {
                "replicas": size,
                "cpu_s": best.cpu_s,
                "wall_s": best.wall_s,
                "per_second_and_core": per_core,
                "most": {f"{each:g} s": int(per_core * each) for each in INTERVALS_S},
            }
        )
    return {
        "page_bytes": len(page),
        "sizes": found,
        "parser": _parser(page),
        "peak_rss_mb": peak_mb(),
    }


def _parser(page: bytes) -> dict[str, float]:
    """The product's reader of pages against the client library's."""
    with Meter() as ours:
        for _ in range(_PARSES):
            parse(page)
    text = page.decode()
    with Meter() as theirs:
        for _ in range(_PARSES):
            list(text_string_to_metric_families(text))
    return {
        "ours_ms": ours.cpu_s / _PARSES * 1e3,
        "prometheus_client_ms": theirs.cpu_s / _PARSES * 1e3,
        "ratio": theirs.cpu_s / ours.cpu_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.signals.scrape", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--replicas", type=int, nargs="+", default=[250, 1000, 4000])
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    json.dump(measure(given.replicas, port=given.port, rounds=given.rounds), sys.stdout)


if __name__ == "__main__":
    main()
