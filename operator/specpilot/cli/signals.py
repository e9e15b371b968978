"""`specpilot signals`: what is measured, of a running target or of pages that were saved."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from specpilot.cli import gpu, live, prometheus, recordings
from specpilot.cli.operator import IN_CLUSTER
from specpilot.cli.readings import readings_view
from specpilot.cli.state import StateDir
from specpilot.controller.runner import SystemClock
from specpilot.domain.ports import FleetError
from specpilot.fleets.kubernetes import FIELD_MANAGER, connect
from specpilot.telemetry import PrometheusTelemetry, ScrapeTelemetry
from specpilot.telemetry.connection import PrometheusServer
from specpilot.telemetry.gpu import PrometheusDevices

EVERY_S = 2.0
LONG_ENOUGH_S = 15.0
PROMETHEUS_EVERY_S = 15.0
PROMETHEUS_LONG_ENOUGH_S = 45.0
"""Some rounds: Prometheus knows the past, but itself looks every 15 to 60 s only."""


@prometheus.options(
    "--prometheus",
    "--prometheus-url",
    url="Ask this Prometheus instead of the replicas (with -n).",
)
def signals(
    context: typer.Context,
    *,
    state: StateDir,
    policy: Annotated[
        str, typer.Option("--policy", "-p", help="Measure the target of this policy now.")
    ] = "",
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", help="The policy is in this namespace of the cluster, not here."
        ),
    ] = "",
    recording: Annotated[
        list[Path] | None,
        typer.Option(
            "--recording",
            help="Measure saved /metrics pages: a folder of .prom files, or files (more after it).",
        ),
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Further saved pages.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="Seconds between saved pages: files as they are given, those of a folder in the "
            "order of their names, 10 after 9."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds from the page before to the one after, in this order; files called "
            "*-before* and *-after* (or *-during*) are put in it, however they sort."
        ),
    ] = None,
    mtime: Annotated[
        bool, typer.Option("--mtime", help="Saved pages were scraped when they were written.")
    ] = False,
    prometheus_options: prometheus.Options,
    gpu_matchers: gpu.Matchers = "",
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Show each single replica too.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    measure_for: Annotated[
        float | None,
        typer.Option(
            "--for", help="Seconds to measure before the table is shown.", show_default="15"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Plain data for machines.")] = False,
) -> None:
    """Show every signal with its value, or why it has none.

    Of a running target: `specpilot signals --policy chat`, in a cluster with `-n NAMESPACE`.
    Of saved pages: `specpilot signals --recording before.prom after.prom --seconds 30`.
    """
    pages = [*(recording or []), *(files or [])]
    timing = recordings.Timing(interval_s=interval, seconds=seconds, mtime=mtime)
    if files and len(recording or []) != 1:
        raise typer.BadParameter(
            f"{files[0]}: saved pages come after --recording, all after one, or one after each",
            param_hint="FILE",
        )
    if bool(policy) == bool(pages):
        raise typer.BadParameter(
            "give either --policy NAME, to measure its target, or --recording FILE, to measure "
            "saved pages",
            param_hint="--policy",
        )
    if pages:
        if watch or measure_for is not None or replicas or namespace:
            raise typer.BadParameter(
                "--watch, --for, --replicas and -n are for a running target; leave them out",
                param_hint="--recording",
            )
        _refuse_prometheus(context, "is for a policy of a cluster; leave it out")
        _saved(pages, timing, as_json=as_json)
        return
    if timing.given:
        raise typer.BadParameter(
            "--interval, --seconds and --mtime are for saved pages; leave them out, or name the "
            "pages with --recording",
            param_hint="--policy",
        )
    if measure_for is not None and not 0 < measure_for <= 86400:  # noqa: PLR2004 - a day
        raise typer.BadParameter(
            f"{measure_for:g} is no time to measure; give seconds above 0, at most a day",
            param_hint="--for",
        )
    server = None
    if not namespace:
        remedy = "is for a policy of a cluster; say its namespace with -n, or leave it out"
        _refuse_prometheus(context, remedy)
    else:
        server = prometheus_options.server()
        if server is None:
            _refuse_prometheus(context, "goes with --prometheus URL; add it, or leave this out")
    with _measurement(policy, namespace, state, server, gpu_matchers=gpu_matchers) as found:
        measurement, every = found
        enough = measure_for or (PROMETHEUS_LONG_ENOUGH_S if server else LONG_ENOUGH_S)
        if watch:
            _watch(measurement, every, with_replicas=replicas, as_json=as_json)
        else:
            _once(measurement, every, enough, with_replicas=replicas, as_json=as_json)


def _refuse_prometheus(context: typer.Context, words: str) -> None:
    """Refuse options of a Prometheus that will not be asked; variables are for other commands too.

    Raises:
        BadParameter: One is on the command line.
    """
    for each in context.command.params:
        name = each.name or ""
        source = context.get_parameter_source(name)
        said = source is not None and source.name == "COMMANDLINE"
        if said and name.startswith(("prometheus", "gpu")):
            raise typer.BadParameter(words, param_hint=each.opts[0])


def _saved(pages: list[Path], timing: recordings.Timing, *, as_json: bool) -> None:
    recording = recordings.load(pages, timing)
    for words in recordings.warnings(recording):
        print(f"warning: {words}", file=sys.stderr)
    if as_json:
        print(json.dumps(recordings.report(recording), indent=2, allow_nan=False))
        return
    count, window = len(recording.saved), recording.saved[-1].at - recording.saved[0].at
    head = "1 page" if count == 1 else f"{count} pages over {window:g} s"
    if recording.dated:
        head += f", until {recording.end:%Y-%m-%d %H:%M:%S} UTC"
    title = f"{head}; speculation: {recordings.speculation(recording)}"
    Console().print(readings_view(recordings.measure(recording), title=title, now=None))


@contextmanager
def _measurement(
    policy: str,
    namespace: str,
    state: Path,
    server: PrometheusServer | None,
    *,
    gpu_matchers: str,
) -> Iterator[tuple[live.Measurement, float]]:
    """What is measured, and how often."""
    clock = SystemClock()
    with ExitStack() as stack:
        if namespace:
            api = connect(in_cluster=IN_CLUSTER.exists(), field_manager=FIELD_MANAGER)
            stack.callback(api.close)
            found, observe = live.in_a_cluster(policy, namespace, api)
        else:
            found, observe = live.on_this_machine(policy, state)
        every = EVERY_S
        telemetry: ScrapeTelemetry | PrometheusTelemetry
        devices: PrometheusDevices | None = None
        if server is not None:
            every = PROMETHEUS_EVERY_S
            telemetry = PrometheusTelemetry(server=server, clock=clock, interval_s=every)
            devices = PrometheusDevices(
                server=server, clock=clock, matchers=gpu_matchers, interval_s=every
            )
            stack.callback(devices.close)
        else:
            telemetry = ScrapeTelemetry(clock=clock, interval_s=every)
        stack.callback(telemetry.close)
        yield (
            live.Measurement(
                policy=found,
                observe=observe,
                telemetry=telemetry,
                devices=devices,
                clock=clock,
                knows_past=server is not None,
            ),
            every,
        )


def _look(measurement: live.Measurement) -> None:
    state = measurement.look()
    if state.replicas:
        return
    if state.problem is not None:
        raise FleetError(state.problem.message)
    raise FleetError(
        f"no replica of {state.ref} runs; start them with `specpilot local`"
        if state.ref.kind == "Local"
        else f"{state.ref} has no replica; scale it up, or see its events"
    )


def _once(
    measurement: live.Measurement,
    every: float,
    enough: float,
    *,
    with_replicas: bool,
    as_json: bool,
) -> None:
    begun = time.monotonic()
    _look(measurement)
    state = measurement.state
    Console(stderr=True).print(
        f"measuring {len(state.live())} replicas of {state.ref} for {enough:g} s, a sample every "
        f"{every:g} s; --for SECONDS changes that, --watch goes on",
        highlight=False,
        markup=False,
    )
    due = begun
    while (left := begun + enough - time.monotonic()) > 0:
        due += every
        time.sleep(max(0.0, min(left, due - time.monotonic())))
        _look(measurement)
    measured = measurement.answer()
    if as_json:
        print(json.dumps(measured.as_data(with_replicas=with_replicas), indent=2, allow_nan=False))
    else:
        Console().print(_page(measured, with_replicas=with_replicas))


def _watch(
    measurement: live.Measurement, every: float, *, with_replicas: bool, as_json: bool
) -> None:
    """Refresh until Ctrl-C; for machines, one line of JSON a refresh."""
    with Live(console=Console(), auto_refresh=False) if not as_json else ExitStack() as screen:
        while True:
            due = time.monotonic() + every
            _look(measurement)
            measured = measurement.answer()
            if isinstance(screen, Live):
                screen.update(_page(measured, with_replicas=with_replicas), refresh=True)
            else:
                data = measured.as_data(with_replicas=with_replicas)
                print(json.dumps(data, allow_nan=False), flush=True)
            time.sleep(max(0.0, due - time.monotonic()))


def _page(measured: live.Measured, *, with_replicas: bool) -> Group:
    counts = []
    for setting in measured.arms:
        ready, total = measured.counts(setting)
        counts.append(f"{setting} {ready} of {total} ready")
    head = f"{measured.policy.ref}, {measured.state.ref}"
    if measured.state.engine_version:
        head += f", vLLM {measured.state.engine_version}"
    lines = [Text(f"{head}\nreplicas: {', '.join(counts)}")]
    lines += [Text(f"{r.id}: {r.failure}") for r in measured.state.live() if r.failure]
    if measured.state.problem is not None:
        lines.append(Text(measured.state.problem.message))
    over = f"over {measured.window.total_seconds():.0f} s"
    tables = [
        readings_view(readings, title=f"\n{setting}, {over}", now=measured.at)
        for setting, readings in measured.arms.items()
    ]
    if with_replicas:
        tables += [
            readings_view(
                readings, title=f"\n{name} ({measured.settings[name]}), {over}", now=measured.at
            )
            for name, readings in measured.replicas.items()
        ]
    return Group(*lines, *tables)
