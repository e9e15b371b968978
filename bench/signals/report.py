"""What was measured, as tables, with the targets beside it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from bench.signals.fleet import PODS_PER_POLICY

JsonObject = dict[str, Any]

CPU_S, RSS_MB, PER_POD, QUERIES = 5.0, 700.0, 1.2, 16
"""What a round and a tick may take at most, for the signals of the shipped rules."""

RULES = "rules"


def show(found: JsonObject, console: Console) -> None:
    """Print what there is."""
    load = "/".join(f"{each:.1f}" for each in (found["load_before"][0], found["load_after"][0]))
    console.print(f"{found['cores']} cores; load average before and after: {load}\n")
    if (part := found.get("recorded")) is not None:
        console.print(_rounds("A stand-in with recorded answers", part["sizes"]))
        if part["history"]:
            console.print(_history(part["history"]))
    if (part := found.get("real")) is not None:
        title = f"A real Prometheus with {part['series'] / 1e6:.1f} million series"
        console.print(_rounds(title, part["sizes"]))
        _against_naive(part, console)
    if (part := found.get("scrape")) is not None:
        _scrape(part, console)
    for name, value, most in targets(found):
        verdict = "[green]met[/]" if value <= most else "[red]missed[/]"
        console.print(f"{verdict}: {name}: {value:.4g} (at most {most:g})")


def targets(found: JsonObject) -> list[tuple[str, float, float]]:
    """Each target that this run says something of: its name, the number, the most it may be."""
    rows = []
    for part in ("recorded", "real"):
        sizes = [one for one in found.get(part, {}).get("sizes", ()) if one["signals"] == RULES]
        if not sizes:
            continue
        large = max(sizes, key=lambda one: one["pods"])
        where = f"{part}, {large['pods']} pods"
        rows += [
            (f"{where}: CPU seconds of a round and a tick", _cpu(large), CPU_S),
            (f"{where}: peak memory in MB", large["peak_rss_mb"], RSS_MB),
            (f"{where}: queries a round", large["most_queries"], QUERIES),
        ]
        small = min(sizes, key=lambda one: one["pods"])
        if small is not large:
            ratio = (_cpu(large) / large["pods"]) / (_cpu(small) / small["pods"])
            rows.append((f"{where}: cost per pod over that of {small['pods']}", ratio, PER_POD))
    return rows


def _cpu(one: JsonObject) -> float:
    return float(one["sample_cpu_s"] + one["collect_cpu_s"])


def _rounds(title: str, sizes: list[JsonObject]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in (
        "signals",
        "pods",
        "policies",
        "queries",
        "MB received",
        "round CPU s",
        "wall s",
        "tick CPU s",
        "both, us a pod",
        "peak MB",
        "server CPU s",
    ):
        table.add_column(name, justify="left" if name == "signals" else "right")
    for one in sizes:
        received = f"{one['body_bytes'] / 1e6:.0f}" if "body_bytes" in one else ""
        server = f"{one['server_cpu_s']:.1f}" if "server_cpu_s" in one else ""
        table.add_row(
            one["signals"],
            f"{one['pods']}",
            f"{one['policies']}",
            f"{one['queries']}",
            received,
            f"{one['sample_cpu_s']:.2f}",
            f"{one['sample_wall_s']:.2f}",
            f"{one['collect_cpu_s']:.2f}",
            f"{_cpu(one) / one['pods'] * 1e6:.0f}",
            f"{one['peak_rss_mb']:.0f}",
            server,
        )
    return table


def _history(rows: list[JsonObject]) -> Table:
    table = Table(title="Memory added by a history that fills up", title_justify="left")
    for name in ("signals", "rounds", "pods", "kB a pod", "MB more for 20000 pods"):
        table.add_column(name, justify="left" if name == "signals" else "right")
    for one in rows:
        # What a round needs for itself was had by the fourth; what is added after that is history.
        each = (one["rss_mb"][-1] - one["rss_mb"][4]) / one["pods"] * 1e3
        table.add_row(
            one["signals"],
            f"{len(one['rss_mb']) - 1}",
            f"{one['pods']}",
            f"{each:.1f}",
            f"{each * 20:.0f}",
        )
    return table


def _against_naive(part: JsonObject, console: Console) -> None:
    naive = part["naive"]
    ours = next(one for one in part["sizes"] if one["signals"] == RULES)
    scale = naive["pods"] / PODS_PER_POLICY / naive["policies"]
    console.print(
        f"A query a policy and signal instead: {naive['queries'] * scale:.0f} queries, "
        f"{naive['cpu_s'] * scale:.0f} s of CPU here and {naive['server_cpu_s'] * scale:.0f} s in "
        f"Prometheus (scaled from {naive['policies']} policies): "
        f"{naive['cpu_s'] * scale / _cpu(ours):.1f} times ours here, "
        f"{naive['server_cpu_s'] * scale / ours['server_cpu_s']:.1f} times in Prometheus\n"
    )


def _scrape(part: JsonObject, console: Console) -> None:
    table = Table(title="Direct scrape", title_justify="left")
    intervals = list(part["sizes"][0]["most"])
    for name in ("replicas", "round CPU s", "wall s", "a second and core"):
        table.add_column(name, justify="right")
    for name in intervals:
        table.add_column(f"most at {name}, one core", justify="right")
    for one in part["sizes"]:
        table.add_row(
            f"{one['replicas']}",
            f"{one['cpu_s']:.2f}",
            f"{one['wall_s']:.2f}",
            f"{one['per_second_and_core']:.0f}",
            *(f"{one['most'][name]}" for name in intervals),
        )
    console.print(table)
    parser = part["parser"]
    console.print(
        f"A page of {part['page_bytes'] / 1e3:.0f} kB is read in {parser['ours_ms']:.2f} ms, by "
        f"prometheus_client in {parser['prometheus_client_ms']:.1f}: ratio {parser['ratio']:.1f}\n"
    )
