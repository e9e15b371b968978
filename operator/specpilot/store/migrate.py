"""Brings a database to the schema of this release; two processes may start at the same time."""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from specpilot import __version__
from specpilot.store.database import read_only
from specpilot.store.errors import DatabaseTooNewError
from specpilot.store.locate import migrations_directory


def configuration(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration; its commands run in the connection's transaction."""
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(engine: Engine) -> None:
    """Upgrade to the newest revision, all steps in one transaction.

    Raises:
        DatabaseTooNewError: The database is at a revision that this release does not know.
    """
    config = configuration()
    script = ScriptDirectory.from_config(config)
    with read_only(engine).connect() as connection:
        if current(connection) == set(script.get_heads()):
            return
    with engine.begin() as connection:  # waits here for the other process, then finds its work
        known = {revision.revision for revision in script.walk_revisions()}
        found = current(connection)
        if unknown := found - known:
            shown = connection.engine.url.render_as_string(hide_password=True)
            raise DatabaseTooNewError(
                f"the database {shown} is at revision {', '.join(sorted(unknown))}, which "
                f"Specpilot {__version__} does not know: it was written by a newer release. "
                "Run that release, or restore a backup from before its upgrade"
            )
        command.upgrade(configuration(connection), "head")


def current(connection: Connection) -> set[str]:
    """Return the revisions the database is at; empty for a new one."""
    return set(MigrationContext.configure(connection).get_current_heads())
