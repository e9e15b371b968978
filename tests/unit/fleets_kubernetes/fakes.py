"""Objects as the API server writes them, and a small API server to break at will."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

from specpilot.fleets.kubernetes import Api
from specpilot.fleets.kubernetes.wiring import ARGUMENT, FIELD_PATH, VARIABLE

Object = dict[str, Any]

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
THEN = "2026-11-29T11:00:00Z"


class FixedClock:
    def now(self) -> datetime:
        return NOW


def owner(kind: str, name: str, uid: str) -> Object:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid, "controller": True}


def engine(**changes: Any) -> Object:
    """A wired container."""
    return {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["serve", "m", ARGUMENT],
        "env": [{"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": FIELD_PATH}}}],
        **changes,
    }


def deployment(
    *containers: Object,
    replicas: int = 3,
    strategy: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """At rest, unless `status` says otherwise."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "chat",
            "namespace": "serving",
            "uid": "d-1",
            "resourceVersion": "7",
            "generation": 4,
            **(metadata or {}),
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "chat"}},
            "strategy": strategy or {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": 600,
            "template": {
                "metadata": {"labels": {"app": "chat"}, "annotations": dict(annotations or {})},
                "spec": {"containers": list(containers) or [engine()]},
            },
            **spec,
        },
        "status": {
            "observedGeneration": 4,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "availableReplicas": replicas,
            **(status or {}),
        },
    }


def replica_set(of: Object, *, uid: str = "rs-1", replicas: int = 3, **annotations: str) -> Object:
    """A ReplicaSet of the Deployment's template, with other annotations if given any."""
    template = json.loads(json.dumps(of["spec"]["template"]))
    template["metadata"]["labels"]["pod-template-hash"] = uid
    if annotations:
        template["metadata"]["annotations"] = {
            f"specpilot.io/{k.replace('_', '-')}": v for k, v in annotations.items()
        }
    return {
        "metadata": {
            "name": f"chat-{uid}",
            "namespace": "serving",
            "uid": uid,
            "resourceVersion": "3",
            "creationTimestamp": THEN,
            "ownerReferences": [owner("Deployment", "chat", of["metadata"]["uid"])],
        },
        "spec": {"replicas": replicas, "template": template},
        "status": {"replicas": replicas},
    }


def pod(
    name: str = "chat-1",
    *,
    container: Object | None = None,
    annotations: Mapping[str, str] | None = None,
    conditions: Mapping[str, str | tuple[str, str, str]] | None = None,
    container_status: Mapping[str, Any] | None = None,
    replica_set_uid: str = "rs-1",
    metadata: Mapping[str, Any] | None = None,
    **status: Any,
) -> Object:
    """A pod that serves, unless told otherwise."""
    found = {"Ready": "True", "ContainersReady": "True", "PodScheduled": "True"}
    listed = []
    for kind, value in {**found, **(conditions or {})}.items():
        state, reason, message = (value, "", "") if isinstance(value, str) else value
        listed.append(
            {
                "type": kind,
                "status": state,
                "reason": reason,
                "message": message,
                "lastTransitionTime": "2026-11-29T11:02:00Z",
            }
        )
    chosen = container or engine()
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"uid-{name}",
            "resourceVersion": "9",
            "creationTimestamp": THEN,
            "annotations": dict(annotations or {}),
            "ownerReferences": [owner("ReplicaSet", f"chat-{replica_set_uid}", replica_set_uid)],
            **(metadata or {}),
        },
        "spec": {"nodeName": "gpu-1", "containers": [chosen]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "conditions": listed,
            "containerStatuses": [
                {
                    "name": chosen["name"],
                    "restartCount": 0,
                    "ready": True,
                    "state": {"running": {"startedAt": THEN}},
                    **(container_status or {}),
                }
            ],
            **status,
        },
    }


@dataclass
class Seen:
    """A request that the server got."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Reply:
    """Writes an answer. A test's handler gets one per request."""

    def __init__(self, handler: BaseHTTPRequestHandler, stopping: threading.Event) -> None:
        self._handler = handler
        self.stopping = stopping

    def json(self, body: Any, *, status: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", "application/json")
        self._handler.send_header("Content-Length", str(len(data)))
        self._handler.end_headers()
        self._handler.wfile.write(data)

    def failure(self, code: int, reason: str, message: str) -> None:
        body = {"kind": "Status", "code": code, "reason": reason, "message": message}
        self.json(body, status=code)

    def open_stream(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "application/json")
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()
        self._handler.wfile.flush()

    def event(self, kind: str, obj: Any, *, split: int = 0) -> None:
        data = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        for part in [data[:split], data[split:]] if split else [data]:
            self._handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self._handler.wfile.flush()

    def end_stream(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")

    def hang(self) -> None:
        """Say nothing more until the test is over."""
        self.stopping.wait()
        self._handler.close_connection = True

    def cut(self) -> None:
        """Close the connection in the middle."""
        self._handler.close_connection = True
        self._handler.connection.close()


Handler = Callable[[Seen, Reply], None]


@dataclass
class FakeServer:
    """An API server whose answers are a test's; it notes what it was asked."""

    url: str
    requests: list[Seen] = field(default_factory=list)

    def api(self, **options: Any) -> Api:
        configuration = Configuration(host=self.url)
        configuration.retries = False
        configuration.api_key["BearerToken"] = "Bearer token-1"
        return Api(ApiClient(configuration), **options)


@contextlib.contextmanager
def serve(handle: Handler) -> Iterator[FakeServer]:
    stopping = threading.Event()

    class Connection(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen = Seen(
                method=self.command,
                path=parts.path,
                query={k: v[0] for k, v in parse_qs(parts.query).items()},
                headers={k.lower(): v for k, v in self.headers.items()},
                body=json.loads(body) if body else None,
            )
            server.requests.append(seen)
            with contextlib.suppress(OSError):  # a client that hung up is no failure of a test
                handle(seen, Reply(self, stopping))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the base's names

        def log_message(self, *_: object) -> None:
            """Keep the tests' output for what matters."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A cut connection is what a test wanted."""

    http = Server(("127.0.0.1", 0), Connection)
    server = FakeServer(url=f"http://127.0.0.1:{http.server_address[1]}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        stopping.set()
        http.shutdown()
        thread.join()
        http.server_close()
