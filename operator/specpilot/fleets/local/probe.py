"""Ask a server whether it serves, and which version it is."""

import http.client
import json
from dataclasses import dataclass

_OK = 200
_LONGEST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Answer of a health check.

    Attributes:
        ok: The server serves.
        version: The engine's version; "" when it does not say, None when it was not asked or
            did not answer.
    """

    ok: bool
    version: str | None = None


def check(host: str, port: int, *, path: str, timeout: float, ask_version: bool) -> Health:
    """Check once; takes at most a few times `timeout`, and never raises for what a server does."""
    answer = _get(host, port, path=path, timeout=timeout)
    if answer is None or answer[0] != _OK:
        return Health(ok=False)
    if not ask_version:
        return Health(ok=True)
    answer = _get(host, port, path="/version", timeout=timeout)
    return Health(ok=True, version=None if answer is None else _version(*answer))


def _get(host: str, port: int, *, path: str, timeout: float) -> tuple[int, bytes] | None:
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read(_LONGEST)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _version(status: int, body: bytes) -> str:
    if status != _OK:
        return ""
    try:
        version = json.loads(body)["version"]
    except (ValueError, KeyError, TypeError):
        return ""
    return version if isinstance(version, str) else ""
