"""`specpilot audit`: read the audit log and verify its chain."""

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from specpilot.cli.state import StateDir, existing_state
from specpilot.cli.tables import add_row
from specpilot.domain.audit import AuditRecord

app = typer.Typer(help="Read and verify the audit log.", no_args_is_help=True)


def as_plain(record: AuditRecord) -> dict[str, Any]:
    """A record as plain data."""
    draft = {name: getattr(record.draft, name) for name in type(record.draft).__slots__}
    return {
        "seq": record.seq,
        "at": record.at.isoformat(),
        **draft,
        "prev_hash": record.prev_hash,
        "hash": record.hash,
    }


def audit_table(records: list[AuditRecord], *, title: str = "Audit log") -> Table:
    """Records as a table for people."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for column in ("#", "time", "change", "step", "by", "why"):
        table.add_column(column, overflow="fold")
    for r in records:
        add_row(
            table,
            r.seq,
            f"{r.at:%Y-%m-%d %H:%M:%S}",
            r.draft.change_id.rsplit("-", 1)[-1] or r.draft.policy,
            r.draft.action,
            r.draft.actor,
            r.draft.message,
        )
    return table


@app.command("list")
def list_records(
    state: StateDir,
    change: Annotated[str, typer.Option(help="Only this flag change.")] = "",
    policy: Annotated[str, typer.Option(help="Only this policy.")] = "",
    limit: Annotated[int, typer.Option(help="At most so many, the newest.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the newest records, oldest first."""
    store = existing_state(state)
    with store.read() as unit:
        found = unit.audit.records(
            change_id=change or None, policy=policy or None, limit=limit, newest_first=True
        )
    records = list(reversed(found))
    if as_json:
        for record in records:
            print(json.dumps(as_plain(record), default=str))
        return
    Console().print(audit_table(records))


@app.command()
def verify(
    state: StateDir,
    known_head: Annotated[
        str, typer.Option(help="A head hash noted earlier; it must still be in the chain.")
    ] = "",
) -> None:
    """Walk the chain; exits 1 when a record was altered, removed or put in."""
    store = existing_state(state)
    with store.read() as unit:
        result = unit.audit.verify(known_head=known_head)
    print(f"{result.message}: {result.records} records, head {result.head}")
    if not result.ok:
        raise typer.Exit(1)
