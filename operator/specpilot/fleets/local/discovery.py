"""Which servers of a group run, as seen by a process that does not supervise them.

The supervisor keeps this in memory; a port that it chose is written nowhere. But every server
carries in its environment whose it is, what it was started with and where it listens, and that
cannot be out of date: it is the process itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica, TargetRef, TargetState
from specpilot.fleets.local.machine import CHANGE, CONFIG, ENDPOINT, REPLICA, SETTING
from specpilot.fleets.local.probe import Health, check
from specpilot.fleets.local.process import OWNER, owned, server_words
from specpilot.fleets.local.running_engines import alike, server_run

_PROBE_TIMEOUT = 1.0


def running(ref: TargetRef, *, state_dir: Path) -> TargetState:
    """The servers of a local group that run now.

    Only what can be seen from outside is reported: a server that drains looks like one that
    serves, and how many there should be is not known.

    Args:
        ref: The group.
        state_dir: The state directory of its supervisor.
    """
    prefix = f"{state_dir.absolute()}/{ref.name}/"
    versions: set[str] = set()
    replicas: list[Replica] = []
    servers = sorted(_instances(prefix), key=lambda server: server.instance)
    for server in servers:
        instance, env = server.instance, server.env
        health = _health(env[ENDPOINT])
        versions.add(health.version or "")
        replicas.append(
            Replica(
                id=env.get(REPLICA, instance),
                instance=instance,
                declared=Declared(
                    setting=env.get(SETTING, ""),
                    config=env.get(CONFIG, ""),
                    change_id=env.get(CHANGE, ""),
                ),
                ready=health.ok,
                endpoint=env[ENDPOINT],
            )
        )
    known = versions - {""}
    version = known.pop() if len(known) == 1 else ""
    runs = [server_run(s.argv, env=s.env, cwd=s.cwd, version=version) for s in servers]
    return TargetState(
        ref=ref,
        desired_replicas=len(replicas),
        replicas=tuple(replicas),
        engine=alike(runs, version=version),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """A server, as its guard was told to start it."""

    instance: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


def _instances(prefix: str) -> Iterator[_Server]:
    """Each server once: its guard and its children carry the same environment."""
    seen: set[str] = set()
    for process in owned(prefix):
        try:
            env, argv, cwd = process.environ(), process.cmdline(), Path(process.cwd())
        except (psutil.Error, OSError):
            continue  # ended meanwhile
        owner = env.get(OWNER, "")
        if owner not in seen and ENDPOINT in env:
            seen.add(owner)
            yield _Server(
                instance=owner.removeprefix(prefix),
                argv=server_words(argv),
                env=env,
                cwd=cwd,
            )


def _health(endpoint: str) -> Health:
    url = urlsplit(endpoint)
    if url.hostname is None or url.port is None:
        return Health(ok=False)
    return check(url.hostname, url.port, path="/health", timeout=_PROBE_TIMEOUT, ask_version=True)
