"""Drawing the demo: one live page while it runs, a summary at the end."""

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specpilot.cli.demo.outcome import Outcome
from specpilot.cli.demo.scene import ALWAYS_OFF, ALWAYS_ON, STAGES, STEERED, duration, stage_at
from specpilot.cli.demo.watch import Watched, changes_table, policy_table, record_tables

NAMES = {STEERED: "Specpilot", ALWAYS_ON: "always on", ALWAYS_OFF: "always off"}
_BAR = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is known at one moment.

    Attributes:
        second: Seconds of traffic so far.
        watched: The steered fleet.
        share: By fleet, part of the requests that met their objective so far.
        goodput: By fleet, tokens per second that met their objective so far.
    """

    second: float
    watched: Watched
    share: dict[str, float | None]
    goodput: dict[str, float]


def draw(frame: Frame) -> RenderableType:
    """Draw a frame."""
    return Panel(
        Group(
            _timeline(frame.second),
            Text(),
            policy_table(frame.watched),
            Text(),
            changes_table(frame.watched),
            Text(),
            _scores(frame),
        ),
        title="[bold]specpilot demo[/bold]: speculative decoding, switched by live measurements",
        title_align="left",
        border_style="cyan",
        padding=(1, 2),
    )


def _timeline(second: float) -> RenderableType:
    now = stage_at(second)
    line = Text()
    for stage in STAGES:
        style = "bold reverse cyan" if stage is now else "dim"
        line.append(f" {stage.title} ", style=style)
        line.append("  ")
    line.append(f"{min(second, duration()):5.0f} of {duration():.0f} s", style="dim")
    return line


def _scores(frame: Frame) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("same traffic", "goodput so far", "requests within their objective", ""):
        table.add_column(column, header_style="dim")
    best = max(frame.goodput.values(), default=0.0)
    for fleet, name in NAMES.items():
        share, tokens = frame.share.get(fleet), frame.goodput.get(fleet, 0.0)
        width = round(_BAR * tokens / best) if best else 0
        style = "green" if fleet == STEERED else "blue"
        table.add_row(
            Text(name, style="bold" if fleet == STEERED else ""),
            f"{tokens:6.1f} tok/s",
            "" if share is None else f"{share:.0%}",
            Text("█" * width, style=style),
        )
    if not frame.watched.alerts:
        return table
    newest = Text("alert         ", style="dim")
    newest.append(frame.watched.alerts[-1], style="not dim")
    return Group(table, Text(), newest)


def summary(outcome: Outcome) -> RenderableType:
    """Draw the end: goodput, audit log, verification, alerts."""
    scores = Table(title="Goodput on the same arrivals", title_justify="left", show_edge=False)
    for column in ("fleet", "tokens/s within objective", "requests within objective"):
        scores.add_column(column)
    for fleet, name in NAMES.items():
        scores.add_row(name, f"{outcome.goodput[fleet]:.1f}", f"{outcome.share[fleet]:.0%}")
    return Group(record_tables(outcome.recorded), Text(), scores)
