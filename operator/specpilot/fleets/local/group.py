"""The supervisor of one group: a thread that keeps its servers as they are wanted."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.ports import Clock, FleetError
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Problem, TargetProblem, TargetRef, TargetState
from specpilot.fleets.local import command as cmd
from specpilot.fleets.local.free_ports import free_port, is_free
from specpilot.fleets.local.gateway import Gateway
from specpilot.fleets.local.machine import LocalMachine
from specpilot.fleets.local.plan import Keep, Replace, next_steps, wishes
from specpilot.fleets.local.process import kill_owned, owned
from specpilot.fleets.local.routing import Router
from specpilot.fleets.local.running_engines import engine_run
from specpilot.fleets.local.slot import Slot
from specpilot.fleets.local.spec import LocalGroup
from specpilot.fleets.local.state import GroupLock, GroupRecord, StateFile

_log = logging.getLogger(__name__)

_LEFTOVER_MARGIN = 15.0


class GroupSupervisor:
    """Runs one group from `start` to `stop`."""

    def __init__(
        self,
        spec: LocalGroup,
        *,
        state_dir: Path,
        clock: Clock,
        arguments: cmd.Arguments,
        executor: Executor,
    ) -> None:
        self.spec = spec
        self._clock = clock
        self._owner = f"{state_dir.absolute()}/{spec.name}/"
        self._state = StateFile(state_dir / f"{spec.name}.json")
        self._lock_file = GroupLock(state_dir / f"{spec.name}.lock", group=spec.name)
        self._guard = threading.RLock()
        self._wake = threading.Event()
        self._ending = False
        self._trouble = ""
        self._router = Router()
        self._gateway: Gateway | None = None
        self._thread: threading.Thread | None = None
        self._slots: list[Slot] = []
        self._declared = spec.initial
        self._intent: Intent | None = None
        self._version = ""
        self._machine = LocalMachine(
            spec,
            log_dir=spec.log_dir or state_dir / "logs",
            owner=self._owner,
            clock=clock,
            arguments=arguments,
            executor=executor,
            version=self._engine_version,
            ports_in_use=self._ports_in_use,
        )

    @property
    def gateway_url(self) -> str:
        """Base URL for clients of the group."""
        if self._gateway is None:
            raise FleetError(f"local group {self.spec.name!r} is not started; start it first")
        return self._gateway.url

    def logs(self) -> dict[str, Path]:
        """Log file of each replica."""
        return {
            f"{self.spec.name}-{n}": self._machine.log_path(n) for n in range(self.spec.replicas)
        }

    def start(self) -> None:
        """Take the group over and begin to start its servers.

        Raises:
            FleetError: Another supervisor has it, its state is unreadable, or its port is taken.
        """
        self._lock_file.acquire()
        try:
            spec = self.spec
            record = self._state.read() or GroupRecord(declared=spec.initial, slots=())
            record = record.sized(spec.replicas)
            self._gateway = Gateway(
                self._router,
                name=spec.name,
                host=spec.gateway_host,
                port=self._gateway_port(record.gateway_port),
            )
            self._gateway.start()
            self._declared = record.declared
            self._slots = [
                Slot(
                    index,
                    declared,
                    spec=spec,
                    machine=self._machine,
                    router=self._router,
                    clock=self._clock,
                )
                for index, declared in enumerate(record.slots)
            ]
            self._save([slot.assigned for slot in self._slots])
        except BaseException:
            if self._gateway is not None:
                self._gateway.stop(drain=0)
            self._lock_file.release()
            raise
        self._thread = threading.Thread(
            target=self._supervise, name=f"supervisor-{spec.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Finish the requests in flight, stop all servers, and let go of the group."""
        if self._thread is None:
            return
        self._ending = True
        self._wake.set()
        self._thread.join()
        self._thread = None
        assert self._gateway is not None
        self._gateway.stop(drain=self.spec.drain)
        runs = [run for slot in self._slots for run in slot.runs()]
        for slot in self._slots:
            slot.begin_stop(now=time.monotonic())
        for run in runs:
            deadline = time.monotonic() + run.process.patience
            while run.process.exit_code() is None:
                if time.monotonic() >= deadline:
                    run.process.kill()
                time.sleep(0.02)
        self._lock_file.release()

    def observe(self, ref: TargetRef) -> TargetState:
        """Report what is."""
        spec = self.spec
        with self._guard:
            return TargetState(
                ref=ref,
                problem=self._problem(),
                declared=self._declared,
                desired_replicas=spec.replicas,
                replicas=tuple(replica for slot in self._slots for replica in slot.replicas()),
                user_template=spec.template,
                rolling="; ".join(self._rolling()),
                halted=self._halted(),
                # One of several may be missing while it is replaced; the only one may not.
                can_add_replica=spec.surge or spec.replicas > 1,
                engine=engine_run(spec, inherited=os.environ, version=self._engine_version()),
                labels=spec.labels,
                progress_deadline_s=spec.start_timeout,
            )

    def carry_out(self, intent: Intent) -> bool:
        """Remember what is wanted; the thread does it, step by step.

        Returns:
            Whether it is another setting than was wanted before.

        Raises:
            FleetError: The group is not running, or its state cannot be written.
        """
        with self._guard:
            if self._thread is None:
                raise FleetError(f"local group {self.spec.name!r} is not started; start it first")
            if self._trouble:
                raise FleetError(self._trouble)
            changes = self._declared != intent.declared
            if changes:
                former, self._declared = self._declared, intent.declared
                try:
                    self._save([slot.assigned for slot in self._slots])
                except FleetError:
                    self._declared = former
                    raise
            self._intent = intent
        self._wake.set()
        return changes

    # The thread.

    def _supervise(self) -> None:
        self._clear_leftovers()
        while not self._ending:
            try:
                with self._guard:
                    self._step(time.monotonic())
                self._trouble = ""
            except Exception as error:  # noqa: BLE001 - servers must not be left unwatched
                if self._trouble != str(error):
                    _log.exception("local group %s: supervision failed", self.spec.name)
                self._trouble = str(error)
            self._wake.wait(self.spec.supervision.tick)
            self._wake.clear()

    def _clear_leftovers(self) -> None:
        """Wait for servers of a supervisor that died: their shims are stopping them."""
        deadline = time.monotonic() + self.spec.stop_grace + _LEFTOVER_MARGIN
        while not self._ending and any(owned(self._owner)):
            if time.monotonic() >= deadline:
                kill_owned(self._owner)
            time.sleep(0.1)

    def _step(self, now: float) -> None:
        for slot in self._slots:
            slot.tick(now)
        if self._intent is None:
            return
        views = [slot.view() for slot in self._slots]
        steps = next_steps(views, wishes(views, self._intent))
        if not steps:
            return
        assigned = [slot.assigned for slot in self._slots]
        for step in steps:
            run = self._slots[step.index].run
            if isinstance(step, Replace):
                assigned[step.index] = step.declared
            elif run is not None:
                assigned[step.index] = run.started.declared
        self._save(assigned)  # first: a supervisor that dies now comes back with it
        for step in steps:
            slot = self._slots[step.index]
            match step:
                case Replace(declared=declared):
                    _log.info("%s: replaced by setting %r", slot.id, declared.setting)
                    slot.replace(declared, now=now)
                case Keep():
                    _log.info("%s: kept with setting %r", slot.id, assigned[step.index].setting)
                    slot.keep(now=now)
        self._wake.set()

    # Details.

    def _save(self, assigned: list[Declared]) -> None:
        assert self._gateway is not None
        self._state.write(
            GroupRecord(
                declared=self._declared, slots=tuple(assigned), gateway_port=self._gateway.port
            )
        )

    def _problem(self) -> Problem | None:
        found = cmd.speculation_in_config_file(self.spec.command, cwd=self.spec.cwd)
        if not found:
            return None
        return Problem(
            reason=TargetProblem.SHADOWED_BY_ARGS,
            message=(
                f"command: --config {found} decides about speculation and would shadow the "
                "settings of the policy; remove the key from the file and state it as a setting"
            ),
        )

    def _rolling(self) -> Iterator[str]:
        yield from (words for slot in self._slots if (words := slot.rolling()))
        if self._intent is not None:
            wanted = wishes([slot.view() for slot in self._slots], self._intent)
            waiting = [s.id for s, w in zip(self._slots, wanted, strict=True) if s.assigned != w]
            if waiting:
                yield f"still to be replaced: {', '.join(waiting)}"

    def _halted(self) -> bool:
        held = self._intent is None or self._intent.extent is Extent.CANARY
        return held and any(slot.assigned != self._declared for slot in self._slots)

    def _engine_version(self) -> str:
        if self.spec.engine_version:
            return self.spec.engine_version
        told = [run.version for slot in self._slots for run in slot.runs() if run.version]
        if told:
            self._version = told[-1]
        return self._version

    def _ports_in_use(self) -> set[int]:
        running = {run.started.port for slot in self._slots for run in slot.runs()}
        return running | ({self._gateway.port} if self._gateway else set())

    def _gateway_port(self, former: int) -> int:
        spec = self.spec
        if spec.gateway_port:
            return spec.gateway_port
        try:
            if former and is_free(spec.gateway_host, former):
                return former
            return free_port(spec.gateway_host, avoid=spec.ports)
        except OSError as error:
            raise FleetError(
                f"gateway_host: {spec.gateway_host!r}: {error.strerror}; give an address of "
                "this machine"
            ) from error
