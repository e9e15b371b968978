"""The store, and one transaction of it: what belongs together is written together or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from specpilot.store import fence, migrate
from specpilot.store.acceptance import Acceptance
from specpilot.store.audit import Audit
from specpilot.store.changes import Changes
from specpilot.store.database import in_words, make_engine, parse_url, read_only
from specpilot.store.errors import StoreError
from specpilot.store.fence import Leadership
from specpilot.store.measurements import Measurements
from specpilot.store.memory import Memories
from specpilot.store.outbox import Outbox
from specpilot.store.resources import Resources
from specpilot.store.rules import Rules


class UnitOfWork:
    """One transaction."""

    def __init__(self, connection: Connection) -> None:
        self.changes = Changes(connection)
        self.memory = Memories(connection)
        self.measurements = Measurements(connection)
        self.acceptance = Acceptance(connection)
        self.rules = Rules(connection)
        self.audit = Audit(connection)
        self.outbox = Outbox(connection)
        self.resources = Resources(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the database answers.

    Attributes:
        ok: It does.
        backend: `sqlite` or `postgresql`.
        revision: Revision of its schema, "" when not known.
        problem: What is wrong in words, "" when nothing is.
    """

    ok: bool
    backend: str
    revision: str = ""
    problem: str = ""


class Store:
    """The database. Safe to share between threads; a unit of work belongs to one of them."""

    def __init__(self, engine: Engine, *, leadership: Leadership | None = None) -> None:
        self._engine = engine
        self._readers = read_only(engine)
        self._leadership = leadership

    @classmethod
    def open(cls, url: str, *, busy_timeout_s: float = 10.0) -> "Store":
        """Open a database and bring its schema up to date.

        Args:
            url: `sqlite:////absolute/path` or `postgresql://user:password@host/database`.
            busy_timeout_s: How long a writer waits for another one, in seconds.

        Raises:
            DatabaseUnusableError: Wrong URL, missing driver, no connection, no WAL.
            DatabaseTooNewError: It was written by a newer release.
            StoreBusyError: Another process was writing for longer than the timeout.
        """
        engine = make_engine(parse_url(url), busy_timeout_s=busy_timeout_s)
        try:
            migrate.upgrade(engine)
        except DBAPIError as problem:
            engine.dispose()
            raise in_words(problem) from problem
        except StoreError:
            engine.dispose()
            raise
        return cls(engine)

    def led(self, leadership: Leadership) -> "Store":
        """The same database for a leader: each transaction that may write shows its leadership.

        Args:
            leadership: The leader's own.
        """
        return Store(self._engine, leadership=leadership)

    @contextmanager
    def begin(self) -> Iterator[UnitOfWork]:
        """Begin the one transaction that may write; commit at the end, undo on an exception.

        Never ask a network for anything inside, and never begin a second one inside: it would
        wait for the first.

        Raises:
            DeposedError: The leader it belongs to is none any more; see `led`.
            StoreBusyError: Another writer was at work for longer than the timeout.
            DatabaseUnusableError: The database failed.
        """
        with self._transaction(self._engine, leadership=self._leadership) as unit:
            yield unit

    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        """Begin a transaction that sees one moment, waits for nobody and cannot write.

        Raises:
            DatabaseUnusableError: The database failed, or a write was tried.
        """
        with self._transaction(self._readers) as unit:
            yield unit

    def health(self) -> Health:
        """Ask the database something small. Never raises for its sake."""
        backend = self._engine.dialect.name
        try:
            with self._readers.connect() as connection:
                revision = ", ".join(sorted(migrate.current(connection)))
        except DBAPIError as problem:
            return Health(ok=False, backend=backend, problem=str(in_words(problem)))
        return Health(ok=True, backend=backend, revision=revision)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @staticmethod
    @contextmanager
    def _transaction(
        engine: Engine, *, leadership: Leadership | None = None
    ) -> Iterator[UnitOfWork]:
        try:
            with engine.begin() as connection:
                if leadership is not None:
                    fence.hold(connection, leadership)
                yield UnitOfWork(connection)
        except IntegrityError:
            raise  # a fault of the program, and its words say which
        except DBAPIError as problem:
            raise in_words(problem) from problem


def open_store(url: str, *, busy_timeout_s: float = 10.0) -> Store:
    """Open a database; see `Store.open`."""
    return Store.open(url, busy_timeout_s=busy_timeout_s)
