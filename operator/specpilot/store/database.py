"""The engine: one writer at a time, and the same words for it on SQLite and PostgreSQL.

SQLite lets one transaction write; a second one that began by reading fails when it wants to write.
So a writer says so at the start (`BEGIN IMMEDIATE`) and waits its turn. PostgreSQL gets the same
behaviour from an advisory lock: transactions here are short and few, and what one writer at a time
buys is that there are no deadlocks, no serialisation failures and no gaps in the audit chain.
Readers wait for nobody, see one moment, and cannot write.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError

from specpilot.domain.settings import canonical_json
from specpilot.store.errors import DatabaseUnusableError, StoreBusyError
from specpilot.store.models import Base
from specpilot.store.turnstile import turnstile

WRITER_LOCK = 0x5370_6563_7069_6C74
"""Key of the PostgreSQL advisory lock that the writer of a database holds ("Specpilt")."""

_READ_ONLY = "specpilot_read_only"


T = TypeVar("T")


def chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Values in lists of at most `size`: a query takes only so many parameters."""
    rest = list(values)
    return (rest[first : first + size] for first in range(0, len(rest), size))


def parse_url(text: str) -> URL:
    """Check a database URL.

    Raises:
        DatabaseUnusableError: It is not a URL of a database that Specpilot can use.
    """
    remedy = "use sqlite:////absolute/path/specpilot.sqlite or postgresql://user@host/database"
    try:
        url = make_url(text)
    except ArgumentError:
        raise DatabaseUnusableError(f"the database URL is not a URL; {remedy}") from None
    shown = url.render_as_string(hide_password=True)
    match url.drivername:
        case "sqlite" | "sqlite+pysqlite":
            if url.database in {None, "", ":memory:"} or "mode=memory" in str(url.query):
                raise DatabaseUnusableError(
                    f"database URL {shown}: a database in memory is lost with the process; {remedy}"
                )
        case "postgres" | "postgresql" | "postgresql+psycopg":
            url = url.set(drivername="postgresql+psycopg")
        case other:
            raise DatabaseUnusableError(f"database URL {shown}: {other} is not supported; {remedy}")
    return url


def make_engine(url: URL, *, busy_timeout_s: float) -> Engine:
    """Make the engine; no connection is opened yet except to put an SQLite file into WAL mode.

    Raises:
        DatabaseUnusableError: The driver is missing, or the file cannot be used.
    """
    if url.get_backend_name() == "sqlite":
        return _make_sqlite(url, busy_timeout_s=busy_timeout_s)
    return _make_postgresql(url, busy_timeout_s=busy_timeout_s)


def read_only(engine: Engine) -> Engine:
    """Return the engine for transactions that see one moment and cannot write."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_READ_ONLY: True})
    return engine.execution_options(
        **{_READ_ONLY: True}, isolation_level="REPEATABLE READ", postgresql_readonly=True
    )


def insert(connection: Connection, row: type[Base]) -> sqlite.Insert | postgresql.Insert:
    """Return an INSERT that knows ON CONFLICT, which both databases spell alike."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(row)
    return postgresql.insert(row)


def storable(text: str) -> str:
    """Replace what a text column cannot hold: NUL on PostgreSQL, lone surrogates anywhere."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def in_words(error: DBAPIError) -> DatabaseUnusableError | StoreBusyError:
    """Translate an error of the driver."""
    said = str(error.orig).strip()
    if "database is locked" in said or "lock timeout" in said:
        return StoreBusyError("another process has been writing to the database for too long")
    return DatabaseUnusableError(f"the database does not answer as it should: {said}")


def _make_sqlite(url: URL, *, busy_timeout_s: float) -> Engine:
    engine = create_engine(
        url, json_serializer=canonical_json, connect_args={"timeout": busy_timeout_s}
    )

    queue = Path(f"{url.database}-turn")

    @event.listens_for(engine, "connect")
    def _connected(dbapi_connection: Any, _record: object) -> None:
        dbapi_connection.isolation_level = None  # transactions are begun below, not by the driver
        dbapi_connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        reads = bool(connection.get_execution_options().get(_READ_ONLY))
        connection.exec_driver_sql(f"PRAGMA query_only = {int(reads)}")
        if reads:
            connection.exec_driver_sql("BEGIN")
            return
        with turnstile(queue, timeout_s=busy_timeout_s):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    _use_wal(engine, url, busy_timeout_s=busy_timeout_s)
    return engine


def _use_wal(engine: Engine, url: URL, *, busy_timeout_s: float) -> None:
    """Switch the file to WAL, which lasts. SQLite does not wait for others here, so we do."""
    path = Path(str(url.database))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DatabaseUnusableError(f"cannot create {path.parent}: {problem.strerror}") from problem
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            raw = engine.raw_connection()
            try:
                cursor = raw.cursor()
                cursor.execute("PRAGMA journal_mode = WAL")
                (mode,) = cursor.fetchone() or ("",)
            finally:
                raw.close()
            break
        except (DBAPIError, engine.dialect.loaded_dbapi.Error) as problem:
            if "locked" not in str(problem) or time.monotonic() > deadline:
                raise DatabaseUnusableError(f"cannot use the SQLite file {path}: {problem}") from (
                    problem
                )
            time.sleep(0.02)
    if mode != "wal":
        raise DatabaseUnusableError(
            f"the SQLite file {path} cannot be put into WAL mode (it stays in {mode}): "
            "keep it on a local disk, not on a network file system, or use PostgreSQL"
        )


def _make_postgresql(url: URL, *, busy_timeout_s: float) -> Engine:
    try:
        engine = create_engine(url, json_serializer=canonical_json, pool_pre_ping=True)
    except ModuleNotFoundError as problem:
        raise DatabaseUnusableError(
            f"PostgreSQL needs the driver {problem.name}: pip install 'specpilot[postgres]'"
        ) from problem

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        if connection.get_execution_options().get(_READ_ONLY):
            return
        wait_ms = round(busy_timeout_s * 1000)
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {wait_ms}")
        # A process that is stopped in mid-transaction would keep every other one from writing.
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {wait_ms}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")

    return engine
