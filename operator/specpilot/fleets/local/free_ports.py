"""Choose ports nobody uses, and that the system will not hand out before the server takes them.

`bind` to port 0 gives a port of the ephemeral range. A server that loads a model listens a minute
later, and by then one of the gateway's own outgoing connections may have been given that port. So
ports come from below that range.
"""

import errno
import random
import socket
from collections.abc import Collection
from pathlib import Path

_LOWEST, _HIGHEST = 20000, 32767
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(host: str, *, avoid: Collection[int] = ()) -> int:
    """Return a port that can be listened on now.

    Raises:
        OSError: None was found, or the address is not one of this machine.
    """
    highest = min(_HIGHEST, _ephemeral_start() - 1)
    if highest <= _LOWEST:  # a system with an unusual range: any port is as good as another
        highest = _HIGHEST
    for port in random.sample(range(_LOWEST, highest + 1), highest - _LOWEST + 1):
        if port not in avoid and is_free(host, port):
            return port
    raise OSError(errno.EADDRINUSE, f"no free port from {_LOWEST} to {highest} on {host}")


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now.

    Raises:
        OSError: The address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _ephemeral_start() -> int:
    try:
        return int(_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _HIGHEST + 1
