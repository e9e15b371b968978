"""How the engine of a local group is run: V0 or V1, which model runner, data-parallel ranks."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from specpilot.domain.engine_run import EngineRun
from specpilot.engines import parse
from specpilot.engines.runs import run_of
from specpilot.engines.versions import readable
from specpilot.fleets.local.spec import LocalGroup


def engine_run(spec: LocalGroup, *, inherited: Mapping[str, str], version: str) -> EngineRun:
    """How the servers of a group are run, as far as all of them are run alike.

    Args:
        spec: The group.
        inherited: Variables of the supervisor, which its servers get as well.
        version: Version of the engine, "" when not known.
    """
    return alike(
        (
            server_run(
                spec.command,
                env=dict(inherited) | spec.environment(index),
                cwd=spec.cwd,
                version=version,
            )
            for index in range(spec.replicas if spec.replica_env else 1)
        ),
        version=version,
    )


def server_run(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, version: str
) -> EngineRun:
    """How one server is run.

    Args:
        argv: The words that start it.
        env: All its variables.
        cwd: The directory that it runs in.
        version: Version of the engine, "" when not known.
    """
    files = _config_files(argv, cwd=cwd)
    launch = parse(argv, version=readable(version), env=env, files=files).launch
    return run_of(launch, argv=argv, env=env, version=version)


def alike(runs: Iterable[EngineRun], *, version: str) -> EngineRun:
    """What all of several servers are; where they differ nothing but the version is known."""
    different = set(runs)
    return different.pop() if len(different) == 1 else EngineRun(version=version)


def _config_files(argv: Sequence[str], *, cwd: Path) -> dict[str, str]:
    """Content of the files that `--config FILE` names, by the name; those that can be read."""
    found = {}
    for word, name in itertools.pairwise(argv):
        if word == "--config":
            try:
                found[name] = (cwd / name).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
    return found
