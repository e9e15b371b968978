"""`specpilot demo`: the main job on this machine, with simulated engines and real everything else.

Nothing is scripted: the flips come from the rules reading the engines' metrics, and the way back
on is a probe. Another seed gives other traffic.
"""

import base64
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from specpilot.cli.demo.outcome import Outcome, alerts_pending, read_outcome
from specpilot.cli.demo.receiver import Receiver
from specpilot.cli.demo.scene import (
    ALWAYS_ON,
    ENGINE_VERSION,
    FLEETS,
    STEERED,
    documents,
    duration,
    met,
    stage_at,
    traffic,
)
from specpilot.cli.demo.traffic import Traffic
from specpilot.cli.demo.view import Frame, draw, summary
from specpilot.cli.state import database_url
from specpilot.controller.applying import apply_documents
from specpilot.controller.local_service import LocalService, Pace
from specpilot.controller.runner import SystemClock
from specpilot.domain.settings import Declared, Setting
from specpilot.domain.targets import TargetRef
from specpilot.engines import render
from specpilot.fleets.local import Supervision
from specpilot.resources import LOCAL_NAMESPACE, load
from specpilot.store import Store

STARTUP_S = 60.0
"""Longest wait for the nine simulated engines."""

SETTLE_S = 45.0
"""Longest wait for the last change to end after the traffic."""

PACE = Pace(tick=0.5, reconcile=0.25, scrape=0.3)
QUICK = Supervision(probe_every=0.2, first_backoff=0.5)


def demo(
    seed: Annotated[int, typer.Option(help="Another seed, other traffic.")] = 1,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Also write what happened, for machines.")
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", help="Also save the live page at the traffic's end as a picture."),
    ] = None,
) -> None:
    """Show the main job live: readings, verdicts, flips with canary, probes, audit, alerts."""
    console = Console(width=None if Console().is_terminal else 140)
    state = Path(tempfile.mkdtemp(prefix="specpilot-demo-"))
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    os.environ["SPECPILOT_DEMO_SECRET"] = secret
    os.environ.pop("SPECPILOT_DATABASE_URL", None)
    with Receiver(secret=secret) as receiver, closing(Store.open(database_url(state))) as store:
        apply_documents(
            load(documents(webhook=receiver.url), source="demo"), store=store, clock=SystemClock()
        )
        outcome, picture = _run(console, store=store, state=state, receiver=receiver, seed=seed)
    console.print(summary(outcome))
    if svg is not None:
        recorder = Console(record=True, width=132, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
        recorder.print(draw(picture))
        recorder.save_svg(str(svg), title="make demo")
    if json_path is not None:
        json_path.write_text(json.dumps(outcome.as_plain(), indent=2) + "\n", encoding="utf-8")
    console.print(f"\nThe database stays at {outcome.database}", highlight=False)
    missing = outcome.missing()
    for words in missing:
        console.print(f"[red]did not happen:[/red] {words}")
    if missing:
        raise typer.Exit(1)
    console.print("[green]Everything that was promised happened.[/green]")


def _run(
    console: Console, *, store: Store, state: Path, receiver: Receiver, seed: int
) -> tuple[Outcome, Frame]:
    setting = Setting(
        name="ngram",
        method="ngram",
        num_speculative_tokens=4,
        extra={"prompt_lookup_max": 4, "prompt_lookup_min": 1},
    )
    on = Declared(setting="ngram", config=render(setting, version=ENGINE_VERSION).config)
    with LocalService(
        store=store,
        state_dir=state,
        pace=PACE,
        supervision=QUICK,
        initial={STEERED: on, ALWAYS_ON: on},
    ) as service:
        with console.status("starting nine simulated engines ..."):
            _wait_ready(service)
        load_ = Traffic(
            traffic(seed=seed), gateways={n: service.fleet.gateway_url(n) for n in FLEETS}
        )
        load_.start()
        frame = picture = _frame(store, service, load_, receiver)
        with _screen(console) as show:
            while load_.running or (
                (_changing(frame) or alerts_pending(store)) and load_.second < duration() + SETTLE_S
            ):
                frame = _frame(store, service, load_, receiver)
                show(frame)
                if frame.second < duration():
                    picture = frame
                time.sleep(0.25)
            load_.check()
            frame = _frame(store, service, load_, receiver)
            show(frame)
        outcome = read_outcome(
            store=store, database=database_url(state), traffic=load_, receiver=receiver
        )
    return outcome, picture


class _Lines:
    """For a terminal that cannot be redrawn: a line when something happens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._said: set[str] = set()

    def show(self, frame: Frame) -> None:
        stage = stage_at(frame.second).title
        if stage != self._stage:
            self._stage = stage
            self._console.print(f"[{frame.second:5.1f} s] traffic: {stage}", markup=False)
        for change in reversed(frame.changes):
            line = f"{change.origin.setting} -> {change.wanted.setting} {change.phase}"
            key = f"{change.id} {change.phase}"
            if key not in self._said:
                self._said.add(key)
                self._console.print(
                    f"[{frame.second:5.1f} s]   {line}: {change.message}",
                    markup=False,
                    highlight=False,
                )


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[Frame], None]]:
    if not console.is_terminal:
        yield _Lines(console).show
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda frame: live.update(draw(frame), refresh=True)


def _wait_ready(service: LocalService) -> None:
    refs = [TargetRef(kind="Local", namespace=LOCAL_NAMESPACE, name=n) for n in FLEETS]
    until = time.monotonic() + STARTUP_S
    while True:
        states = [service.fleet.observe(ref) for ref in refs]
        if all(s.all_run(s.declared) for s in states):
            return
        if time.monotonic() > until:
            said = {r.id: r.failure or r.ready for s in states for r in s.replicas}
            raise TimeoutError(f"the engines were not ready within {STARTUP_S:.0f} s: {said}")
        time.sleep(0.2)


def _changing(frame: Frame) -> bool:
    return any(not c.phase.ended for c in frame.changes)


def _frame(store: Store, service: LocalService, load_: Traffic, receiver: Receiver) -> Frame:
    with store.read() as unit:
        policy = unit.resources.get(
            kind="SpeculationPolicy", namespace=LOCAL_NAMESPACE, name="chat"
        )
        changes = unit.changes.recent(limit=20)
        objects = unit.resources.list(kind="FlagChange")
    second = load_.second
    steered = service.fleet.observe(
        TargetRef(kind="Local", namespace=LOCAL_NAMESPACE, name=STEERED)
    )
    return Frame(
        second=second,
        replicas={
            STEERED: [
                f"{r.id} [{'green' if r.ready else 'yellow'}]{r.declared.setting}[/]"
                + ("" if r.ready else " starting")
                for r in steered.live()
            ]
        },
        status=dict(policy.status) if policy is not None else {},
        changes=changes,
        waiting={o.name: str(o.status.get("message", "")) for o in objects},
        share={n: s.share(met) for n, s in load_.scores.items()},
        goodput={
            n: s.goodput(met, span=min(max(second, 1.0), duration()))
            for n, s in load_.scores.items()
        },
        alerts=[str(a.get("title") or a.get("event")) for a in receiver.alerts()],
    )
