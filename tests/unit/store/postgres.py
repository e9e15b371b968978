"""A PostgreSQL server of the machine's own binaries for a test run, or the reason there is none."""

import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.cluster.lifeline import die_with
from tests.cluster.ports import free_port
from tests.cluster.waiting import wait_for


class NoPostgresError(Exception):
    """This machine cannot run a PostgreSQL server."""


def _program(name: str) -> str:
    candidates = [shutil.which(name) or "", *map(str, Path("/usr/lib/postgresql").glob("*/bin"))]
    for candidate in candidates:
        path = Path(candidate) / name if Path(candidate).is_dir() else Path(candidate)
        if candidate and path.is_file():
            return str(path)
    raise NoPostgresError(f"no {name} on this machine")


def _account() -> tuple[int, int] | None:
    """The account to run as: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        raise NoPostgresError("running as root and there is no account named postgres") from None
    return entry.pw_uid, entry.pw_gid


@contextmanager
def server() -> Iterator[str]:
    """Run a server; yield the URL of its `postgres` database."""
    initdb, postgres, account = _program("initdb"), _program("postgres"), _account()
    home = Path(tempfile.mkdtemp(prefix="specpilot-pg-"))
    as_account = {} if account is None else {"user": account[0], "group": account[1]}
    if account is not None:
        os.chown(home, *account)
    try:
        data = home / "data"
        subprocess.run(
            [initdb, "-D", data, "-U", "specpilot", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=home,
            **as_account,
        )
        port = free_port()
        url = f"postgresql://specpilot@127.0.0.1:{port}/postgres"
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [postgres, "-D", data, "-k", home, "-h", "127.0.0.1", "-p", str(port), "-F"],
                stdout=log,
                stderr=log,
                cwd=home,
                preexec_fn=functools.partial(die_with, os.getpid()),  # noqa: PLW1509 - no threads yet
                **as_account,
            )
        try:
            wait_for(
                lambda: _answers(url),
                deadline=30,
                describe=lambda: f"PostgreSQL answers; its log:\n{(home / 'log').read_text()}",
            )
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=10)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def database(server_url: str, *, name: str) -> Iterator[str]:
    """Make an empty database; yield its URL."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield server_url.rpartition("/")[0] + f"/{name}"
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
