"""What was measured, as a table, with the targets and the peers' figures beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

JsonObject = dict[str, Any]

QUERIES = 16.0
READS = 0.1
CORES = {800: 0.1, 5000: 1.0}
KEPT = 1.1
"""The interval counts as kept up to this many times its length."""

PEERS = """\
Peers on the same kind of machine (2 cores, API server 1.37, interval 15 s), 800 objects:
Flagger 1.36.1: one query an object, 9.4/s; 0.15 core; 693 API requests/s, 13 reads an object and
  tick; the interval silently grew to 85 s; first failed check 6.2 s after the metric changed.
KEDA 2.21.0: one query an object, 53.3/s; 0.09 + 0.04 core; 54 API writes/s; 9.3 s (median, at most
  14.9) from the metric's change to the first write. Memory 97 and 229 MiB."""

_COLUMNS = {
    "policies": None,
    "state": None,
    "queries a tick": "queries_per_tick",
    "API reads a policy and tick": "reads_per_policy_and_tick",
    "API writes a policy and tick": "writes_per_policy_and_tick",
    "API requests/s": "requests_per_s",
    "cores": "cores",
    "CPU s a tick": "cpu_s_per_tick",
    "tick s": "tick_s",
    "interval s": "real_interval_s",
    "MB": "peak_mb",
}


def show(found: JsonObject, console: Console) -> None:
    """Print it."""
    load = "/".join(f"{each[0]:.1f}" for each in (found["load_before"], found["load_after"]))
    console.print(
        f"{found['cores']} cores, {found['database']}, interval {found['interval_s']:g} s; load "
        f"average before and after: {load}\n"
    )
    table = Table(title="One operator", title_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "state" else "right")
    for size in found["sizes"]:
        for state in ("steady", "flipping"):
            numbers = [f"{size[state][key]:.3g}" for key in _COLUMNS.values() if key]
            table.add_row(str(size["targets"]), state, *numbers)
    console.print(table)
    for size in found["sizes"]:
        flips = ", ".join(f"{count} {phase}" for phase, count in size["flips"].items())
        console.print(
            f"{size['targets']} policies: steered {size['started_s']:.0f} s after the start; "
            f"{size['chosen']} loads rose: {flips or 'no change'}; after the metric changed, the "
            f"first write {_delay(size['reaction'])} of {size['reaction']['seen']} of them; until "
            f"the next look {_delay(size['waited'])}, from its moment to that write "
            f"{_delay(size['after_look'])}; the workload's own write {_delay(size['canary'])}"
        )
    console.print(f"\n{PEERS}\n", markup=False, highlight=False)
    for name, value, most in targets(found):
        verdict = "[green]met[/]" if value <= most else "[red]missed[/]"
        console.print(f"{verdict}: {name}: {value:.3g} (at most {most:.3g})")


def _delay(found: JsonObject) -> str:
    if not found["seen"]:
        return "never came"
    median, most = found["median_s"], found["max_s"]
    return f"{median:.1f} s (median; 90 % {found['p90_s']:.1f}, most {most:.1f})"


def targets(found: JsonObject) -> Iterator[tuple[str, float, float]]:
    """Each target that this run says something of: its name, the number, the most it may be."""
    sizes, interval = found["sizes"], found["interval_s"]
    for size in sizes:
        where = f"{size['targets']} policies"
        for state in ("steady", "flipping"):
            one = size[state]
            yield f"{where}, {state}: queries a tick", one["queries_per_tick"], QUERIES
            yield f"{where}, {state}: API reads", one["reads_per_policy_and_tick"], READS
            yield f"{where}, {state}: interval", one["real_interval_s"], KEPT * interval
            if size["targets"] in CORES:
                yield f"{where}, {state}: cores", one["cores"], CORES[size["targets"]]
        if size["reaction"]["seen"]:
            median = size["reaction"]["median_s"]
            yield f"{where}: seconds to the first write", median, interval / 2 + 1
