"""From a LocalFleet resource to the group of processes it describes."""

from collections.abc import Mapping
from pathlib import Path

from specpilot.domain.settings import Declared
from specpilot.fleets.local import LocalGroup, LocalGroupError, Supervision
from specpilot.resources import LocalFleetSpec


def group_of(
    name: str,
    spec: LocalFleetSpec,
    *,
    supervision: Supervision | None = None,
    initial: Declared | None = None,
    labels: Mapping[str, str] | None = None,
) -> LocalGroup:
    """Make the group of processes a LocalFleet describes.

    Raises:
        LocalGroupError: The command or a path cannot be used on this machine; names the fleet.
    """
    try:
        return _group(name, spec, supervision or Supervision(), initial or Declared(), labels or {})
    except LocalGroupError as error:
        words = str(error)
        for internal, field in _FIELDS.items():
            words = words.replace(internal, field)
        raise LocalGroupError(f"LocalFleet {name}: {words}") from error


_FIELDS = {
    "gateway_port": "gateway.port",
    "gateway_host": "gateway.host",
    "replica_env": "replicaEnv",
    "start_timeout": "startTimeout",
    "stop_grace": "stopGrace",
    "engine_version": "engineVersion",
}
"""Names of the group's fields, as the resource has them."""


def _group(
    name: str,
    spec: LocalFleetSpec,
    supervision: Supervision,
    initial: Declared,
    labels: Mapping[str, str],
) -> LocalGroup:
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
        labels=labels,
        engine_version=spec.engine_version,
        surge=spec.surge,
        initial=initial,
        supervision=supervision,
    )
