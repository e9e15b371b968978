"""Alembic's entry point: inside the program with its connection, or from the command line.

From a checkout: `SPECPILOT_DATABASE_URL=... alembic -c migrations/alembic.ini COMMAND`, with
`--sql` to print the statements for somebody who runs them by hand.
"""

import os

from alembic import context
from sqlalchemy import Connection

from specpilot.store.database import make_engine, parse_url
from specpilot.store.models import Base


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_type=True,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def _from_command_line() -> None:
    url = parse_url(os.environ.get("SPECPILOT_DATABASE_URL", ""))
    if context.is_offline_mode():
        context.configure(
            url=url.render_as_string(hide_password=False),
            target_metadata=Base.metadata,
            literal_binds=True,
        )
        with context.begin_transaction():
            context.run_migrations()
        return
    engine = make_engine(url, busy_timeout_s=10)
    with engine.begin() as connection:
        _run(connection)


given = context.config.attributes.get("connection")
if given is None:
    _from_command_line()
else:
    _run(given)
