"""HTTP requests as vLLM's server counts them: by handler, method and class of status.

vLLM mounts prometheus-fastapi-instrumentator, which counts a request when its answer has ended. Its
latencies and sizes are left out: nobody reads them here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAME: Final = "http_requests"
_HELP: Final = "Total number of requests by method, status and handler."
_EXCLUDED: Final = frozenset(
    {"/metrics", "/health", "/load", "/ping", "/version", "/server_info"}
    | {"/sim/state", "/sim/fault"}
)
_UNKNOWN: Final = "none"
"""Handler of a path that no route knows."""


@dataclass(frozen=True, slots=True)
class HttpCount:
    """Answered requests of one replica."""

    answered: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def lines(self, *, created: float | None) -> Iterator[str]:
        """The family in the text format, nothing before the first answer.

        Args:
            created: Unix time of the start; None leaves the ``_created`` series out.
        """
        if not self.answered:
            return
        kinds = (("total", "counter"), ("created", "gauge"))
        for suffix, kind in kinds if created is not None else kinds[:1]:
            yield f"# HELP {_NAME}_{suffix} {_HELP}"
            yield f"# TYPE {_NAME}_{suffix} {kind}"
            for (handler, method, status), count in sorted(self.answered.items()):
                value = float(count) if kind == "counter" else created
                labels = f'handler="{handler}",method="{method}",status="{status}"'
                yield f"{_NAME}_{suffix}{{{labels}}} {value!r}"


class Counted:
    """Middleware that counts.

    Args:
        app: What is counted.
        count: Where to.
        handlers: Paths that have a route.
    """

    def __init__(self, app: ASGIApp, *, count: HttpCount, handlers: frozenset[str]) -> None:
        self._app = app
        self._count = count
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count how it was answered."""
        if scope["type"] != "http" or scope["path"] in _EXCLUDED:
            await self._app(scope, receive, send)
            return
        status = 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            path = scope["path"]
            handler = path if path in self._handlers else _UNKNOWN
            self._count.answered[handler, scope["method"], f"{status // 100}xx"] += 1
