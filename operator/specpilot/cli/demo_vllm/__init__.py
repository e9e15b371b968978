"""`specpilot demo-vllm`: the main job on real vLLM servers, on the CPU of this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specpilot.cli.demo.backstage import backstage, conclude
from specpilot.cli.demo.watch import Lines, changes_table, page, policy_table, record_tables
from specpilot.cli.demo_vllm.engine import EngineMissingError, installed, needs
from specpilot.cli.demo_vllm.scene import documents
from specpilot.cli.demo_vllm.story import STEPS, Moment, Outcome, perform


def demo_vllm(
    engine: Annotated[
        Path,
        typer.Option(help="Directory of the engine: see scripts/engine/install.py --path."),
    ],
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Also write what happened, for machines.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(help="End after so many minutes, wherever the story is.")
    ] = 30.0,
) -> None:
    """Show the main job on two real vLLM servers: flip off, probe, flip on, by their own metrics.

    Takes about eight minutes on two cores that nothing else uses.
    """
    console = Console(width=None if Console().is_terminal else 140)
    try:
        found = installed(engine)
    except EngineMissingError as error:
        raise typer.BadParameter(str(error), param_hint="--engine") from error
    console.print(needs(found), highlight=False)
    with backstage(lambda webhook: documents(found, webhook=webhook), name="demo-vllm") as stage:
        console.print(f"Starting the servers; logs in {stage.state / 'logs'}", highlight=False)
        with _screen(console) as show:
            outcome = perform(stage, found, within=minutes * 60, show=show)
    console.print(_summary(outcome))
    conclude(console, outcome.recorded, outcome.as_plain(), outcome.missing(), json_path=json_path)


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[Moment], None]]:
    if not console.is_terminal:
        lines = Lines(console)
        yield lambda now: lines.show(now.second, now.step.title, now.watched.changes)
        return
    with page(console) as show:
        yield lambda now: show(_draw(now))


def _draw(now: Moment) -> RenderableType:
    steps = Text()
    for step in STEPS:
        steps.append(f" {step.title} ", style="bold reverse cyan" if step is now.step else "dim")
        steps.append("  ")
    steps.append(f"{now.second:.0f} s", style="dim")
    requests = Text(f"{now.tally.answered} requests answered, {len(now.tally.failures)} failed")
    if now.watched.alerts:
        requests.append(f"   last alert: {now.watched.alerts[-1]}", style="dim")
    return Panel(
        Group(
            steps,
            Text(),
            policy_table(now.watched),
            Text(),
            changes_table(now.watched),
            Text(),
            requests,
        ),
        title="[bold]specpilot demo-vllm[/bold]: two real vLLM servers, steered by their metrics",
        title_align="left",
        border_style="cyan",
        padding=(1, 2),
    )


def _summary(outcome: Outcome) -> RenderableType:
    requests = Table(title="Requests", title_justify="left", show_edge=False)
    for column in ("prompts", "answered", "failed", "tokens"):
        requests.add_column(column)
    for kind, tally in outcome.tallies.items():
        requests.add_row(kind, str(tally.answered), str(len(tally.failures)), str(tally.tokens))
    return Group(record_tables(outcome.recorded), Text(), requests)
