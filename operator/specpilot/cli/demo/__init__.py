"""`specpilot demo`: the main job on this machine, with simulated engines and real everything else.

Nothing is scripted: the flips come from the rules reading the engines' metrics, and the way back
on is a probe. Another seed gives other traffic.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specpilot.cli.demo.backstage import Backstage, backstage, conclude
from specpilot.cli.demo.outcome import Outcome, outcome_of
from specpilot.cli.demo.recorded import alerts_pending
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
from specpilot.cli.demo.watch import Lines, page, wait_ready, watch
from specpilot.controller.local_service import LocalService, Pace
from specpilot.domain.settings import Declared, Setting
from specpilot.engines import render
from specpilot.fleets.local import Supervision

STARTUP_S = 60.0
"""Longest wait for the six simulated engines."""

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
    with backstage(lambda webhook: documents(webhook=webhook), name="demo") as stage:
        outcome, picture, late = _run(console, stage, seed=seed)
    console.print(summary(outcome))
    if svg is not None:
        recorder = Console(record=True, width=132, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
        recorder.print(draw(picture))
        recorder.save_svg(str(svg), title="make demo")
    conclude(
        console,
        outcome.recorded,
        outcome.as_plain(),
        outcome.missing(),
        json_path=json_path,
        late_ticks=late,
    )


def _run(console: Console, stage: Backstage, *, seed: int) -> tuple[Outcome, Frame, int]:
    setting = Setting(
        name="ngram",
        method="ngram",
        num_speculative_tokens=4,
        extra={"prompt_lookup_max": 4, "prompt_lookup_min": 1},
    )
    on = Declared(setting="ngram", config=render(setting, version=ENGINE_VERSION).config)
    with LocalService(
        store=stage.store,
        state_dir=stage.state,
        pace=PACE,
        supervision=QUICK,
        initial={STEERED: on, ALWAYS_ON: on},
    ) as service:
        load_ = Traffic(
            traffic(seed=seed), gateways={n: service.fleet.gateway_url(n) for n in FLEETS}
        )
        with console.status("starting six simulated engines ..."):
            wait_ready(service, FLEETS, within=STARTUP_S)
        load_.start()
        frame = picture = _frame(stage, service, load_)
        with _screen(console) as show:
            while load_.poll() or (
                (frame.watched.changing or alerts_pending(stage.store))
                and load_.second < duration() + SETTLE_S
            ):
                frame = _frame(stage, service, load_)
                show(frame)
                if frame.second < duration():
                    picture = frame
                time.sleep(0.25)
            load_.check()
            frame = _frame(stage, service, load_)
            show(frame)
        outcome = outcome_of(stage.recorded(), traffic=load_)
        late = service.runner.late_ticks
    return outcome, picture, late


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[Frame], None]]:
    if not console.is_terminal:
        lines = Lines(console)
        yield lambda frame: lines.show(
            frame.second, stage_at(frame.second).title, frame.watched.changes
        )
        return
    with page(console) as show:
        yield lambda frame: show(draw(frame))


def _frame(stage: Backstage, service: LocalService, load_: Traffic) -> Frame:
    second = load_.second
    return Frame(
        second=second,
        watched=watch(stage.store, service, stage.receiver, target=STEERED),
        share={n: s.share(met) for n, s in load_.scores.items()},
        goodput={
            n: s.goodput(met, span=min(max(second, 1.0), duration()))
            for n, s in load_.scores.items()
        },
    )
