"""TCP ports for the servers that tests start, each given to one taker alone.

That a port is free says little: its taker listens only later, and several test processes look at
the same time. So a port is reserved by a lock on a file of its number, held as long as the process
that asked lives. The range is below the one in which `specpilot local` looks, and below the one
from which the kernel takes ports for outgoing connections: one of those would sooner or later sit
on the port of a server that a test restarts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_LOWEST, _HIGHEST = 10_300, 19_899
_reserved: dict[int, int] = {}  # port -> the descriptor that holds its lock


def free_port(host: str = "127.0.0.1", *, among: range = range(_LOWEST, _HIGHEST + 1)) -> int:
    """A port that is free now, and that no other test process is given while this one lives.

    Raises:
        OSError: all are taken.
    """
    directory = Path(tempfile.gettempdir()) / f"specpilot-test-ports-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    for port in random.sample(among, len(among)):
        if port in _reserved:
            continue
        lock = os.open(directory / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError), socket.socket() as probe:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            probe.bind((host, port))
            _reserved[port] = lock
            return port
        os.close(lock)
    raise OSError(errno.EADDRINUSE, f"no free port from {among[0]} to {among[-1]} on {host}")
