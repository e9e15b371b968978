"""A turn for every writer of an SQLite file.

SQLite lets a waiting writer poll, so one that writes again and again can keep another out for many
seconds (measured on two busy cores: 4.9 s, with single-row transactions). Here the one who waits
holds the turnstile, and whoever has just written finds it held and goes second.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specpilot.store.errors import DatabaseUnusableError, StoreBusyError

_POLL_S = 0.005


@contextmanager
def turnstile(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Hold the turnstile while waiting for the database; it falls free if the process dies.

    Args:
        path: A file of its own beside the database; it stays empty.
        timeout_s: How long to wait, in seconds.

    Raises:
        DatabaseUnusableError: The file can be neither opened nor made.
        StoreBusyError: Others were waiting for longer than that.
    """
    deadline = time.monotonic() + timeout_s
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise DatabaseUnusableError(f"cannot use {path}: {problem.strerror}") from problem
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreBusyError(
                        "other processes have been waiting to write to the database for too long"
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)
