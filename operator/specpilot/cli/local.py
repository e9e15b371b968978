"""`specpilot local`: supervise a fleet of inference servers on this machine and steer it."""

import logging
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specpilot.cli import gpu
from specpilot.cli.resources import read_files
from specpilot.cli.state import StateDir, open_state
from specpilot.controller.applying import apply_documents
from specpilot.controller.local_service import LocalService, Pace
from specpilot.controller.runner import SystemClock
from specpilot.resources import API_VERSION, LOCAL_NAMESPACE, Document, read

console = Console(stderr=True)


def local(
    *,
    state: StateDir,
    files: Annotated[
        list[Path] | None,
        typer.Option("--filename", "-f", help="Apply these files first; - is stdin."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the fleet that COMMAND starts.")] = "local",
    replicas: Annotated[int, typer.Option(help="Servers that COMMAND starts.")] = 1,
    gateway_port: Annotated[
        int, typer.Option(help="Port for clients of COMMAND's servers; 0: a free one.")
    ] = 0,
    tick: Annotated[float, typer.Option(help="Seconds between evaluations.")] = 5.0,
    gpu_exporter: gpu.ExporterList = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="After --: the command that starts one server, `vllm serve MODEL`."),
    ] = None,
) -> None:
    """Start the LocalFleets that were applied, put a gateway before each, and steer them.

    Runs until Ctrl-C or SIGTERM; the servers are then stopped with grace. When it is killed, they
    are stopped too. Policies and rules may be applied from another terminal while it runs; a
    changed LocalFleet takes effect at the next start.
    """
    logging.getLogger("specpilot").setLevel(logging.INFO)
    exporters = gpu.exporter_urls(gpu_exporter or [])
    store = open_state(state)
    documents = read_files(files or [])
    if command:
        documents += _fleet(name, command, replicas=replicas, gateway_port=gateway_port)
    if documents:
        for done in apply_documents(documents, store=store, clock=SystemClock()):
            console.print(f"{done.kind.lower()}/{done.name} {done.what}", highlight=False)
    with store.read() as unit:
        fleets = unit.resources.list(kind="LocalFleet", namespace=LOCAL_NAMESPACE)
    if not fleets:
        raise typer.BadParameter(
            "no LocalFleet was applied; begin with: specpilot local -f examples/local.yaml, "
            "or: specpilot local --name chat --replicas 2 -- vllm serve MODEL"
        )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with LocalService(
        store=store,
        state_dir=state,
        gpu_exporters=exporters,
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


def _fleet(name: str, command: list[str], *, replicas: int, gateway_port: int) -> list[Document]:
    """Describe what was given on the command line as the resource it stands for."""
    spec: dict[str, object] = {"command": command, "replicas": replicas}
    if gateway_port:
        spec["gateway"] = {"port": gateway_port}
    fleet = {
        "apiVersion": API_VERSION,
        "kind": "LocalFleet",
        "metadata": {"name": name},
        "spec": spec,
    }
    return [read(fleet, source="command line")]
