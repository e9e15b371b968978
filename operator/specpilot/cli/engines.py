"""`specpilot engines`: what is known of each engine version, as it is used."""

import json
from typing import Annotated, Any

import typer
from packaging.version import Version
from rich.console import Console
from rich.table import Table

from specpilot.cli.tables import add_row
from specpilot.engines.capabilities import TABLE, Row, Topic
from specpilot.engines.versions import VersionError, read_version

_PIPED = 1000
"""Columns where there is no terminal, so that a row is a line."""


def engines(
    version: Annotated[
        str, typer.Option("--version", help="Only what holds for this version: 0.32.0.")
    ] = "",
    topic: Annotated[
        Topic | None, typer.Option("--topic", help="Only flags, keys, methods ...")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows for machines.")] = False,
) -> None:
    """Show what each vLLM version does with what it is told about speculation."""
    release, note = _release(version)
    rows = [
        row
        for row in TABLE
        if (release is None or release in row.span) and (topic is None or row.topic is topic)
    ]
    if note:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        print(json.dumps([as_object(row) for row in rows], indent=2))
        return
    table = Table(show_edge=False, box=None, pad_edge=False)
    for title in ("TOPIC", "WHAT", "SINCE", "UNTIL", "ENGINE", "EFFECT", "KNOWN", "SOURCE"):
        table.add_column(title, no_wrap=title not in {"WHAT", "EFFECT", "SOURCE"}, overflow="fold")
    for row in rows:
        add_row(
            table,
            row.topic,
            row.name,
            row.span.since,
            row.span.until or "",
            "" if row.on == "any" else row.on,
            row.outcome,
            row.certainty,
            row.source,
        )
    console = Console()
    if not console.is_terminal:
        console.width = _PIPED
    console.print(table)


def _release(text: str) -> tuple[Version | None, str]:
    if not text:
        return None, ""
    try:
        engine = read_version(text)
    except VersionError as error:
        raise typer.BadParameter(str(error), param_hint="--version") from error
    if engine.beyond:
        return engine.release, f"{engine.note}; what is new in it is for the canary to find out"
    return engine.release, engine.note


def as_object(row: Row) -> dict[str, Any]:
    """The row for machines."""
    return {
        "topic": str(row.topic),
        "what": row.name,
        "since": str(row.span.since),
        "until": None if row.span.until is None else str(row.span.until),
        "engine": str(row.on),
        "effect": str(row.effect),
        "why": row.why or None,
        "condition": row.condition or None,
        "source": row.source,
        "certainty": str(row.certainty),
    }
