"""What can be seen of one steered target while a demo runs, and how it is drawn."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from specpilot.alerts.messages import title
from specpilot.cli.audit import audit_table
from specpilot.cli.demo.receiver import Receiver
from specpilot.cli.demo.recorded import Recorded
from specpilot.cli.tables import add_row
from specpilot.controller.local_service import LocalService
from specpilot.domain.changes import ChangeKind, FlagChange, Phase
from specpilot.domain.targets import TargetRef
from specpilot.resources import LOCAL_NAMESPACE
from specpilot.store import Store

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A steered target at one moment.

    Attributes:
        replicas: A word a replica, in rich's markup.
        status: Status object of the policy.
        changes: Flag changes, newest first.
        waiting: By change, what it waits for.
        alerts: Titles of alerts received.
    """

    replicas: Sequence[str]
    status: Mapping[str, Any]
    changes: Sequence[FlagChange]
    waiting: Mapping[str, str]
    alerts: Sequence[str]

    @property
    def changing(self) -> bool:
        """Whether a change is under way."""
        return any(not c.phase.ended for c in self.changes)

    def reading(self, signal: str) -> float | None:
        """A signal's value as the policy last saw it; None when it is Unknown."""
        value = self._readings.get(signal, {}).get("value")
        return None if value is None else float(value)

    def reading_words(self, signal: str) -> str:
        """The same in words."""
        value = self.reading(signal)
        reason = self._readings.get(signal, {}).get("reason", "...")
        return f"{value:.3g}" if value is not None else f"Unknown ({reason})"

    @property
    def _readings(self) -> dict[str, dict[str, Any]]:
        return {r["signal"]: r for r in self.status.get("readings", [])}


def watch(store: Store, service: LocalService, receiver: Receiver, *, target: str) -> Watched:
    """Look at the policy `chat` and at the fleet that it steers."""
    with store.read() as unit:
        policy = unit.resources.get(
            kind="SpeculationPolicy", namespace=LOCAL_NAMESPACE, name="chat"
        )
        changes = unit.changes.recent(limit=20)
        objects = unit.resources.list(kind="FlagChange")
    state = service.fleet.observe(local(target))
    return Watched(
        replicas=[
            f"{r.id} [{'green' if r.ready else 'yellow'}]{r.declared.setting}[/]"
            + ("" if r.ready else " starting")
            for r in state.live()
        ],
        status=dict(policy.status) if policy is not None else {},
        changes=changes,
        waiting={o.name: str(o.status.get("message", "")) for o in objects},
        alerts=[title(a) for a in receiver.alerts()],
    )


def local(name: str) -> TargetRef:
    """A fleet of this machine."""
    return TargetRef(kind="Local", namespace=LOCAL_NAMESPACE, name=name)


def wait_ready(service: LocalService, names: Sequence[str], *, within: float) -> None:
    """Wait until every server answers.

    Raises:
        TimeoutError: One of them did not within so many seconds; the message tells its state.
    """
    until = time.monotonic() + within
    while True:
        states = [service.fleet.observe(local(name)) for name in names]
        if all(s.all_run(s.declared) for s in states):
            return
        if time.monotonic() > until:
            said = {r.id: r.failure or r.ready for s in states for r in s.replicas}
            raise TimeoutError(f"the engines were not ready within {within:.0f} s: {said}")
        time.sleep(0.2)


class Lines:
    """For a terminal that cannot be redrawn: a line when something happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._said: set[str] = set()

    def show(self, second: float, stage: str, changes: Sequence[FlagChange]) -> None:
        """Tell what is new."""
        if stage != self._stage:
            self._stage = stage
            self._console.print(f"[{second:5.1f} s] traffic: {stage}", markup=False)
        for change in reversed(changes):
            key = f"{change.id} {change.phase}"
            if key not in self._said:
                self._said.add(key)
                line = f"{change.origin.setting} -> {change.wanted.setting} {change.phase}"
                self._console.print(
                    f"[{second:5.1f} s]   {line}: {change.message}", markup=False, highlight=False
                )


@contextmanager
def page(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """A page that is drawn again and again; for consoles that can."""
    with Live(console=console, auto_refresh=False) as live:
        yield lambda drawn: live.update(drawn, refresh=True)


def policy_table(watched: Watched) -> Table:
    """Readings, verdict, replicas."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", min_width=10)
    table.add_column()
    readings = [f"{name} [bold]{watched.reading_words(name)}[/bold]" for name in SHOWN]
    table.add_row("readings", Text.from_markup("   ".join(readings)))
    table.add_row("verdict", Text(str(watched.status.get("verdict", "..."))))
    held = str(watched.status.get("message", ""))
    if held:
        table.add_row("held", Text(held, style="yellow"))
    table.add_row("replicas", Text.from_markup("  ".join(watched.replicas)))
    return table


def changes_table(watched: Watched) -> Table:
    """The newest changes and where they are."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("flag change", "asked by", "phase", "why"):
        table.add_column(column, header_style="dim", overflow="fold")
    for change in reversed(list(watched.changes)[:6]):
        asked = "probe" if change.kind is ChangeKind.PROBE else change.rule.rule
        why = change.message if change.phase.ended else watched.waiting.get(change.id, "")
        table.add_row(
            f"{change.origin.setting} -> {change.wanted.setting}",
            asked,
            Text(str(change.phase), style=_STYLE.get(change.phase, "cyan")),
            Text(why[:160]),
        )
    if not watched.changes:
        table.add_row("none yet", "", "", "")
    return table


def record_tables(recorded: Recorded) -> RenderableType:
    """Audit log, verification, alerts."""
    alerts = Table(title="Alerts the receiver got", title_justify="left", show_edge=False)
    for column in ("event", "change", "message"):
        alerts.add_column(column, overflow="fold")
    for alert in recorded.delivered:
        add_row(
            alerts,
            str(alert.get("event", "")),
            f"{_setting(alert.get('from'))} -> {_setting(alert.get('to'))}",
            str(alert.get("message", "")),
        )
    check = recorded.verification
    verified = Text(
        f"audit verify: {check.message}: {check.records} records, head {check.head[:16]}…",
        style="green" if check.ok else "red",
    )
    return Group(audit_table(list(recorded.records)), Text(), verified, Text(), alerts)


def _setting(side: object) -> str:
    return str(side.get("setting", "")) if isinstance(side, dict) else str(side or "")
