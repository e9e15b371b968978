import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specpilot.store import Store

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="needs specpilot[postgres]")
    from tests.unit.store import postgres

    try:
        with postgres.server() as url:
            yield url
    except postgres.NoPostgresError as problem:
        pytest.skip(str(problem))


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database that does not exist (SQLite) or is empty (PostgreSQL)."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/new folder/specpilot.sqlite"
        return
    server = request.getfixturevalue("postgres_server")
    from tests.unit.store import postgres

    with postgres.database(server, name=f"test{next(_numbers)}") as url:
        yield url


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    opened = Store.open(store_url)
    yield opened
    opened.close()


@pytest.fixture
def sql(store_url: str) -> Callable[[str], list[tuple[object, ...]]]:
    """Runs SQL past the store, as somebody with a database client would."""

    def run(statement: str) -> list[tuple[object, ...]]:
        if store_url.startswith("sqlite"):
            with sqlite3.connect(store_url.removeprefix("sqlite:///")) as connection:
                rows = connection.execute(statement).fetchall()
            connection.close()
            return rows
        import psycopg

        with psycopg.connect(store_url) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return run
