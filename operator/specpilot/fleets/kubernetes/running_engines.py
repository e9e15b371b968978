"""How a container's engine is run: V0 or V1, which model runner, how many data-parallel ranks.

Resolved as `specpilot parse` resolves a manifest, but from the container alone: the operator reads
no ConfigMaps and Secrets of users, so what stands there is not known.
"""

import functools
from collections.abc import Mapping
from typing import Any

from specpilot.domain.engine_run import EngineRun
from specpilot.engines.runs import run_of
from specpilot.engines.versions import readable
from specpilot.fleets.kubernetes.podline import resolve
from specpilot.fleets.kubernetes.wiring import VARIABLE


class _NothingAtHand:
    """See `podline.Lookup`."""

    def data(self, kind: str, name: str) -> Mapping[str, str] | None:  # noqa: ARG002 - a port
        return None


_NOTHING = _NothingAtHand()


def engine_run(container: Mapping[str, Any], *, version: str = "") -> EngineRun:
    """How the engine of a container is run.

    Args:
        container: The container, of a pod or a template.
        version: Version of the engine, "" when not known.
    """
    variables = tuple(
        (str(entry.get("name")), None if "valueFrom" in entry else str(entry.get("value") or ""))
        for entry in container.get("env") or ()
    )
    return _read(
        tuple(container.get("command") or ()),
        tuple(container.get("args") or ()),
        variables,
        bool(container.get("envFrom")),
        version,
    )


@functools.lru_cache(maxsize=16384)
def _read(
    command: tuple[str, ...],
    args: tuple[str, ...],
    variables: tuple[tuple[str, str | None], ...],
    more_variables: bool,
    version: str,
) -> EngineRun:
    # Each tick asks for each target, and what is asked for changes with the template only.
    env = [
        # The steered variable decides nothing here, and its absence is no speculation.
        {"name": name, "value": value or ""}
        if value is not None or name == VARIABLE
        else {"name": name, "valueFrom": {}}
        for name, value in variables
    ]
    container: dict[str, Any] = {"command": command, "args": args, "env": env}
    if more_variables:
        container["envFrom"] = [{"configMapRef": {"name": "?"}}]
    line = resolve(container, pod={}, metadata={}, lookup=_NOTHING)
    parsed = line.parse(version=readable(version), variable=VARIABLE)
    return run_of(
        parsed.launch, argv=line.argv, env=line.env, unknown=line.unknown, version=version
    )
