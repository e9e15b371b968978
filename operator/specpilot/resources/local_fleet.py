"""LocalFleet: a group of engine processes on one machine, steered like a workload in a cluster."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from specpilot.engines.versions import VersionError, read_version
from specpilot.resources.base import Strict
from specpilot.resources.quantities import Duration, PositiveDuration

Port = Annotated[int, Field(ge=1, le=65535)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class GatewaySpec(Strict):
    """One address in front of all replicas."""

    host: str = "127.0.0.1"
    port: Port


class LocalFleetSpec(Strict):
    """The spec of a LocalFleet.

    Attributes:
        command: Words that start one server, without speculation, host and port; those are added
            at its end, or where `{speculation}`, `{host}` and `{port}` stand.
        replicas: How many servers.
        ports: A port for each server and one more with `surge`; empty takes free ones.
        host: Address they listen on.
        env: Variables of every server.
        replica_env: Further variables of each single server, such as the core or GPU it runs on.
        cwd: Working directory.
        gateway: The one address that clients use; a free port when left out.
        start_timeout: Longest time from start to ready.
        stop_grace: Time between the request to stop and the kill.
        drain: Time that requests in flight may take before a server is asked to stop.
        surge: Start the new server beside the old one; the machine must have room for one more.
        engine_version: The engine's version; "" asks the running engine.
    """

    command: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1)], ...], Field(min_length=1)
    ]
    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    ports: tuple[Port, ...] = ()
    host: str = "127.0.0.1"
    env: dict[EnvName, str] = Field(default_factory=dict)
    replica_env: tuple[dict[EnvName, str], ...] = ()
    cwd: str = ""
    gateway: GatewaySpec | None = None
    start_timeout: PositiveDuration = timedelta(minutes=10)
    stop_grace: PositiveDuration = timedelta(seconds=60)
    drain: Duration = timedelta(seconds=60)
    surge: bool = False
    engine_version: str = ""

    @field_validator("ports")
    @classmethod
    def _different(cls, ports: tuple[int, ...]) -> tuple[int, ...]:
        if twice := next((p for p in ports if ports.count(p) > 1), None):
            raise ValueError(f"port {twice} is named twice; give each process its own")
        return ports

    @field_validator("engine_version")
    @classmethod
    def _readable(cls, version: str) -> str:
        try:
            read_version(version)
        except VersionError as error:
            raise ValueError(str(error)) from None
        return version

    @model_validator(mode="after")
    def _enough(self) -> Self:
        needed = self.replicas + self.surge
        if self.ports and len(self.ports) != needed:
            raise ValueError(
                f"ports: {len(self.ports)} for {self.replicas} replicas"
                f"{' and one in surge' if self.surge else ''}; name {needed}, or none to take free "
                "ones"
            )
        if self.gateway is not None and self.gateway.port in self.ports:
            raise ValueError(
                f"gateway.port {self.gateway.port} is also one of ports; give it another"
            )
        if self.replica_env and len(self.replica_env) != self.replicas:
            raise ValueError(
                f"replicaEnv: {len(self.replica_env)} entries for {self.replicas} replicas; name "
                f"{self.replicas}, or none"
            )
        return self
