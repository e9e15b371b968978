"""`specpilot local`: supervise a fleet of inference servers on this machine and steer it."""

import logging
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specpilot.cli.resources import read_files
from specpilot.cli.state import StateDir, open_state
from specpilot.controller.applying import apply_documents
from specpilot.controller.local_service import LocalService, Pace
from specpilot.controller.runner import SystemClock
from specpilot.resources import LOCAL_NAMESPACE

console = Console(stderr=True)


def local(
    state: StateDir,
    files: Annotated[
        list[Path] | None,
        typer.Option("--filename", "-f", help="Apply these files first; - is stdin."),
    ] = None,
    tick: Annotated[float, typer.Option(help="Seconds between evaluations.")] = 5.0,
) -> None:
    """Start the LocalFleets that were applied, put a gateway before each, and steer them.

    Runs until Ctrl-C or SIGTERM; the servers are then stopped with grace. When it is killed, they
    are stopped too. Policies and rules may be applied from another terminal while it runs; a
    changed LocalFleet takes effect at the next start.
    """
    logging.getLogger("specpilot").setLevel(logging.INFO)
    store = open_state(state)
    if files:
        for done in apply_documents(read_files(files), store=store, clock=SystemClock()):
            console.print(f"{done.kind.lower()}/{done.name} {done.what}", highlight=False)
    with store.read() as unit:
        fleets = unit.resources.list(kind="LocalFleet", namespace=LOCAL_NAMESPACE)
    if not fleets:
        raise typer.BadParameter(
            "no LocalFleet was applied; begin with: specpilot local -f examples/local.yaml"
        )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with LocalService(
        store=store,
        state_dir=state,
        pace=Pace(tick=tick, reconcile=min(1.0, tick), scrape=min(2.0, tick)),
    ) as service:
        for fleet in fleets:
            console.print(
                f"{fleet.name}: {fleet.spec.get('replicas', 1)} servers behind "
                f"{service.fleet.gateway_url(fleet.name)}; logs in "
                f"{next(iter(service.fleet.logs(fleet.name).values())).parent}",
                highlight=False,
            )
        stop.wait()
        console.print("stopping ...")
