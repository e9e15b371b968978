"""One container over its life: start, probes, end, back-off, start again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.cluster.kubelet import sandbox
from tests.cluster.kubelet.environment import ConfigError
from tests.cluster.kubelet.options import BackOff
from tests.cluster.kubelet.probes import Handler, observe
from tests.cluster.kubelet.status import ContainerState
from tests.cluster.kubelet.volumes import Mount

JsonObject = dict[str, Any]

_log = logging.getLogger(__name__)

_RETRY_CONFIGURATION = 0.5
_LEAST_GRACE = 2.0
"""Seconds that a container gets after SIGTERM even when ``preStop`` used up the grace period."""


class ImageError(Exception):
    """No local command stands for the image: the kubelet's ``ImagePullBackOff``."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A container ready to be started."""

    command: list[str]
    environment: dict[str, str]
    mounts: list[Mount]
    kubeconfig: str = ""


class Host(Protocol):
    """What a container needs of its pod."""

    @property
    def ip(self) -> str: ...

    @property
    def name(self) -> str: ...

    async def prepare(self, container: JsonObject) -> Launch: ...

    def changed(self) -> None: ...

    def tell(self, *, kind: str, reason: str, message: str) -> None: ...


@dataclass(slots=True)
class ContainerRunner:
    """Runs one container of a pod.

    Attributes:
        spec: the container of the pod's spec.
        host: the pod.
        directory: for logs and what the sandbox needs.
        policy: ``Always``, ``OnFailure`` or ``Never``.
        grace: seconds between SIGTERM and SIGKILL when a liveness probe ends it.
        back_off: the pauses between restarts.
        isolate: use namespaces where possible.
        http: for probes.
        started: set once the container has started and its startup probe, if any, has passed.
    """

    spec: JsonObject
    host: Host
    directory: Path
    policy: str
    grace: float
    back_off: BackOff
    isolate: bool
    http: httpx.AsyncClient
    state: ContainerState = field(init=False)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    _process: asyncio.subprocess.Process | None = None
    _launch: Launch | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False
    _pause: float = 0.0

    def __post_init__(self) -> None:
        self.state = ContainerState(name=self.spec["name"], image=self.spec.get("image", ""))
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def name(self) -> str:
        return self.state.name

    async def run(self) -> int:
        """Run until the container is not to be started again; the answer is its last exit code."""
        while True:
            started = asyncio.get_running_loop().time()
            code = await self._once()
            if (
                self._stopping
                or self.policy == "Never"
                or (self.policy == "OnFailure" and not code)
            ):
                return code
            if asyncio.get_running_loop().time() - started > self.back_off.forgotten_after:
                self._pause = 0.0
            if self._pause:
                await self._wait_back_off()
            self._pause = min(self._pause * 2 or self.back_off.first, self.back_off.longest)
            self.state.restart_count += 1

    async def _wait_back_off(self) -> None:
        which = f"container={self.name} pod={self.host.name}"
        message = f"back-off {self._pause:g}s restarting failed {which}"
        self.state.wait("CrashLoopBackOff", message)
        self.host.changed()
        self.host.tell(kind="Warning", reason="BackOff", message=message)
        await asyncio.sleep(self._pause)

    async def _once(self) -> int:
        self._launch = launch = await self._prepared()
        if self._stopping:
            return 0
        spec = self._write_spec(launch)
        self._ended.clear()
        with self.log(self.state.restart_count).open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", sandbox.__file__, "run", str(spec)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.state.run(container_id=f"local://{process.pid}")
        if "startupProbe" not in self.spec:
            self._has_started()
        else:
            self.host.changed()
        companions = [
            asyncio.create_task(one) for one in (self._watch_health(), self._post_start())
        ]
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            self._signal(signal.SIGKILL)
            raise
        finally:
            for task in companions:
                task.cancel()
            await asyncio.gather(*companions, return_exceptions=True)
        self._ended.set()
        error = self._error_file.read_text() if self._error_file.exists() else ""
        if error:
            self.state.terminate(exit_code=code, reason="StartError", message=error)
            self.host.tell(kind="Warning", reason="Failed", message=f"Error: {error}")
        else:
            self.state.terminate(exit_code=code, reason="Error" if code else "Completed")
        self.host.changed()
        return code

    async def _prepared(self) -> Launch:
        """Resolve environment, arguments and volumes; wait for what is missing, saying why."""
        while True:
            try:
                return await self.host.prepare(self.spec)
            except ConfigError as error:
                reason, message = "CreateContainerConfigError", str(error)
            except ImageError as error:
                reason, message = "ImagePullBackOff", str(error)
            except httpx.HTTPError as error:
                reason, message = "ContainerCreating", f"{type(error).__name__}: {error}"
            if (self.state.waiting or {}).get("reason") != reason:
                self.host.tell(kind="Warning", reason="Failed", message=f"Error: {message}")
            self.state.wait(reason, message)
            self.host.changed()
            await asyncio.sleep(_RETRY_CONFIGURATION)

    def log(self, restart: int) -> Path:
        """The output of the container's ``restart``-th run."""
        return self.directory / f"{restart}.log"

    @property
    def _error_file(self) -> Path:
        return self.directory / "start-error"

    def _write_spec(self, launch: Launch) -> Path:
        root = self.directory / "root"
        root.mkdir(exist_ok=True)
        self._pid_file.unlink(missing_ok=True)
        path = self.directory / "spec.json"
        path.touch(mode=0o600)  # it holds the environment, hence secrets
        path.write_text(
            json.dumps(
                {
                    "parent": os.getpid(),
                    "isolate": self.isolate,
                    "startError": str(self._error_file),
                    "pid": str(self._pid_file),
                    "root": str(root),
                    "hostname": self.host.name[:63],
                    "directory": self.spec.get("workingDir") or "",
                    "kubeconfig": launch.kubeconfig,
                    "environment": launch.environment,
                    "command": launch.command,
                    "mounts": [
                        {
                            "source": str(mount.source),
                            "target": mount.target,
                            "readOnly": mount.read_only,
                        }
                        for mount in launch.mounts
                    ],
                }
            )
        )
        return path

    @property
    def _pid_file(self) -> Path:
        return self.directory / "pid"

    # -- probes and hooks ---------------------------------------------------------------------

    @property
    def _handler(self) -> Handler:
        return Handler(container=self.spec, ip=self.host.ip, http=self.http, execute=self._execute)

    async def _execute(self, command: list[str]) -> tuple[int, str]:
        assert self._launch
        try:
            pid = self._pid_file.read_text()
        except FileNotFoundError:
            return 1, "the container is not running"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", sandbox.__file__, "enter", pid),
            json.dumps(self._launch.environment),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        assert process.returncode is not None
        return process.returncode, output.decode(errors="replace")

    async def _post_start(self) -> None:
        hook = (self.spec.get("lifecycle") or {}).get("postStart")
        if not hook:
            return
        failure = await self._handler.fire(hook, timeout=60.0)
        if failure:
            self.host.tell(kind="Warning", reason="FailedPostStartHook", message=failure)
            await self._terminate(self.grace)

    async def _watch_health(self) -> None:
        if startup := self.spec.get("startupProbe"):
            passed = asyncio.Event()

            async def started(holds: bool, failure: str) -> None:
                if not holds:
                    await self._unhealthy("Startup", failure)
                passed.set()

            task = asyncio.create_task(
                observe(startup, handler=self._handler, on_change=started, initially=None)
            )
            try:
                await passed.wait()
            finally:
                task.cancel()
            self._has_started()
        watches = [
            observe(probe, handler=self._handler, on_change=action, initially=initially)
            for kind, action, initially in (
                ("readinessProbe", self._readiness, False),
                ("livenessProbe", self._liveness, True),
            )
            if (probe := self.spec.get(kind))
        ]
        await asyncio.gather(*watches)

    def _has_started(self) -> None:
        self.state.started = True
        self.state.ready = "readinessProbe" not in self.spec
        self.started.set()
        self.host.changed()

    async def _readiness(self, holds: bool, failure: str) -> None:
        self.state.ready = holds
        self.host.changed()
        if not holds:
            self.host.tell(
                kind="Warning", reason="Unhealthy", message=f"Readiness probe failed: {failure}"
            )

    async def _liveness(self, holds: bool, failure: str) -> None:
        if not holds:
            await self._unhealthy("Liveness", failure)

    async def _unhealthy(self, probe: str, failure: str) -> None:
        message = f"{probe} probe failed: {failure}"
        self.host.tell(kind="Warning", reason="Unhealthy", message=message)
        await self._terminate(self.grace)

    # -- the end ------------------------------------------------------------------------------

    async def stop(self, grace: float) -> None:
        """End the container for good: ``preStop``, SIGTERM, and SIGKILL after ``grace`` seconds."""
        self._stopping = True
        await self._terminate(grace)

    async def _terminate(self, grace: float) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        clock = asyncio.get_running_loop().time
        until = clock() + grace
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace > 0:
            failure = await self._handler.fire(hook, timeout=grace)
            if failure:
                self.host.tell(kind="Warning", reason="FailedPreStopHook", message=failure)
        if grace > 0:
            remaining = max(until - clock(), min(grace, _LEAST_GRACE))
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._ended.wait()
                    return
        self._signal(signal.SIGKILL)
        await self._ended.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
