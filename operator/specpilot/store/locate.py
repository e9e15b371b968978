"""Where the migrations are: beside the code in a checkout, inside the package in a wheel."""

from importlib import resources
from pathlib import Path

from specpilot.store.errors import DatabaseUnusableError


def migrations_directory() -> Path:
    """Return the directory that Alembic reads.

    Raises:
        DatabaseUnusableError: The installation is incomplete.
    """
    packaged = Path(str(resources.files("specpilot"))) / "_data" / "migrations"
    checkout = Path(__file__).resolve().parents[3] / "migrations"
    for found in (packaged, checkout):
        if (found / "env.py").is_file():
            return found
    raise DatabaseUnusableError(
        f"the database migrations are neither in {packaged} nor in {checkout}: "
        "the installation is incomplete; install specpilot again"
    )
