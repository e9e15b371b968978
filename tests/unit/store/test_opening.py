"""Opening a database: made by migrations, refused in words, never half-made."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from specpilot.domain.memory import PolicyMemory
from specpilot.store import (
    DatabaseTooNewError,
    DatabaseUnusableError,
    Store,
    StoreBusyError,
    locate,
    migrate,
)
from specpilot.store.database import make_engine, parse_url
from specpilot.store.models import Base
from specpilot.store.turnstile import turnstile

Sql = Callable[[str], list[tuple[object, ...]]]


def test_models_and_migrations_agree(store: Store, store_url: str) -> None:
    engine = make_engine(parse_url(store_url), busy_timeout_s=5)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        unique = {
            i["name"] for i in inspect(connection).get_indexes("flag_change") if i.get("unique")
        }
    engine.dispose()
    assert unique == {"uq_flag_change_in_flight"}


def test_the_whole_schema_can_be_taken_down_and_up_again(store: Store, store_url: str) -> None:
    engine = make_engine(parse_url(store_url), busy_timeout_s=5)
    with engine.begin() as connection:
        command.downgrade(migrate.configuration(connection), "base")
    with engine.connect() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    engine.dispose()
    again = Store.open(store_url)
    assert again.health().ok
    again.close()


def test_opening_again_keeps_everything(store: Store, store_url: str) -> None:
    with store.begin() as unit:
        unit.memory.put("a", PolicyMemory(active="eagle3"))
    again = Store.open(store_url)
    with again.read() as unit:
        assert unit.memory.get("a").active == "eagle3"
    again.close()


def test_opening_waits_for_no_writer_when_there_is_nothing_to_do(
    store: Store, store_url: str
) -> None:
    with store.begin():
        Store.open(store_url, busy_timeout_s=0.1).close()


def test_a_newer_database_is_refused(store: Store, store_url: str, sql: Sql) -> None:
    sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(DatabaseTooNewError, match=r"revision 9999.*newer release"):
        Store.open(store_url)
    assert sql("SELECT version_num FROM alembic_version") == [("9999",)], "and left alone"


def test_a_second_writer_waits_and_then_is_told(store: Store, store_url: str) -> None:
    impatient = Store.open(store_url, busy_timeout_s=0.2)

    def write() -> None:
        with impatient.begin() as unit:
            unit.memory.put("b", PolicyMemory())

    with store.begin() as unit:
        unit.memory.put("a", PolicyMemory(active="x"))
        with pytest.raises(StoreBusyError, match="another process"):
            write()
        with impatient.read() as reader:
            assert reader.memory.get("a") == PolicyMemory(), "a reader sees what is committed"
    write()
    impatient.close()


def test_who_waits_goes_before_who_has_just_written(tmp_path: Path) -> None:
    """SQLite alone lets one busy writer keep another out for seconds; on PostgreSQL they queue."""
    path = tmp_path / "x.sqlite"
    busy = Store.open(f"sqlite:///{path}", busy_timeout_s=0.2)

    def write() -> None:
        with busy.begin() as unit:
            unit.memory.put("a", PolicyMemory())

    write()
    with turnstile(Path(f"{path}-turn"), timeout_s=1):  # somebody waits
        with pytest.raises(StoreBusyError, match="have been waiting"):
            write()
        with busy.read() as unit:
            assert unit.memory.get("a") == PolicyMemory(), "readers do not queue"
    write()
    busy.close()


def test_a_reader_sees_one_moment_and_cannot_write(store: Store) -> None:
    def write() -> None:
        with store.read() as unit:
            unit.memory.put("a", PolicyMemory())

    with store.read() as reader:
        assert reader.memory.get("a") == PolicyMemory()
        with store.begin() as writer:
            writer.memory.put("a", PolicyMemory(active="x"))
        assert reader.memory.get("a") == PolicyMemory()
    with pytest.raises(DatabaseUnusableError, match=r"read-?only"):
        write()
    with store.begin() as unit:
        unit.memory.put("a", PolicyMemory(active="y"))


@pytest.mark.parametrize(
    ("url", "words", "reason"),
    [
        ("/var/lib/x.sqlite", "not a URL; use sqlite:////absolute", "a path"),
        ("", "not a URL", "nothing"),
        ("mysql://root:secret@host/db", r"mysql is not supported", "another database"),
        ("sqlite://", "in memory is lost", "memory"),
        ("sqlite:///:memory:", "in memory is lost", "memory by name"),
    ],
)
def test_a_wrong_url_is_refused_in_words(url: str, words: str, reason: str) -> None:
    with pytest.raises(DatabaseUnusableError, match=words) as caught:
        Store.open(url)
    assert "secret" not in str(caught.value), reason


def test_a_server_that_is_not_there_is_told_in_words() -> None:
    pytest.importorskip("psycopg", reason="needs specpilot[postgres]")
    with pytest.raises(DatabaseUnusableError, match="refused"):
        Store.open("postgresql://u:secret@127.0.0.1:1/db")


def test_a_file_that_is_no_database_is_told_in_words(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    path.write_text("these are notes, and they are longer than a database header " * 20)
    with pytest.raises(DatabaseUnusableError, match=r"notes\.sqlite: file is not a database"):
        Store.open(f"sqlite:///{path}")
    assert path.read_text().startswith("these are notes")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_told_in_words(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(DatabaseUnusableError, match="cannot create"):
        Store.open(f"sqlite:///{tmp_path}/sub/x.sqlite")


def test_health_tells_what_is_wrong(store: Store, store_url: str, tmp_path: Path) -> None:
    assert (store.health().ok, store.health().revision) == (True, "0003")
    if store_url.startswith("sqlite"):
        store.close()
        path = Path(store_url.removeprefix("sqlite:///"))
        for leftover in path.parent.iterdir():
            leftover.unlink()
        path.parent.rmdir()
        health = store.health()
        assert not health.ok
        assert "unable to open" in health.problem


def test_the_migrations_are_found_in_a_checkout() -> None:
    assert (locate.migrations_directory() / "versions" / "0001_initial.py").is_file()


def test_the_migrations_are_found_in_an_installation(tmp_path: Path) -> None:
    """Laid out as in a wheel, with nothing of the checkout beside it."""
    package = Path(locate.__file__).parents[1]
    site = tmp_path / "site-packages"
    shutil.copytree(package, site / "specpilot", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(locate.migrations_directory(), site / "specpilot" / "_data" / "migrations")
    program = (
        "import sys; from specpilot.store import Store, locate;"
        "print(Store.open(sys.argv[1]).health().revision, locate.migrations_directory())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, f"sqlite:///{tmp_path}/x.sqlite"],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    expected = f"0003 {site}/specpilot/_data/migrations"
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize(
    ("url", "trigger"),
    [
        ("sqlite:////x.sqlite", "CREATE TRIGGER audit_record_no_update"),
        ("postgresql://u@h/d", "CREATE TRIGGER audit_record_append_only"),
    ],
)
def test_the_statements_can_be_printed_for_somebody_who_runs_them(url: str, trigger: str) -> None:
    ini = locate.migrations_directory() / "alembic.ini"
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "-c", ini, "upgrade", "head", "--sql"],
        env={
            **os.environ,
            "SPECPILOT_DATABASE_URL": url,
            "PYTHONPATH": str(Path(locate.__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert trigger in done.stdout, done.stderr


def test_sqlite_is_set_up_for_two_processes(tmp_path: Path) -> None:
    engine = make_engine(parse_url(f"sqlite:///{tmp_path}/x.sqlite"), busy_timeout_s=7)
    with engine.connect() as connection:

        def pragma(name: str) -> object:
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

        assert pragma("journal_mode") == "wal"
        assert pragma("busy_timeout") == 7000
        assert pragma("foreign_keys") == 1
        assert pragma("synchronous") == 2, "a committed record survives a power cut"
    engine.dispose()
