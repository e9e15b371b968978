"""One pod over its life: volumes, init containers, containers, status, deletion."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.cluster.kubelet.client import Client
from tests.cluster.kubelet.containers import ContainerRunner, ImageError, Launch
from tests.cluster.kubelet.environment import (
    ConfigError,
    PodContext,
    command_line,
    environment,
)
from tests.cluster.kubelet.options import KubeletOptions, find_image
from tests.cluster.kubelet.status import pod_status, timestamp
from tests.cluster.kubelet.volumes import Volumes, configuration

JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)

HOST_IP = "127.0.0.1"
_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_RETRY = 0.3


@dataclass(slots=True)
class PodWorker:
    """Runs one pod, identified by its UID.

    Attributes:
        pod: the latest version seen of the object.
        ip: its address in 127.0.0.0/8.
        base_environment: variables of every container, below those of the image.
        finished: called when nothing is left to do for this pod.
    """

    pod: JsonObject
    ip: str
    client: Client
    http: httpx.AsyncClient
    options: KubeletOptions
    base_environment: dict[str, str]
    finished: Callable[[str], None]
    _inits: list[ContainerRunner] = field(init=False)
    _containers: list[ContainerRunner] = field(init=False)
    _volumes: Volumes = field(init=False)
    _initialised: bool = False
    _reported: JsonObject = field(default_factory=dict)
    _dirty: asyncio.Event = field(default_factory=asyncio.Event)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _gone: asyncio.Event = field(default_factory=asyncio.Event)
    _told: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        spec = self.pod["spec"]
        self._inits = [self._runner(one, init=True) for one in spec.get("initContainers") or []]
        self._containers = [self._runner(one, init=False) for one in spec["containers"]]
        self._volumes = Volumes(
            client=self.client,
            directory=self.directory / "volumes",
            claims=self.options.directory / "claims",
        )

    def _runner(self, container: JsonObject, *, init: bool) -> ContainerRunner:
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if init:  # an init container is done when it succeeded, unless it says that it stays
            once = "Never" if policy == "Never" else "OnFailure"
            policy = container.get("restartPolicy") or once
        runner = ContainerRunner(
            spec=container,
            host=self,
            directory=self.directory / "containers" / container["name"],
            policy=policy,
            grace=self._grace(),
            back_off=self.options.back_off,
            isolate=self.options.isolate,
            http=self.http,
        )
        status = self.pod.get("status") or {}
        for before in status.get("initContainerStatuses" if init else "containerStatuses") or []:
            if before["name"] == container["name"] and before.get("containerID"):
                # It ran under an earlier kubelet process, with which it ended.
                runner.state.restart_count = int(before["restartCount"]) + 1
        return runner

    # -- identity -----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.pod['metadata']['namespace']}/pods/{self.name}"

    @property
    def directory(self) -> Path:
        metadata = self.pod["metadata"]
        return self.options.directory / "pods" / f"{metadata['namespace']}_{self.name}_{self.uid}"

    @property
    def _context(self) -> PodContext:
        return PodContext(pod=self.pod, ip=self.ip, host_ip=HOST_IP)

    def _grace(self) -> float:
        """Seconds that the pod has to end: as the deletion says, else as its spec says."""
        asked = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if asked is None:
            asked = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        return float(asked)

    # -- what the kubelet tells the pod -------------------------------------------------------

    def update(self, pod: JsonObject) -> None:
        """Take a newer version of the object."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._ending.set()
        self._dirty.set()  # readiness gates and annotations are others' doing

    def vanish(self) -> None:
        """The object is gone (deleted by force): end at once."""
        self._gone.set()
        self._ending.set()

    def changed(self) -> None:
        """A container has news to report."""
        self._dirty.set()

    def tell(self, *, kind: str, reason: str, message: str) -> None:
        """Record an Event on the pod; losing one does no harm."""
        task = asyncio.create_task(self._record(kind=kind, reason=reason, message=message))
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    async def _record(self, *, kind: str, reason: str, message: str) -> None:
        metadata = self.pod["metadata"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self.name}.{uuid.uuid4().hex[:16]}",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": self.name,
                "namespace": metadata["namespace"],
                "uid": self.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "kubelet", "host": self.pod["spec"].get("nodeName", "")},
            "firstTimestamp": timestamp(),
            "lastTimestamp": timestamp(),
            "count": 1,
        }
        with contextlib.suppress(httpx.HTTPError):
            await self.client.post(f"/api/v1/namespaces/{metadata['namespace']}/events", event)

    # -- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the pod until its object is deleted; then report its end and remove it."""
        life = asyncio.create_task(self._live(), name=f"pod {self.name}")
        life.add_done_callback(complain)
        report = asyncio.create_task(self._report())
        try:
            await self._ending.wait()
            await self._end()
        finally:
            for task in (life, report):
                task.cancel()
            await asyncio.gather(life, report, return_exceptions=True)
        if not self._gone.is_set():
            await self._insist(self._push)
            await self._insist(self._remove)
        self.finished(self.uid)

    async def _live(self) -> None:
        await self._project_first()
        refresh = asyncio.create_task(self._refresh())
        sidecars: list[asyncio.Task[int]] = []
        try:
            if not await self._initialise(sidecars):
                return
            self._initialised = True
            self.changed()
            await asyncio.gather(*(one.run() for one in self._containers))
        finally:
            for task in (refresh, *sidecars):
                task.cancel()
            self.changed()

    async def _project_first(self) -> None:
        while True:
            try:
                return await self._volumes.project(self._context)
            except (ConfigError, httpx.HTTPError) as error:
                message = str(error) or type(error).__name__
            for one in self._containers:
                if (one.state.waiting or {}).get("message") != message:
                    one.state.wait("ContainerCreating", message)
                    self.tell(kind="Warning", reason="FailedMount", message=message)
                    self.changed()
            await asyncio.sleep(_RETRY)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self.options.refresh)
            with contextlib.suppress(ConfigError, httpx.HTTPError):
                await self._volumes.project(self._context)

    async def _initialise(self, sidecars: list[asyncio.Task[int]]) -> bool:
        """Run the init containers in order; those that stay (sidecars) run beside the rest."""
        for one in self._inits:
            if one.policy == "Always":
                sidecars.append(asyncio.create_task(one.run()))
                await one.started.wait()
            elif await one.run():
                return False
        return True

    async def prepare(self, container: JsonObject) -> Launch:
        """Everything that starting ``container`` needs, from the present state of the cluster.

        Raises:
            ConfigError: something that the container refers to does not exist.
            ImageError: nothing stands for its image.
        """
        image = find_image(self.options.images_file, container.get("image", ""))
        if image is None and not container.get("command"):
            raise ImageError(f'Back-off pulling image "{container.get("image", "")}"')
        variables = environment(
            container=container,
            context=self._context,
            configuration=await configuration(self.client, self.pod),
            services=self._services(),
        )
        command = command_line(
            container=container,
            entrypoint=image.entrypoint if image else (),
            default_arguments=image.arguments if image else (),
            variables=variables,
        )
        mounts = self._volumes.mounts(container, variables=variables)
        token = next((mount.source for mount in mounts if mount.target == _SERVICE_ACCOUNT), None)
        return Launch(
            command=command,
            environment={
                **self.base_environment,
                "HOSTNAME": self.name,
                **(image.environment if image else {}),
                **variables,
            },
            mounts=mounts,
            kubeconfig=str(self._kubeconfig(token)) if token else "",
        )

    def _services(self) -> dict[str, str]:
        server = urlsplit(self.options.server)
        return {
            "KUBERNETES_SERVICE_HOST": server.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(server.port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(server.port),
        }

    def _kubeconfig(self, token: Path) -> Path:
        """The ServiceAccount as a kubeconfig, for a process without a mount namespace."""
        path = self.directory / "kubeconfig"
        cluster = {"server": self.options.server, "certificate-authority": str(token / "ca.crt")}
        context = {"cluster": "test", "user": "pod", "namespace": self.pod["metadata"]["namespace"]}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": "pod", "user": {"tokenFile": str(token / "token")}}],
                    "contexts": [{"name": "test", "context": context}],
                    "current-context": "test",
                }
            )
        )
        return path

    def log(self, container: str, *, previous: bool) -> Path | None:
        """The output of a container's present or previous run."""
        for one in [*self._inits, *self._containers]:
            if one.name == container:
                path = one.log(one.state.restart_count - previous)
                return path if path.exists() else None
        return None

    async def _end(self) -> None:
        """Stop what runs within the grace period, or at once when the object vanishes meanwhile."""
        grace = 0.0 if self._gone.is_set() else self._grace()
        runners = [*self._containers, *self._inits]
        stopping = asyncio.gather(*(one.stop(grace) for one in runners))
        hurry = asyncio.create_task(self._stop_when_gone(runners))
        await stopping
        hurry.cancel()

    async def _stop_when_gone(self, runners: list[ContainerRunner]) -> None:
        await self._gone.wait()
        await asyncio.gather(*(one.stop(0) for one in runners))

    # -- status -------------------------------------------------------------------------------

    async def _report(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            await self._insist(self._push)

    async def _insist(self, action: Callable[[], Awaitable[None]]) -> None:
        """Repeat until the API server took it."""
        while not self._gone.is_set():
            try:
                await action()
            except httpx.HTTPError as error:
                _log.info("pod %s: %s: %s", self.name, type(error).__name__, error)
                await asyncio.sleep(_RETRY)
            else:
                return

    async def _push(self) -> None:
        status = pod_status(
            self.pod,
            initialised=self._initialised,
            inits=[one.state for one in self._inits],
            containers=[one.state for one in self._containers],
            ip=self.ip,
            host_ip=HOST_IP,
            previous=self._reported.get("conditions") or [],
        )
        if status == self._reported:
            return
        # The UID makes the API server refuse the patch for another pod of the same name.
        body = {"metadata": {"uid": self.uid}, "status": status}
        if await self.client.patch_status(self.path, body) is not None:
            self._reported = status

    async def _remove(self) -> None:
        await self.client.delete_now(self.path, uid=self.uid)


def complain(task: asyncio.Task[None]) -> None:
    """Log what ended a task that nobody awaits for a while."""
    if not task.cancelled() and (error := task.exception()):
        _log.error("%s failed", task.get_name(), exc_info=error)
