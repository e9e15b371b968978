"""A migrated database to copy: running all migrations takes as long as an hour of a small world."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from specpilot.store import Store


def open_copy(path: Path) -> Store:
    """Open a new SQLite database at a path, as `Store.open` would leave it."""
    path.write_bytes(_migrated())
    return Store.open(f"sqlite:///{path}")


@cache
def _migrated() -> bytes:
    with TemporaryDirectory() as directory:
        path = Path(directory, "template.sqlite")
        Store.open(f"sqlite:///{path}").close()
        return path.read_bytes()
