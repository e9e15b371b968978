"""From a LocalFleet resource to the group of processes it describes."""

from pathlib import Path

from specpilot.domain.settings import Declared
from specpilot.fleets.local import LocalGroup, Supervision
from specpilot.resources import LocalFleetSpec


def group_of(
    name: str,
    spec: LocalFleetSpec,
    *,
    supervision: Supervision | None = None,
    initial: Declared | None = None,
) -> LocalGroup:
    """Make the group of processes a LocalFleet describes.

    Raises:
        LocalGroupError: The command or a path cannot be used on this machine.
    """
    gateway = spec.gateway
    return LocalGroup(
        name=name,
        command=spec.command,
        replicas=spec.replicas,
        ports=spec.ports,
        host=spec.host,
        gateway_host=gateway.host if gateway else "127.0.0.1",
        gateway_port=gateway.port if gateway else 0,
        env=spec.env,
        replica_env=spec.replica_env,
        cwd=Path(spec.cwd),
        start_timeout=spec.start_timeout.total_seconds(),
        stop_grace=spec.stop_grace.total_seconds(),
        drain=spec.drain.total_seconds(),
        engine_version=spec.engine_version,
        surge=spec.surge,
        initial=initial or Declared(),
        supervision=supervision or Supervision(),
    )
