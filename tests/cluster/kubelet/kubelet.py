"""The kubelet of all nodes: watches pods that are bound to a node and keeps a worker for each."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from pathlib import Path
from typing import Any

import httpx

from tests.cluster.kubelet.client import Client
from tests.cluster.kubelet.logs import serve
from tests.cluster.kubelet.options import KubeletOptions
from tests.cluster.kubelet.pods import PodWorker, complain
from tests.cluster.kubelet.provisioner import provision

JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)

_INHERITED = ("PATH", "HOME", "LANG", "TZ", "SSL_CERT_FILE")
"""Of the kubelet's own environment, what a container has too: the machine is its base image."""


class Kubelet:
    """Level-triggered: after every list, what runs is made to match what the API server holds."""

    def __init__(self, options: KubeletOptions) -> None:
        self._options = options
        self._client = Client(options)
        self._http = httpx.AsyncClient(verify=False, trust_env=False, timeout=None)
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._addresses = itertools.cycle(range(1, 255 * 250))
        self._environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}

    async def run(self) -> None:
        """Run until cancelled; the first part that fails ends the rest."""
        server = await serve(self._options, self._find_log)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve_forever())
            group.create_task(self._watch_pods())
            group.create_task(provision(self._client, directory=self._options.directory / "claims"))

    async def _watch_pods(self) -> None:
        async for event in self._client.observe("/api/v1/pods", selector="spec.nodeName!="):
            if isinstance(event, list):
                self._reconcile(event)
            elif event["type"] == "DELETED":
                self._vanish(event["object"]["metadata"]["uid"])
            else:
                self._update(event["object"])

    def _reconcile(self, pods: list[JsonObject]) -> None:
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid in set(self._workers) - present:
            self._vanish(uid)
        for pod in pods:
            self._update(pod)

    def _vanish(self, uid: str) -> None:
        if worker := self._workers.get(uid):
            worker.vanish()

    def _update(self, pod: JsonObject) -> None:
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if worker is None:
            worker = PodWorker(
                pod=pod,
                ip=self._address(),
                client=self._client,
                http=self._http,
                options=self._options,
                base_environment=self._environment,
                finished=self._forget,
            )
            self._workers[uid] = worker
            self._tasks[uid] = asyncio.create_task(worker.run(), name=f"pod {worker.name}")
            self._tasks[uid].add_done_callback(complain)
        worker.update(pod)

    def _address(self) -> str:
        used = {worker.ip for worker in self._workers.values()}
        for number in self._addresses:
            address = f"127.{self._options.subnet}.{number // 250}.{number % 250 + 1}"
            if address not in used:
                return address
        raise AssertionError("the addresses are a cycle")

    def _find_log(self, namespace: str, pod: str, container: str, previous: bool) -> Path | None:
        for worker in self._workers.values():
            if (worker.pod["metadata"]["namespace"], worker.name) == (namespace, pod):
                return worker.log(container, previous=previous)
        return None

    def _forget(self, uid: str) -> None:
        self._workers.pop(uid, None)
        self._tasks.pop(uid, None)
