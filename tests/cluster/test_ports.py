"""A port is given to one taker alone, although nobody listens on it yet."""

import socket
import subprocess
import sys

import pytest

from tests.cluster.ports import free_port

_FEW = range(19_900, 19_910)  # beyond those that other tests are given
_IN_ANOTHER_PROCESS = (
    "import sys; from tests.cluster.ports import free_port; "
    f"[print(free_port(among={_FEW!r}), flush=True) for _ in range({{count}})]; sys.stdin.read()"
)


def take_elsewhere(count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _IN_ANOTHER_PROCESS.format(count=count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_no_port_is_given_twice_among_processes() -> None:
    with take_elsewhere(4) as other:
        assert other.stdout
        theirs = {int(other.stdout.readline()) for _ in range(4)}
        ours = {free_port(among=_FEW) for _ in range(len(_FEW) - len(theirs))}
        with pytest.raises(OSError, match="no free port from 19900 to 19909"):
            free_port(among=_FEW)
        other.communicate()
    assert not theirs & ours
    assert free_port(among=_FEW) in theirs, "what a process held is free once it has ended"


def test_a_port_somebody_listens_on_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(OSError, match="no free port"):
            free_port(among=range(port, port + 1))
    assert free_port(among=range(port, port + 1)) == port
