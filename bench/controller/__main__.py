"""What steering costs: the operator over 50 to 5,000 policies, on a real API server.

    python -m bench.controller [--policies 50 200 800 5000] [--json PATH]

Real are the API server, etcd, and the Deployment and ReplicaSet controllers. Pods run nothing: a
stand-in for the kubelet says that they are ready. The Prometheus answers with recorded shapes and
counts. API requests are counted by the API server's audit log, CPU and memory are those of the
operator's process. Each size is measured at rest and while the load of 5 % of the targets rises,
so that they are flipped: canary, analysis, promotion.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.controller import report
from bench.controller.measure import Plan, measure
from bench.controller.rig import Rig
from tests.unit.store import postgres

JsonObject = dict[str, Any]

WIDTH = 160
"""Letters of a line in a file."""

DATABASES = ("sqlite", "postgresql")


def run(directory: Path, *, policies: list[int], plan: Plan, postgresql: str) -> JsonObject:
    """Measure each size, smallest first, over the same control plane.

    Args:
        directory: For data and logs.
        policies: The sizes.
        plan: How long to look.
        postgresql: URL of a server's database; "" for SQLite.
    """
    found: JsonObject = {
        "cores": os.cpu_count(),
        "interval_s": plan.interval_s,
        "database": "postgresql" if postgresql else "sqlite",
        "load_before": os.getloadavg(),
        "sizes": [],
    }
    with Rig(directory) as rig, ExitStack() as stack:
        for targets in sorted(policies):
            _say(f"{targets} policies: filling the cluster")
            rig.grow(targets)
            database = f"sqlite:///{directory}/{targets}.sqlite"
            if postgresql:
                database = stack.enter_context(
                    postgres.database(postgresql, name=f"bench{targets}")
                )
            _say(f"{targets} policies: measuring")
            found["sizes"].append(measure(rig, targets=targets, plan=plan, database=database))
    found["load_after"] = os.getloadavg()
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.controller",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--policies", type=int, nargs="+", default=[50, 200, 800, 5000])
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between ticks")
    parser.add_argument("--steady", type=float, default=120.0, help="seconds at rest")
    parser.add_argument("--flipping", type=float, default=180.0, help="seconds while targets flip")
    parser.add_argument("--database", choices=DATABASES, default="sqlite")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the numbers there")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep data and logs there")
    given = parser.parse_args()
    plan = Plan(interval_s=given.interval, steady_s=given.steady, flipping_s=given.flipping)
    with ExitStack() as stack:
        directory = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = ""
        if given.database == "postgresql":
            server = stack.enter_context(postgres.server())
        found = run(directory, policies=given.policies, plan=plan, postgresql=server)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    # Columns of a table are cut off where nobody says how wide the paper is.
    report.show(found, Console() if sys.stdout.isatty() else Console(width=WIDTH))


if __name__ == "__main__":
    main()
