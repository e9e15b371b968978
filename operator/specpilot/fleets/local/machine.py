"""How a slot's wish becomes a process: command line, environment, port, log file."""

import os
from collections.abc import Callable, Collection
from concurrent.futures import Executor, Future
from datetime import UTC
from pathlib import Path

from specpilot.domain.ports import Clock
from specpilot.domain.settings import Declared
from specpilot.fleets.local import probe
from specpilot.fleets.local.command import Arguments, command_line
from specpilot.fleets.local.free_ports import free_port
from specpilot.fleets.local.process import Launch, ServerProcess, Started
from specpilot.fleets.local.spec import LocalGroup

REPLICA = "SPECPILOT_REPLICA"
SETTING = "SPECPILOT_SETTING"
CONFIG = "SPECPILOT_SPECULATIVE_CONFIG"
CHANGE = "SPECPILOT_CHANGE_ID"
ENDPOINT = "SPECPILOT_ENDPOINT"
"""Variables that tell a server, and whoever looks at it, what it is."""

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what the user may have asked for


class LocalMachine:
    """Starts and asks the servers of one group; the `Machine` of its slots.

    Args:
        spec: The group.
        log_dir: Where log files go.
        owner: Marks the group's processes.
        clock: Time of record.
        arguments: Renders what to run.
        executor: Runs health checks.
        version: The engine's version as far as known.
        ports_in_use: Ports of the group that are taken.
    """

    def __init__(
        self,
        spec: LocalGroup,
        *,
        log_dir: Path,
        owner: str,
        clock: Clock,
        arguments: Arguments,
        executor: Executor,
        version: Callable[[], str],
        ports_in_use: Callable[[], Collection[int]],
    ) -> None:
        self._spec = spec
        self._log_dir = log_dir
        self._owner = owner
        self._clock = clock
        self._arguments = arguments
        self._executor = executor
        self._version = version
        self._ports_in_use = ports_in_use
        self._launches = 0

    def launch(self, index: int, declared: Declared) -> tuple[ServerProcess, Started]:
        """Start a server; see `slot.Machine`."""
        spec = self._spec
        port = self._port_for(index)
        argv = command_line(
            spec.command,
            host=spec.host,
            port=port,
            speculation=self._arguments(declared, self._version()),
        )
        started = Started(
            declared=declared,
            host=_EVERYWHERE.get(spec.host, spec.host),
            port=port,
            instance=self._instance(index),
            at=self._clock.now(),
        )
        process = ServerProcess(
            Launch(
                argv=argv,
                env=os.environ
                | spec.environment(index)
                | {
                    REPLICA: f"{spec.name}-{index}",
                    SETTING: declared.setting,
                    CONFIG: declared.config,
                    CHANGE: declared.change_id,
                    ENDPOINT: started.endpoint,
                },
                cwd=spec.cwd,
                log=self.log_path(index),
                log_bytes=spec.log_bytes,
                log_files=spec.log_files,
                grace=spec.stop_grace,
                owner=self._owner + started.instance,
            )
        )
        return process, started

    def check(self, started: Started, *, ask_version: bool) -> Future[probe.Health]:
        """Begin a health check; see `slot.Machine`."""
        return self._executor.submit(
            probe.check,
            started.host,
            started.port,
            path=self._spec.health_path,
            timeout=self._spec.supervision.probe_timeout,
            ask_version=ask_version and not self._spec.engine_version,
        )

    def log_path(self, index: int) -> Path:
        """Log file of a replica."""
        return self._log_dir / f"{self._spec.name}-{index}.log"

    def _instance(self, index: int) -> str:
        self._launches += 1
        at = self._clock.now().astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        return f"{self._spec.name}-{index}@{at}.{self._launches}"

    def _port_for(self, index: int) -> int:
        spec, used = self._spec, self._ports_in_use()
        if not spec.ports:
            return free_port(spec.host, avoid=used)
        # Its own, or the spare one while its own is still held.
        order = (spec.ports[index], *spec.ports[spec.replicas :], *spec.ports)
        return next(port for port in order if port not in used)
