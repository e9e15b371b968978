"""Which replica gets the next request. Shared by the gateway, which asks, and the supervisor."""

import threading
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Backend:
    key: str
    host: str
    port: int
    open: bool = True
    outstanding: int = 0
    chosen_at: int = 0


class Lease:
    """A request's hold on a replica, until `release`."""

    __slots__ = ("_backend", "_router")

    def __init__(self, router: "Router", backend: _Backend) -> None:
        self._router = router
        self._backend: _Backend | None = backend

    @property
    def key(self) -> str:
        """Key of the replica."""
        assert self._backend is not None
        return self._backend.key

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the replica."""
        assert self._backend is not None
        return (self._backend.host, self._backend.port)

    def release(self) -> None:
        """The request is over. May be said twice."""
        if self._backend is not None:
            self._router._release(self._backend)  # noqa: SLF001 - two halves of one idea
            self._backend = None


class Router:
    """The replicas that take requests, with their requests outstanding. Thread-safe.

    Choosing a replica and counting the request is one step under the lock: so when `withdraw` has
    returned, `outstanding` counts every request the replica will ever get from here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._backends: dict[str, _Backend] = {}
        self._choices = 0

    def offer(self, key: str, *, host: str, port: int) -> None:
        """Let a replica have requests, from now on or again."""
        with self._lock:
            known = self._backends.setdefault(key, _Backend(key=key, host=host, port=port))
            known.open = True

    def withdraw(self, key: str) -> None:
        """Send it nothing further; what it has goes on."""
        with self._lock:
            if known := self._backends.get(key):
                known.open = False

    def forget(self, key: str) -> None:
        """It is gone."""
        with self._lock:
            self._backends.pop(key, None)

    def outstanding(self, key: str) -> int:
        """Requests it has not finished."""
        with self._lock:
            known = self._backends.get(key)
            return known.outstanding if known else 0

    def acquire(self, *, avoid: Collection[str] = ()) -> Lease | None:
        """Hold the open replica with the fewest outstanding requests; None when there is none.

        Of equals the one that has waited longest: a quiet group shares its load, too.
        """
        with self._lock:
            candidates = [b for b in self._backends.values() if b.open and b.key not in avoid]
            if not candidates:
                return None
            chosen = min(candidates, key=lambda b: (b.outstanding, b.chosen_at))
            self._choices += 1
            chosen.outstanding += 1
            chosen.chosen_at = self._choices
            return Lease(self, chosen)

    def _release(self, backend: _Backend) -> None:
        with self._lock:
            backend.outstanding -= 1
