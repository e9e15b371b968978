"""`/healthz`, `/readyz` and `/metrics` for the kubelet and for Prometheus.

Every replica answers, leader or not: a replica that waits for its turn is healthy.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

Check = Callable[[], str]
"""Returns "" when all is well, else what is not."""


class ProbeServer:
    """Serves in a thread of its own.

    Args:
        host: Address to listen on.
        port: Port to listen on.
        healthy: Whether the process should go on living.
        ready: Whether it can do its work.
        metrics: What `/metrics` shows.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        healthy: Check,
        ready: Check,
        metrics: CollectorRegistry,
    ) -> None:
        def judged(check: Check) -> Callable[[Request], Response]:
            def answer(_: Request) -> Response:
                problem = check()
                return PlainTextResponse(
                    f"{problem or 'ok'}\n", status_code=503 if problem else 200
                )

            return answer

        def exposition(_: Request) -> Response:
            return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

        app = Starlette(
            routes=[
                Route("/healthz", judged(healthy)),
                Route("/readyz", judged(ready)),
                Route("/metrics", exposition),
            ]
        )
        self._server = uvicorn.Server(
            uvicorn.Config(app, host=host, port=port, log_level="warning", lifespan="off")
        )
        self._thread = threading.Thread(target=self._server.run, name="probes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=5)
