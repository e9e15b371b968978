"""How the engine of a local group is run: V0 or V1, which model runner, data-parallel ranks."""

import itertools
from collections.abc import Mapping
from pathlib import Path

from specpilot.domain.engine_run import EngineRun
from specpilot.engines import parse
from specpilot.engines.runs import run_of
from specpilot.engines.versions import VersionError, read_version
from specpilot.fleets.local.spec import LocalGroup


def engine_run(spec: LocalGroup, *, inherited: Mapping[str, str], version: str) -> EngineRun:
    """How the servers of a group are run, as far as all of them are run alike.

    Args:
        spec: The group.
        inherited: Variables of the supervisor, which its servers get as well.
        version: Version of the engine, "" when not known.
    """
    try:
        read_version(version)
        readable = version
    except VersionError:
        readable = ""
    files = _config_files(spec)
    runs = set()
    for index in range(spec.replicas if spec.replica_env else 1):
        env = dict(inherited) | spec.environment(index)
        launch = parse(spec.command, version=readable, env=env, files=files).launch
        runs.add(run_of(launch, argv=spec.command, env=env, version=version))
    return runs.pop() if len(runs) == 1 else EngineRun(version=version)


def _config_files(spec: LocalGroup) -> dict[str, str]:
    """Content of the files that `--config FILE` names, by the name; those that can be read."""
    found = {}
    for word, name in itertools.pairwise(spec.command):
        if word == "--config":
            try:
                found[name] = (spec.cwd / Path(name)).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
    return found
