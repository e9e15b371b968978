"""Groups of tiny servers, waited for with a deadline and left without a trace."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.settings import Declared
from specpilot.fleets.local import LocalFleet, LocalGroup, Supervision
from specpilot.fleets.local.process import owned

HERE = Path(__file__).parent
TINY = (sys.executable, str(HERE / "tiny_server.py"))
OFF = Declared()
ON = Declared(setting="on", config="on", change_id="c1")
CRASH = Declared(setting="crash", config="crash", change_id="c2")
DEAF = Declared(setting="deaf", config="deaf", change_id="c3")
QUICK = Supervision(
    tick=0.02,
    probe_every=0.1,
    probe_timeout=2.0,
    unready_after=0.5,
    hang_after=1.0,
    first_backoff=0.2,
    longest_backoff=5.0,
)


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def group(name: str = "chat", **spec) -> LocalGroup:
    given = {
        "name": name,
        "command": TINY,
        "replicas": 3,
        "stop_grace": 2.0,
        "drain": 10.0,
        "supervision": QUICK,
    }
    return LocalGroup(**(given | spec))


def eventually(condition: Callable, describe: Callable, *, deadline: float = 20.0):
    """Return the first true answer."""
    until = time.monotonic() + deadline
    while not (answer := condition()):
        assert time.monotonic() < until, f"not within {deadline:g} s: {describe()}"
        time.sleep(0.02)
    return answer


class Running:
    """A started fleet of one group."""

    def __init__(self, fleet: LocalFleet):
        self.fleet = fleet
        (self.ref,) = fleet.refs
        self.url = fleet.gateway_url(self.ref.name)

    def state(self):
        return self.fleet.observe(self.ref)

    def until(self, condition, *, deadline: float = 20.0):
        """Wait for a state; return it."""
        return eventually(
            lambda: condition(state) and state if (state := self.state()) else None,
            lambda: "\n".join(
                (str(self.state()), *(p.read_text() for p in self.logs() if p.exists()))
            ),
            deadline=deadline,
        )

    def logs(self):
        return self.fleet.logs(self.ref.name).values()

    def intend(self, declared, *, extent=Extent.ALL, canary=1, previous=OFF):
        self.fleet.carry_out(
            Intent(
                target=self.ref,
                declared=declared,
                extent=extent,
                canary_replicas=canary,
                previous=previous,
            )
        )


@contextmanager
def running(spec: LocalGroup, state_dir: Path, **options):
    """A fleet of one group, all replicas ready; no process is left afterwards."""
    fleet = LocalFleet([spec], state_dir=state_dir, clock=SystemClock(), **options)
    with fleet:
        yield Running(fleet)
    assert processes_of(state_dir) == []


def processes_of(state_dir: Path) -> list[str]:
    """Command lines of all processes started for groups of a state directory."""
    lines = []
    for process in owned(f"{state_dir.absolute()}/"):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                lines.append(f"{process.pid} {' '.join(process.cmdline())}")
        except psutil.NoSuchProcess:
            continue
    return lines


def environment() -> dict[str, str]:
    """For a program that imports the package."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
