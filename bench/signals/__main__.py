"""What it costs to measure a fleet of 20,000 pods under 5,000 policies, in one run.

    python -m bench.signals [--json PATH] [--parts recorded real scrape]

Every measurement is a process of its own. Ratios (per pod, against the obvious client, against the
client library's parser) compare within the run; seconds are CPU seconds of this machine.

- recorded: sampling a stand-in that answers for fleets of several sizes (see `recorded`).
- real: sampling a real Prometheus into which the whole fleet was written, and a client that asks it
  policy by policy.
- scrape: the direct scrape.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from bench.signals import prometheus, report
from bench.signals.fleet import STEP_S, WINDOW_S, Fleet
from bench.signals.pages import read_by_the_product
from tests.cluster.ports import free_port
from tests.cluster.processes import Process

ROOT = Path(__file__).parents[2]
PARTS = ("recorded", "real", "scrape")
SIGNALS = ("rules", "percentile", "all")
FIRST = 21
"""The step of the first round: a whole window of the obvious client lies before it."""
HISTORY_ROUNDS = 30
"""Until as much is kept as policies with a window of five minutes need: seven minutes."""
_LONGEST_S = 600
_SAMPLED = 25

JsonObject = dict[str, Any]


def child(module: str, **options: object) -> JsonObject:
    """Run one measurement; what it prints.

    Raises:
        RuntimeError: It failed; the text has the end of its output.
    """
    command = [sys.executable, "-m", f"bench.signals.{module}"]
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        command += [f"--{name}", *map(str, values)]
    print(f"  {module} {options}", file=sys.stderr, flush=True)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=_LONGEST_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found: JsonObject = json.loads(done.stdout)
    return found


@contextmanager
def beside(directory: Path, module: str, *options: object) -> Iterator[str]:
    """Run a server module until the block ends; its URL."""
    port = free_port()
    process = Process(
        name=module,
        command=[
            *(sys.executable, "-m", f"bench.signals.{module}"),
            *("--port", str(port), *map(str, options)),
        ],
        log=directory / f"{module}.log",
        environment=_environment(),
        directory=ROOT,
    )
    process.start()
    try:
        process.wait_ready(lambda: _connects(port), deadline=30)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


def _environment() -> dict[str, str]:
    path = [str(ROOT), str(ROOT / "operator"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _connects(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/account", timeout=5, trust_env=False)
    except httpx.HTTPError:
        return False
    return True


def recorded(
    directory: Path, *, sizes: list[int], rounds: int, signals: list[str], whole: bool
) -> JsonObject:
    """Fleets of several sizes, and a whole history of the smallest where that is wanted."""
    steps = FIRST + HISTORY_ROUNDS
    origin = _origin(steps)
    found: list[JsonObject] = []
    with prometheus.running(directory / "small", origin=origin) as server:
        templates = list(Fleet(max(sizes)).templates())
        server.write(templates, steps=range(FIRST + rounds))
        server.write(templates, steps=range(FIRST + rounds, steps), keep=read_by_the_product)
        with beside(directory, "recorded", "--upstream", server.url) as url:

            def measured(pods: int, which: str, rounds: int) -> JsonObject:
                httpx.get(f"{url}/account", trust_env=False)
                one = child(
                    "rounds",
                    url=f"{url}/{pods}",
                    pods=pods,
                    signals=which,
                    origin=origin,
                    first=FIRST,
                    rounds=rounds,
                )
                account = httpx.get(f"{url}/account", trust_env=False).json()
                newest = account[max(account, key=float)]
                return one | {name: newest[name] for name in ("body_bytes", "wire_bytes")}

            for which in signals:
                found += [measured(pods, which, rounds) for pods in sizes]
            history = [measured(min(sizes), signals[0], HISTORY_ROUNDS)] if whole else []
    return {"sizes": found, "history": history}


def real(directory: Path, *, pods: int, rounds: int, signals: list[str]) -> JsonObject:
    """The whole fleet in a real server: the product, then the obvious client."""
    # What the rounds see, and the moment that the product looks back at after its start.
    steps = [FIRST - round(WINDOW_S / STEP_S), *range(FIRST, FIRST + rounds)]
    origin = _origin(FIRST + rounds)
    fleet = Fleet(pods)
    with prometheus.running(directory / "large", origin=origin) as server:
        began = time.perf_counter()
        series = server.write(fleet.all, steps=steps, keep=read_by_the_product)
        loaded = time.perf_counter() - began
        found: list[JsonObject] = []
        for which in signals:
            before = server.account()
            one = child(
                "rounds",
                url=server.url,
                pods=pods,
                signals=which,
                origin=origin,
                first=FIRST,
                rounds=rounds,
            )
            after = server.account()
            # Of a round that does not look at the past.
            share = one["queries"] / one["all_queries"]
            one["server_cpu_s"] = (after.cpu_s - before.cpu_s) * share
            found.append(one)
        before = server.account()
        at = origin + steps[-1] * STEP_S + 1
        naive = child("naive", url=server.url, pods=pods, policies=_SAMPLED, at=at)
        after = server.account()
        naive["server_cpu_s"] = after.cpu_s - before.cpu_s
    return {
        "series": series,
        "load_s": loaded,
        "server_rss_mb": after.rss_mb,
        "sizes": found,
        "naive": naive,
    }


def scrape(directory: Path, *, replicas: list[int]) -> JsonObject:
    """The direct scrape."""
    with beside(directory, "page_server") as url:
        return child("scrape", port=url.rpartition(":")[2], replicas=replicas)


def _origin(steps: int) -> float:
    """The time of step 0, so that the last step is now."""
    return float(int(time.time() - steps * STEP_S))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.signals",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pods", type=int, nargs="+", default=[2_000, 20_000])
    parser.add_argument("--replicas", type=int, nargs="+", default=[250, 1_000, 3_000])
    parser.add_argument("--rounds", type=int, default=4, help="at least 3")
    parser.add_argument("--signals", nargs="+", choices=SIGNALS, default=list(SIGNALS))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--no-history", action="store_true", help="no history to the full")
    parser.add_argument("--json", type=Path, help="where to write everything measured")
    given = parser.parse_args()
    found: JsonObject = {"cores": os.cpu_count(), "load_before": os.getloadavg()}
    with tempfile.TemporaryDirectory(prefix="bench-signals-") as name:
        directory = Path(name)
        for part in given.parts:
            found[part] = _measured(part, directory, given)
            found["load_after"] = os.getloadavg()
            if given.json:  # after each part: a run that is cut short has something to show
                given.json.write_text(json.dumps(found, indent=1) + "\n")
    report.show(found, Console(width=140))


def _measured(part: str, directory: Path, given: argparse.Namespace) -> JsonObject:
    sizes, rounds, signals = sorted(given.pods), given.rounds, given.signals
    if part == "recorded":
        return recorded(
            directory, sizes=sizes, rounds=rounds, signals=signals, whole=not given.no_history
        )
    if part == "real":
        return real(directory, pods=sizes[-1], rounds=rounds, signals=signals)
    return scrape(directory, replicas=given.replicas)


if __name__ == "__main__":
    main()
