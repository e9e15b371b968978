"""One place for a replica: starts, watches, restarts, drains and replaces its process.

It is told what to run (`replace`, `keep`) and moves on a little with each `tick`, at a time it is
given; it waits for nothing. So it can be tried out without processes and without time passing.
"""

import logging
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from specpilot.domain.ports import Clock
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Replica
from specpilot.fleets.local.plan import SlotView
from specpilot.fleets.local.probe import Health
from specpilot.fleets.local.process import Started
from specpilot.fleets.local.routing import Router
from specpilot.fleets.local.spec import LocalGroup

_SIGNALLED = 128


_log = logging.getLogger(__name__)


class Process(Protocol):
    """A server process as a slot sees it; `ServerProcess` is the real one."""

    @property
    def patience(self) -> float:
        """Seconds within which it is gone after `stop`."""
        ...

    def exit_code(self) -> int | None:
        """Exit code as of a shell, None while anything of it lives."""
        ...

    def stop(self) -> None:
        """Have it stopped, with grace."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def last_line(self) -> str:
        """Last line it wrote."""
        ...


class Machine(Protocol):
    """What a slot needs of the machine."""

    def launch(self, index: int, declared: Declared) -> tuple[Process, Started]:
        """Start a process.

        Raises:
            OSError: It could not be started.
            ValueError: The engine's version cannot run this.
        """
        ...

    def check(self, started: Started, *, ask_version: bool) -> "Future[Health]":
        """Begin a health check."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """A live process and what is known of its health. Times are monotonic seconds."""

    process: Process
    started: Started
    since: float
    ready: bool = False
    ready_at: datetime | None = None
    ready_from: float = 0.0
    was_ready: bool = False
    failing_since: float | None = None
    draining_since: float | None = None
    stopping_since: float | None = None
    blame: str = ""
    version: str | None = None
    checking: "Future[Health] | None" = None
    checked_at: float = field(default=float("-inf"))

    @property
    def serves(self) -> bool:
        """Gets new requests."""
        return self.ready and self.draining_since is None and self.stopping_since is None


class Slot:
    """See the module. Not thread-safe: its group calls under a lock."""

    def __init__(
        self,
        index: int,
        assigned: Declared,
        *,
        spec: LocalGroup,
        machine: Machine,
        router: Router,
        clock: Clock,
    ) -> None:
        self.index = index
        self.assigned = assigned
        self._spec = spec
        self._machine = machine
        self._router = router
        self._clock = clock
        self.run: Run | None = None
        self.beside: Run | None = None
        self.leaving: list[Run] = []
        self.settled = False
        self._fault = ""
        self._crashes = 0
        self._restarts = 0
        self._retry_at = float("-inf")

    @property
    def id(self) -> str:
        """Name of the replica."""
        return f"{self._spec.name}-{self.index}"

    def runs(self) -> Iterator[Run]:
        """All live processes."""
        yield from self.leaving
        if self.run is not None:
            yield self.run
        if self.beside is not None:
            yield self.beside

    def view(self) -> SlotView:
        """Tell the planner."""
        run = self.run
        savable = run is not None and run.stopping_since is None
        return SlotView(
            index=self.index,
            assigned=self.assigned,
            running=run.started.declared if run is not None and savable else None,
            ready=run is not None and run.serves,
            beside=self.beside.started.declared if self.beside is not None else None,
            leaving=bool(self.leaving),
        )

    def replace(self, declared: Declared, *, now: float) -> None:
        """Have it run something else."""
        self._assign(declared, now=now)
        self.settled = False
        self._retire_beside(now=now)
        if self.run is not None and not (self._spec.surge and self.run.serves):
            self._drain(self.run, now=now)

    def keep(self, *, now: float) -> None:
        """Go on with the process it has."""
        assert self.run is not None
        self._assign(self.run.started.declared, now=now)
        self._retire_beside(now=now)
        self.run.draining_since = None
        self.settled = self.run.was_ready
        if self.run.ready:
            self._offer(self.run)

    def tick(self, now: float) -> None:
        """Look at the processes and do what is due."""
        self.leaving = [run for run in self.leaving if not self._has_ended(run, now=now)]
        if self.run is not None and self._has_ended(self.run, now=now):
            run, self.run = self.run, None
            if self.beside is not None:
                self.run, self.beside = self.beside, None
            elif run.draining_since is None:
                self._crashed(run, now=now)
        if self.beside is not None and self._has_ended(self.beside, now=now):
            run, self.beside = self.beside, None
            self._crashed(run, now=now)
        if self.beside is not None and self.beside.serves:
            self._take_over(self.beside, now=now)
        self._start_what_is_due(now=now)

    def begin_stop(self, *, now: float) -> None:
        """Stop all processes; `tick` must not be called after that."""
        for run in self.runs():
            self._stop(run, now=now)

    # Health.

    def _has_ended(self, run: Run, *, now: float) -> bool:
        """Move a process on; True when it, and all it started, is gone."""
        code = run.process.exit_code()
        if code is not None:
            self._router.forget(run.started.instance)
            run.blame = run.blame or (
                "" if run.stopping_since is not None else _ended(code, now - run.since)
            )
            return True
        if run.stopping_since is not None:
            if now - run.stopping_since > run.process.patience:
                run.process.kill()
        elif run.draining_since is not None:
            waited = now - run.draining_since
            if waited >= self._spec.drain or not self._router.outstanding(run.started.instance):
                self._stop(run, now=now)
        else:
            self._watch(run, now=now)
        return False

    def _watch(self, run: Run, *, now: float) -> None:
        care = self._spec.supervision
        if run.checking is not None and run.checking.done():
            self._take_health(run, run.checking.result(), now=now)
            run.checking = None
        if not run.was_ready and now - run.since >= self._spec.start_timeout:
            run.blame = f"not ready after {self._spec.start_timeout:g} s"
            self._stop(run, now=now)
        elif run.checking is None and now - run.checked_at >= care.probe_every:
            run.checking = self._machine.check(run.started, ask_version=run.version is None)
            run.checked_at = now
        if run.ready and now - run.ready_from >= care.stable_after:
            self._crashes = 0

    def _take_health(self, run: Run, health: Health, *, now: float) -> None:
        care = self._spec.supervision
        if health.ok:
            run.failing_since = None
            if health.version is not None:
                run.version = health.version
            if not run.ready:
                run.ready, run.was_ready = True, True
                run.ready_at, run.ready_from = self._clock.now(), now
                self._offer(run)
                if run is self.run:
                    self._came_up()
            return
        if run.failing_since is None:
            run.failing_since = now
        failing = now - run.failing_since
        if run.ready and failing >= care.unready_after:
            run.ready = False
            self._router.withdraw(run.started.instance)
        if run.was_ready and failing >= care.hang_after:
            run.blame = f"no answer on {self._spec.health_path} for {failing:.0f} s"
            self._stop(run, now=now)

    def _came_up(self) -> None:
        self.settled = True
        self._fault = ""

    def _crashed(self, run: Run, *, now: float) -> None:
        self._note_fault(run.blame, last_line=run.process.last_line(), now=now)

    def _note_fault(self, what: str, *, last_line: str, now: float) -> None:
        care = self._spec.supervision
        delay = min(care.longest_backoff, care.first_backoff * 2 ** min(self._crashes, 30))
        self._crashes += 1
        self._restarts += 1
        self._retry_at = now + delay
        self._fault = f"{what}, restart {self._restarts} in {delay:g} s" + (
            f"; last line of log: {last_line}" if last_line else ""
        )
        _log.warning("%s: %s", self.id, self._fault)

    # Steps.

    def _assign(self, declared: Declared, *, now: float) -> None:
        """What went wrong before says nothing about this."""
        self.assigned = declared
        self._fault = ""
        self._crashes = 0
        self._restarts = 0
        self._retry_at = now

    def _start_what_is_due(self, *, now: float) -> None:
        if self.leaving or now < self._retry_at:
            return
        if self.run is None:
            self.run = self._launch(now=now)
        elif self.beside is None and self.run.serves and self.run.started.declared != self.assigned:
            self.beside = self._launch(now=now)

    def _launch(self, *, now: float) -> Run | None:
        try:
            process, started = self._machine.launch(self.index, self.assigned)
        except (OSError, ValueError) as error:
            self._note_fault(f"cannot be started: {error}", last_line="", now=now)
            return None
        return Run(process=process, started=started, since=now)

    def _take_over(self, new: Run, *, now: float) -> None:
        """The process beside serves: it becomes the replica, the former one may go."""
        former, self.run, self.beside = self.run, new, None
        if former is not None:
            self._drain(former, now=now)
            self.leaving.append(former)
        self._came_up()

    def _retire_beside(self, *, now: float) -> None:
        if self.beside is not None:
            self._drain(self.beside, now=now)
            self.leaving.append(self.beside)
            self.beside = None

    def _drain(self, run: Run, *, now: float) -> None:
        self._router.withdraw(run.started.instance)
        if run.draining_since is None:
            run.draining_since = now

    def _stop(self, run: Run, *, now: float) -> None:
        self._router.withdraw(run.started.instance)
        run.ready = False
        if run.stopping_since is None:
            run.stopping_since = now
        run.process.stop()

    def _offer(self, run: Run) -> None:
        self._router.offer(run.started.instance, host=run.started.host, port=run.started.port)

    # Reports.

    def replicas(self) -> Iterator[Replica]:
        """Report what is, a process or the lack of one."""
        for run in self.runs():
            yield Replica(
                id=self.id,
                instance=run.started.instance,
                declared=run.started.declared,
                ready=run.serves,
                ready_since=run.ready_at if run.serves else None,
                started_at=run.started.at,
                restarts=self._restarts,
                failure=self._failure_of(run),
                terminating=run.draining_since is not None,
                endpoint=run.started.endpoint,
            )
        missing = self.run is None or (
            self._fault and self.beside is None and self.run.started.declared != self.assigned
        )
        if missing:
            yield Replica(
                id=self.id, declared=self.assigned, restarts=self._restarts, failure=self._fault
            )

    def _failure_of(self, run: Run) -> str:
        if run.draining_since is not None:
            return ""
        if run.blame or run.started.declared == self.assigned:
            return run.blame or self._fault
        return ""

    def rolling(self) -> str:
        """Words for a replacement or first start that is under way, "" at rest."""
        for run in self.leaving:
            return f"{self.id}: {self._going(run)}"
        if self.run is not None and self.run.draining_since is not None:
            return f"{self.id}: {self._going(self.run)}"
        if self.settled:
            return ""
        return f"{self.id}: starting with setting {self.assigned.setting!r}"

    def _going(self, run: Run) -> str:
        if run.stopping_since is not None:
            return "stopping"
        in_flight = self._router.outstanding(run.started.instance)
        return f"draining, {in_flight} {'request' if in_flight == 1 else 'requests'} in flight"


def _ended(code: int, lifetime: float) -> str:
    if code > _SIGNALLED:
        try:
            name = signal.Signals(code - _SIGNALLED).name
        except ValueError:
            name = f"signal {code - _SIGNALLED}"
        return f"killed by {name} after {lifetime:.0f} s"
    return f"exited with {code} after {lifetime:.0f} s"
