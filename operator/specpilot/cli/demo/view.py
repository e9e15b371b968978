"""Drawing the demo: one live page while it runs, a summary at the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specpilot.cli.audit import audit_table
from specpilot.cli.demo.outcome import Outcome
from specpilot.cli.demo.scene import ALWAYS_OFF, ALWAYS_ON, STAGES, STEERED, duration, stage_at
from specpilot.domain.changes import ChangeKind, FlagChange, Phase

NAMES = {STEERED: "Specpilot", ALWAYS_ON: "always on", ALWAYS_OFF: "always off"}
SHOWN = (
    "batch_size",
    "queue_depth",
    "mean_acceptance_length",
    "tpot_mean",
    "tokens_per_second",
)
_STYLE = {
    Phase.SUCCEEDED: "green",
    Phase.ROLLED_BACK: "yellow",
    Phase.ABORTED: "red",
}
_BAR = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is known at one moment.

    Attributes:
        second: Seconds of traffic so far.
        replicas: By fleet, a word a replica.
        status: Status object of the policy.
        changes: Flag changes, newest first.
        waiting: By change, what it waits for.
        share: By fleet, part of the requests that met their objective so far.
        goodput: By fleet, tokens per second that met their objective so far.
        alerts: Titles of alerts received.
    """

    second: float
    replicas: dict[str, list[str]]
    status: dict[str, Any]
    changes: Sequence[FlagChange]
    waiting: dict[str, str] = field(default_factory=dict)
    share: dict[str, float | None]
    goodput: dict[str, float]
    alerts: Sequence[str] = ()


def draw(frame: Frame) -> RenderableType:
    """Draw a frame."""
    return Panel(
        Group(
            _timeline(frame.second),
            Text(),
            _policy(frame),
            Text(),
            _changes(frame),
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


def _policy(frame: Frame) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", min_width=10)
    table.add_column()
    known = {r["signal"]: r for r in frame.status.get("readings", [])}
    readings = []
    for name in SHOWN:
        reading = known.get(name, {})
        value = reading.get("value")
        said = f"{value:.3g}" if value is not None else f"Unknown ({reading.get('reason', '...')})"
        readings.append(f"{name} [bold]{said}[/bold]")
    table.add_row("readings", Text.from_markup("   ".join(readings)))
    table.add_row("verdict", Text(str(frame.status.get("verdict", "..."))))
    held = str(frame.status.get("message", ""))
    if held:
        table.add_row("held", Text(held, style="yellow"))
    for fleet in (STEERED,):
        table.add_row("replicas", Text.from_markup("  ".join(frame.replicas.get(fleet, []))))
    return table


def _changes(frame: Frame) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("flag change", "asked by", "phase", "why"):
        table.add_column(column, header_style="dim", overflow="fold")
    for change in reversed(list(frame.changes)[:6]):
        asked = "probe" if change.kind is ChangeKind.PROBE else change.rule.rule
        why = change.message if change.phase.ended else frame.waiting.get(change.id, "")
        table.add_row(
            f"{change.origin.setting} -> {change.wanted.setting}",
            asked,
            Text(str(change.phase), style=_STYLE.get(change.phase, "cyan")),
            Text(why[:160]),
        )
    if not frame.changes:
        table.add_row("none yet", "", "", "")
    return table


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
    if frame.alerts:
        table.add_row(Text("alerts", style="dim"), Text(frame.alerts[-1]), "", "")
    return table


def summary(outcome: Outcome) -> RenderableType:
    """Draw the end: goodput, audit log, verification, alerts."""
    scores = Table(title="Goodput on the same arrivals", title_justify="left", show_edge=False)
    for column in ("fleet", "tokens/s within objective", "requests within objective"):
        scores.add_column(column)
    for fleet, name in NAMES.items():
        scores.add_row(name, f"{outcome.goodput[fleet]:.1f}", f"{outcome.share[fleet]:.0%}")
    alerts = Table(title="Alerts the receiver got", title_justify="left", show_edge=False)
    for column in ("event", "change", "message"):
        alerts.add_column(column, overflow="fold")
    for alert in outcome.delivered:
        alerts.add_row(
            str(alert.get("event", "")),
            f"{_setting(alert.get('from'))} -> {_setting(alert.get('to'))}",
            str(alert.get("message", "")),
        )
    check = outcome.verification
    verified = Text(
        f"audit verify: {check.message}: {check.records} records, head {check.head[:16]}…",
        style="green" if check.ok else "red",
    )
    return Group(
        audit_table(list(outcome.records)), Text(), verified, Text(), alerts, Text(), scores
    )


def _setting(side: object) -> str:
    return str(side.get("setting", "")) if isinstance(side, dict) else str(side or "")
