"""What the user says about a group of servers on one machine, checked when it is said."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from specpilot.domain.settings import Declared, canonical_json
from specpilot.fleets.local import command as cmd

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HIGHEST_PORT = 65535


class LocalGroupError(ValueError):
    """A group that cannot work as described: names the field, the value and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """How closely replicas are watched. All in seconds.

    Attributes:
        tick: Time between two looks at the processes.
        probe_every: Time between two health checks of a replica.
        probe_timeout: A health check that takes longer has failed.
        unready_after: Health checks failing for so long take a replica out of the gateway.
        hang_after: Health checks failing for so long restart it.
        first_backoff: Wait before the first restart after a crash; doubles with each crash.
        longest_backoff: Limit of that wait.
        stable_after: A replica ready for so long starts again with the first wait.
    """

    tick: float = 0.1
    probe_every: float = 1.0
    probe_timeout: float = 5.0
    unready_after: float = 10.0
    hang_after: float = 60.0
    first_backoff: float = 1.0
    longest_backoff: float = 60.0
    stable_after: float = 60.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise LocalGroupError(
                    f"supervision.{each.name}: {value!r} is not a time; give seconds above 0"
                )
        if self.hang_after < self.unready_after:
            raise LocalGroupError(
                f"supervision.hang_after: {self.hang_after:g} is below unready_after "
                f"({self.unready_after:g}); give at least that"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGroup:
    """A group of like inference servers on this machine, behind one gateway port.

    Attributes:
        name: Name of the group, as in `target: {kind: Local, name: ...}`.
        command: Words of the command that starts one server, with no speculation flag. `--port N`,
            `--host H` and the speculation arguments are added, or put in place of the words
            `{port}`, `{host}`, `{speculation}`.
        replicas: How many servers.
        ports: A port for each server, and one more with `surge`; none given means free ones.
        host: Address the servers listen on.
        gateway_host: Address the gateway listens on.
        gateway_port: Port of the gateway; 0 means a free one, kept over restarts.
        env: Environment variables for all servers, on top of the supervisor's own.
        replica_env: Further variables for each single server (`CUDA_VISIBLE_DEVICES`), or none.
        cwd: Directory the servers run in.
        log_dir: Where their output goes; None means `logs` in the state directory.
        log_bytes: A log file that has grown to this is rotated.
        log_files: How many files are kept per server, the current one included.
        start_timeout: Seconds a server may take until its health check succeeds.
        stop_grace: Seconds between SIGTERM and SIGKILL.
        drain: Seconds that requests in flight may take to finish before a server is stopped.
        health_path: Path that answers 200 when a server can serve.
        labels: Labels that rules can ask for as `target.labels`.
        engine_version: Version of the engine; "" means ask `GET /version` of a running server.
        initial: What the servers run when the group is started for the first time.
        surge: Start the new server beside the old one. The machine must have room for one more.
        supervision: How closely the servers are watched.
    """

    name: str
    command: tuple[str, ...]
    replicas: int = 1
    ports: tuple[int, ...] = ()
    host: str = "127.0.0.1"
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    replica_env: tuple[Mapping[str, str], ...] = ()
    cwd: Path = Path()
    log_dir: Path | None = None
    log_bytes: int = 16 * 2**20
    log_files: int = 3
    start_timeout: float = 600.0
    stop_grace: float = 30.0
    drain: float = 60.0
    health_path: str = "/health"
    labels: Mapping[str, str] = field(default_factory=dict)
    engine_version: str = ""
    initial: Declared = field(default_factory=Declared)
    surge: bool = False
    supervision: Supervision = field(default_factory=Supervision)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LocalGroupError(
                f"name: {self.name!r} cannot be used; take lower case letters, digits and '-', "
                "at most 63"
            )
        if self.replicas < 1:
            raise LocalGroupError(f"replicas: {self.replicas} is too few; give 1 or more")
        self._check_command()
        self._check_ports()
        self._check_numbers()
        if self.replica_env and len(self.replica_env) != self.replicas:
            raise LocalGroupError(
                f"replica_env: {len(self.replica_env)} given for {self.replicas} replicas; "
                "give one mapping for each replica, or none"
            )
        if not self.health_path.startswith("/"):
            raise LocalGroupError(
                f"health_path: {self.health_path!r} is no path; begin it with '/'"
            )
        if not self.cwd.is_dir():
            raise LocalGroupError(f"cwd: {str(self.cwd)!r} is not a directory; create it")

    def _check_command(self) -> None:
        words: object = self.command
        if not isinstance(words, tuple) or not words or not words[0]:
            raise LocalGroupError(
                f"command: {words!r} is not a list of words; "
                "give for example ('vllm', 'serve', 'MODEL')"
            )
        if flag := cmd.speculation_flag(self.command):
            raise LocalGroupError(
                f"command: {flag!r} decides about speculation and would shadow the settings of the "
                "policy; remove it and state it as a setting"
            )
        for option, instead in (("--port", "ports"), ("--host", "host")):
            if cmd.literal_option(self.command, option):
                raise LocalGroupError(
                    f"command: {option!r} is given by the group; remove it and use {instead!r}"
                )
        if cmd.runs_in_a_shell(self.command):
            for placeholder in (cmd.PORT, cmd.SPECULATION):
                if not cmd.mentions(self.command, placeholder):
                    raise LocalGroupError(
                        f"command: {self.command[0]!r} -c would not pass added arguments on; "
                        f"write {placeholder} where they belong in the script"
                    )

    def _check_ports(self) -> None:
        needed = self.replicas + (1 if self.surge else 0)
        if self.ports and len(self.ports) != needed:
            spare = " and a spare one for surge" if self.surge else ""
            raise LocalGroupError(
                f"ports: {len(self.ports)} given, {needed} needed "
                f"(one for each of {self.replicas} replicas{spare}); give {needed}, or none"
            )
        used = (*self.ports, *((self.gateway_port,) if self.gateway_port else ()))
        for port in used:
            if not 0 < port <= _HIGHEST_PORT:
                raise LocalGroupError(f"ports: {port} is no port number; give 1 to {_HIGHEST_PORT}")
            if used.count(port) > 1:
                raise LocalGroupError(f"ports: {port} is given twice; give each port once")

    def _check_numbers(self) -> None:
        for name in ("start_timeout", "log_bytes", "log_files"):
            if not getattr(self, name) > 0:
                raise LocalGroupError(
                    f"{name}: {getattr(self, name)!r} is too little; give more than 0"
                )
        for name in ("stop_grace", "drain"):
            if not getattr(self, name) >= 0:
                raise LocalGroupError(
                    f"{name}: {getattr(self, name)!r} is no time; give 0 or more seconds"
                )

    @property
    def template(self) -> str:
        """Hash of all that decides what a server does, except what we steer."""
        content = [
            list(self.command),
            self.replicas,
            self.host,
            dict(self.env),
            [dict(each) for each in self.replica_env],
            str(self.cwd),
        ]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]

    def environment(self, slot: int) -> dict[str, str]:
        """Variables of one server, on top of the supervisor's own."""
        return dict(self.env) | (dict(self.replica_env[slot]) if self.replica_env else {})
