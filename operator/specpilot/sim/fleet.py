"""Many simulated replicas in one event loop, for tests that a process each would make slow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from specpilot.sim.arguments import parse
from specpilot.sim.launch import LaunchConfig
from specpilot.sim.server import SimServer


class SimFleet:
    """Simulated engines that come and go; on exit all of them are killed.

    ::

        async with SimFleet() as fleet:
            replica = await fleet.add(["serve", "m", "--sim-profile", "demo"])
            ...
            await fleet.remove(replica)
    """

    def __init__(self) -> None:
        self._servers: list[SimServer] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.kill()
        await asyncio.gather(*(server.wait() for server in self._servers))

    @property
    def servers(self) -> Sequence[SimServer]:
        """Every server ever added and not removed, in order."""
        return tuple(self._servers)

    def urls(self) -> list[str]:
        """Base URLs of those that have not exited: the load generator's list of endpoints."""
        return [server.url for server in self._servers if server.exit_code is None]

    async def add(
        self,
        launch: LaunchConfig | Sequence[str],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> SimServer:
        """Start a replica and wait until it answers, or until its start has failed.

        Args:
            launch: a launch, or the words of a command line after ``vllm``.
            host: address to bind, whatever the launch says; any of 127.0.0.0/8 will do.
            port: port to bind, whatever the launch says; 0 takes a free one.
            environment: what the command line is read with.

        Raises:
            LaunchRefused: vLLM would refuse the command line.
            OSError: the port is taken.
        """
        if not isinstance(launch, LaunchConfig):
            launch = parse(launch, environment=environment or {})
        server = SimServer(replace(launch, host=host, port=port))
        server.bind()
        self._servers.append(server)
        await server.start()
        return server

    async def remove(self, server: SimServer) -> int:
        """Send a replica SIGTERM, wait for its end and return its exit code."""
        await server.terminate()
        self._servers.remove(server)
        return await server.wait()
