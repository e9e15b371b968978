"""`specpilot rules replay`: what a rule set would have done."""

import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specpilot.cli import prometheus, recordings
from specpilot.cli.engine_options import (
    DataParallel,
    EngineChoice,
    EngineVersion,
    RunnerChoice,
    stated,
)
from specpilot.cli.operator import INTERVAL_S
from specpilot.cli.rules import replay_series as series_of
from specpilot.cli.rules.replay_prometheus import of_prometheus
from specpilot.cli.rules.replay_story import signals_to_fetch, story, with_all_parameters
from specpilot.cli.rules.replay_view import Story, plain, view
from specpilot.cli.rules.source import (
    STDIN,
    Database,
    RuleSetArgument,
    has_database,
    resolve,
    stored,
)
from specpilot.cli.rules.steered import Namespace, steered
from specpilot.cli.state import StateDir
from specpilot.controller.replay_costs import remembered_costs
from specpilot.domain.economics import Measurement
from specpilot.domain.policy import Policy
from specpilot.resources.quantities import parse_duration
from specpilot.telemetry.connection import PrometheusServer
from specpilot.telemetry.past import PrometheusPast

_WINDOW = timedelta(minutes=5)
_PICTURE_WIDTH = 120


@prometheus.options(url="Replay the history of this Prometheus, Thanos, Mimir or VictoriaMetrics.")
def replay(
    *,
    rule_set: RuleSetArgument,
    state: StateDir,
    database: Database = "",
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Begin here: a time with its zone, Unix seconds, or how long before the end "
            "(24h). Needed with Prometheus.",
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", help="End here; the end of the series, or now, by default.")
    ] = "",
    readings: Annotated[
        str,
        typer.Option(
            "--readings",
            metavar="FILE",
            help="Replay recorded readings: CSV or JSON lines as for `rules evaluate`, with a "
            "column time; - is stdin.",
        ),
    ] = "",
    recording: Annotated[
        list[Path] | None,
        typer.Option(
            "--recording", help="Replay saved /metrics pages of one replica: a folder, or files."
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="Seconds between saved pages: files as they are given, those of a folder in the "
            "order of their names, 10 after 9."
        ),
    ] = None,
    mtime: Annotated[
        bool, typer.Option("--mtime", help="Saved pages were scraped when they were written.")
    ] = False,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            "-p",
            help="Settings, parameters, limits, window and freeze windows of this policy: its "
            "name, or a file that holds it. Needed with Prometheus.",
        ),
    ] = "",
    namespace: Namespace = "",
    engine_version: EngineVersion = "",
    engine: EngineChoice = None,
    runner: RunnerChoice = None,
    data_parallel: DataParallel = None,
    compare: Annotated[
        str, typer.Option("--compare", metavar="RULESET", help="Another rule set beside it.")
    ] = "",
    ran: Annotated[
        str,
        typer.Option(
            "--ran",
            metavar="SETTING",
            help="What really ran, where the series does not say. By default off, or the policy's "
            "first setting that speculates, judged by whether drafts were seen.",
        ),
    ] = "",
    step: Annotated[
        str,
        typer.Option(
            "--step",
            help="Time between two looks at pages or at Prometheus: the operator's interval.",
        ),
    ] = f"{INTERVAL_S:g}s",
    window: Annotated[
        str,
        typer.Option(
            "--window",
            help="Window of every signal made of pages or from Prometheus.",
            show_default="the policy's, or 5m",
        ),
    ] = "",
    pods: Annotated[
        str,
        typer.Option(
            "--pods",
            metavar="REGEX",
            help="Names of the target's pods in Prometheus. Replicas of the past are not known "
            "from Kubernetes: they are the pods of the policy's namespace whose names begin with "
            "the target's.",
            show_default="the target's name and the two endings of a Deployment's pods",
        ),
    ] = "",
    prometheus_options: prometheus.Options,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="PATH", help="Write the picture as SVG too.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="PATH", help="Write the picture as HTML too.")
    ] = None,
) -> None:
    """Replay a stretch of the past: the flips a rule set would have made, and those held back.

    Of a file: `specpilot rules replay hit-rate --readings day.csv`. Of saved pages: `--recording
    FOLDER`. Else of Prometheus: `--policy chat -n prod --prometheus-url URL --from 24h`. A flip is
    taken to succeed at once; readings stay those of what really ran, and it is said where.
    """
    if [rule_set, compare, readings].count(STDIN) > 1:
        raise typer.BadParameter("only one of RULESET, --compare and --readings can be stdin")
    if readings and recording:
        raise typer.BadParameter("give one of --readings and --recording", param_hint="--readings")
    words = [rule_set, *([compare] if compare else [])]
    found = [resolve(word, state=state, database=database) for word in words]
    engine_told = stated(engine_version, engine=engine, runner=runner, data_parallel=data_parallel)
    of = steered(policy, namespace, state=state, run=engine_told) if policy else None
    given = of.policy if of else None
    span = _duration(window, option="--window") if window else given.window if given else _WINDOW
    if given is not None:
        given = replace(given, window=span)
    every = _duration(step, option="--step")
    since, until = series_of.bound(start, option="--from"), series_of.bound(end, option="--to")
    if readings:
        series = series_of.of_rows(
            readings, rule_set=with_all_parameters(found), start=since, end=until
        )
    elif recording:
        timing = recordings.Timing(interval_s=interval, mtime=mtime)
        pages = recordings.load(recording, timing)
        for warning in recordings.warnings(pages):
            print(f"warning: {warning}", file=sys.stderr)
        series = series_of.of_pages(pages, window=span, step=every, start=since, end=until)
    else:
        server = prometheus_options.server()
        past = _past(
            given, server, window=span, step=every, signals=signals_to_fetch(found), pods=pods
        )
        if since is None:
            raise typer.BadParameter("say where to begin, such as --from 24h", param_hint="--from")
        assert given is not None, "a past is made for a policy"
        series = of_prometheus(past, start=since, end=until, settings=given.settings, ran=ran)
    measured = _measured(given, state=state, database=database)
    told = story(
        series, found, policy=given, run=of.run if of else None, ran=ran, measured=measured
    )
    _show(told, as_json=as_json, svg=svg, html=html)


def _duration(text: str, *, option: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=option) from None
    if not found:
        raise typer.BadParameter("write a duration above 0", param_hint=option)
    return found


def _measured(
    policy: Policy | None, *, state: Path, database: str
) -> Mapping[str, Sequence[Measurement]]:
    """Costs that the operator remembers of the policy's target, where its database is here."""
    if policy is None or not has_database(state=state, database=database):
        return {}
    with stored(state=state, database=database) as store:
        return remembered_costs(store, policy)


def _past(
    policy: Policy | None,
    server: PrometheusServer | None,
    *,
    window: timedelta,
    step: timedelta,
    signals: frozenset[str],
    pods: str,
) -> PrometheusPast:
    if server is None:
        raise typer.BadParameter(
            "say what to replay: --readings FILE, --recording FOLDER, or --prometheus-url URL with "
            "--policy and --from",
            param_hint="--readings",
        )
    if policy is None:
        raise typer.BadParameter(
            "Prometheus is asked about a policy's target; name the policy", param_hint="--policy"
        )
    if policy.target.kind == "Local":
        raise typer.BadParameter(
            f"{policy.ref} steers processes of this machine, and Prometheus is asked about pods; "
            "give a policy of a cluster, or --readings or --recording",
            param_hint="--policy",
        )
    return PrometheusPast(
        server=server,
        target=policy.target,
        window=window,
        step=step,
        warm_up=policy.warm_up,
        signals=signals,
        pods=pods,
    )


def _show(told: Story, *, as_json: bool, svg: Path | None, html: Path | None) -> None:
    title = f"specpilot rules replay, {told.source}"
    if svg is not None or html is not None:
        page = Console(
            record=True, width=_PICTURE_WIDTH, file=io.StringIO(), color_system="truecolor"
        )
        page.print(view(told, width=_PICTURE_WIDTH))
        if svg is not None:
            svg.write_text(page.export_svg(title=title, clear=False), encoding="utf-8")
        if html is not None:
            html.write_text(page.export_html(clear=False), encoding="utf-8")
    if as_json:
        print(json.dumps(plain(told), indent=2, ensure_ascii=False, allow_nan=False))
        return
    console = Console()
    console.print(view(told, width=console.width))
