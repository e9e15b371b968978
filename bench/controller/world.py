"""Everything around the operator that is not the control plane: a kubelet and a Prometheus.

    python -m bench.controller.world OPTIONS.json

The kubelet says of every pod that it runs and is ready, a moment after it was bound, and lets
deleted ones go; nothing is started. The Prometheus answers the operator's queries and counts them.
One process, since both need to know the pods. `/pods` and `/account` say what there is and what was
asked, `/risen` takes the moments at which the load of workloads rises.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import zlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.controller.answers import Numbers, Question, Served
from bench.controller.fleet import CONFIG
from bench.queries import UnanswerableError
from tests.cluster.kubelet.client import Client
from tests.cluster.kubelet.options import KubeletOptions
from tests.cluster.kubelet.status import timestamp

JsonObject = dict[str, Any]

_WRITERS = 16
_STARTUP_S = 1.0


class Kubelet:
    """Plays the kubelet of every node."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._at_work = asyncio.Semaphore(_WRITERS)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses = 0
        self.served: dict[str, Served] = {}

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        async for seen in self._client.observe("/api/v1/pods"):
            if isinstance(seen, list):
                present = {pod["metadata"]["uid"] for pod in seen}
                for gone in self.served.keys() - present:
                    del self.served[gone]
                for pod in seen:
                    self._take(pod)
            elif seen["type"] == "DELETED":
                self.served.pop(seen["object"]["metadata"]["uid"], None)
            else:
                self._take(seen["object"])

    def _take(self, pod: JsonObject) -> None:
        uid, status = pod["metadata"]["uid"], pod.get("status") or {}
        if pod["metadata"].get("deletionTimestamp"):
            self.served.pop(uid, None)
            self._do(f"{uid}/delete", self._remove(pod))
        elif pod["spec"].get("nodeName") and status.get("phase") == "Pending":
            self._do(f"{uid}/start", self._start(pod))
        elif status.get("podIP") and uid not in self.served:
            self._serve(pod, address=status["podIP"])

    def _do(self, key: str, work: Any) -> None:
        if key in self._tasks:
            work.close()
            return
        task = self._tasks[key] = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _start(self, pod: JsonObject) -> None:
        await asyncio.sleep(_STARTUP_S)
        self._addresses += 1
        address = ".".join(["10", *(str(self._addresses >> n & 255) for n in (16, 8, 0))])
        now = timestamp()
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        container = pod["spec"]["containers"][0]
        state = {
            "name": container["name"],
            "image": container["image"],
            "imageID": "local",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": conditions,
            "containerStatuses": [state],
        }
        async with self._at_work:
            if await self._client.patch_status(_path(pod), {"status": status}) is not None:
                self._serve(pod, address=address)

    async def _remove(self, pod: JsonObject) -> None:
        async with self._at_work:
            await self._client.delete_now(_path(pod), uid=pod["metadata"]["uid"])

    def _serve(self, pod: JsonObject, *, address: str) -> None:
        metadata = pod["metadata"]
        self.served[metadata["uid"]] = Served(
            namespace=metadata["namespace"],
            name=metadata["name"],
            workload=metadata["labels"]["app"],
            address=f"{address}:8000",
            since=time.time(),
            speculates=bool((metadata.get("annotations") or {}).get(CONFIG)),
        )


def _path(pod: JsonObject) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


class Server(ThreadingHTTPServer):
    """The Prometheus, and the account of it."""

    daemon_threads = True

    def __init__(self, port: int, *, kubelet: Kubelet) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.kubelet = kubelet
        self.numbers = Numbers(origin=time.time() - 86_400.0)
        self.risen: dict[str, float] = {}
        self.lock = threading.Lock()
        self.queries = 0
        self.looks: list[tuple[float, list[str]]] = []
        self.body_bytes = 0

    def account(self) -> JsonObject:
        """What was asked since the last time; see `rig.Asked`."""
        with self.lock:
            found = {
                "queries": self.queries,
                "looks": self.looks,
                "body_bytes": self.body_bytes,
            }
            self.queries, self.looks, self.body_bytes = 0, [], 0
        return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        match parts.path:
            case "/pods":
                self._send({"served": len(self.server.kubelet.served)})
            case "/account":
                self._send(self.server.account())
            case _:
                self._query(parts.query)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        parts = urlsplit(self.path)
        if parts.path == "/risen":
            self.server.risen |= json.loads(body)
            self._send({})
        else:
            self._query("&".join(filter(None, (parts.query, body))))

    def _query(self, parameters: str) -> None:
        pods = list(self.server.kubelet.served.values())
        try:
            question = Question.read(parameters)
            pieces = self.server.numbers.answer(question, pods=pods, risen=self.server.risen)
            body = b"".join(pieces)
        except UnanswerableError as error:
            words = {"status": "error", "errorType": "execution", "error": str(error)}
            self._send(words, status=HTTPStatus.UNPROCESSABLE_ENTITY)
            return
        with self.server.lock:
            self.server.queries += 1
            if question.begins_a_look:
                self.server.looks.append((question.at, sorted(question.namespaces)))
            self.server.body_bytes += len(body)
        self._write(body, squeeze="gzip" in self.headers.get("Accept-Encoding", ""))

    def _send(self, content: JsonObject, *, status: int = HTTPStatus.OK) -> None:
        self._write(json.dumps(content).encode(), status=status)

    def _write(self, body: bytes, *, status: int = HTTPStatus.OK, squeeze: bool = False) -> None:
        if squeeze:
            packer = zlib.compressobj(1, wbits=16 + zlib.MAX_WBITS)
            body = packer.compress(body) + packer.flush()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if squeeze:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing: one line a query helps nobody."""


async def run(options: KubeletOptions) -> None:
    client = Client(options)
    kubelet = Kubelet(client)
    server = Server(options.port, kubelet=kubelet)
    threading.Thread(target=server.serve_forever, name="prometheus", daemon=True).start()
    await kubelet.run()


if __name__ == "__main__":
    asyncio.run(run(KubeletOptions.load(Path(sys.argv[1]))))
