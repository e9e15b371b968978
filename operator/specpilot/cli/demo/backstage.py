"""What every demo needs behind the scene: a fresh database, a receiver of alerts, the documents."""

import base64
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from specpilot.cli.demo.receiver import Receiver
from specpilot.cli.demo.recorded import Recorded, read_recorded
from specpilot.cli.state import database_url
from specpilot.controller.applying import apply_documents
from specpilot.controller.runner import SystemClock
from specpilot.resources import load
from specpilot.store import Store

SECRET_VARIABLE = "SPECPILOT_DEMO_SECRET"  # noqa: S105 -- the variable, not the secret
"""Where the documents' alert channel finds its secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backstage:
    """A demo's own things.

    Attributes:
        state: Directory of the database, the logs and the fleet's state; it stays.
        store: The database, with the documents applied.
        receiver: Takes the alerts.
    """

    state: Path
    store: Store
    receiver: Receiver

    def recorded(self) -> Recorded:
        """What happened so far."""
        return read_recorded(
            store=self.store, database=database_url(self.state), receiver=self.receiver
        )


@contextmanager
def backstage(
    documents: Callable[[str], str], *, name: str, parent: Path | None = None
) -> Iterator[Backstage]:
    """Prepare a demo.

    Args:
        documents: What is applied, given the URL of the receiver.
        name: Of the state directory.
        parent: Where that is made; None means the system's directory of temporary files.
    """
    state = Path(tempfile.mkdtemp(prefix=f"specpilot-{name}-", dir=parent))
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    os.environ[SECRET_VARIABLE] = secret
    os.environ.pop("SPECPILOT_DATABASE_URL", None)
    with Receiver(secret=secret) as receiver, closing(Store.open(database_url(state))) as store:
        applied = load(documents(receiver.url), source=name)
        apply_documents(applied, store=store, clock=SystemClock())
        yield Backstage(state=state, store=store, receiver=receiver)


def conclude(
    console: Console,
    recorded: Recorded,
    plain: Mapping[str, Any],
    missing: Sequence[str],
    *,
    json_path: Path | None,
    late_ticks: int = 0,
) -> None:
    """Say what came of it, for people and, if asked, for machines.

    Raises:
        Exit: Something that was promised did not happen.
    """
    if json_path is not None:
        json_path.write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    console.print(f"\nThe database stays at {recorded.database}", highlight=False)
    for words in missing:
        console.print(f"[red]did not happen:[/red] {words}")
    if missing and late_ticks:
        console.print(
            f"{late_ticks} evaluations were late: this machine was busy with something else, "
            "and the demo's clock does not wait. Try again when it is idle."
        )
    if missing:
        raise typer.Exit(1)
    console.print("[green]Everything that was promised happened.[/green]")
