"""Where the embedded store is, and opening it."""

import os
from pathlib import Path
from typing import Annotated

import platformdirs
import typer

from specpilot.store import Store

StateDir = Annotated[
    Path,
    typer.Option(
        "--state",
        envvar="SPECPILOT_STATE",
        help="Directory of the embedded database, the logs and the fleet's state.",
        show_default="the user's state directory",
        default_factory=lambda: platformdirs.user_state_path("specpilot"),
    ),
]


def database_url(state: Path) -> str:
    """The database: SPECPILOT_DATABASE_URL, else SQLite in the state directory."""
    return os.environ.get("SPECPILOT_DATABASE_URL") or f"sqlite:///{state / 'specpilot.sqlite'}"


def open_state(state: Path) -> Store:
    """Open the store of a state directory, making both when they are not there."""
    if state.exists() and not state.is_dir():
        raise typer.BadParameter(f"--state {state} is a file; name a directory")
    state.mkdir(parents=True, exist_ok=True)
    return Store.open(database_url(state))


def existing_state(state: Path) -> Store:
    """Open the store of a state directory that is in use; a typo must not look like a new one.

    Raises:
        BadParameter: There is no database in it.
    """
    url = database_url(state)
    if url.startswith("sqlite:") and not Path(url.removeprefix("sqlite:///")).exists():
        raise typer.BadParameter(
            f"there is no database in {state}; is --state right? "
            "`specpilot apply` and `specpilot local` make one"
        )
    return open_state(state)
