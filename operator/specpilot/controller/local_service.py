"""One machine: a fleet of local processes, direct scrape, and the same loop as in a cluster."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from specpilot.alerts import Dispatcher, make_client
from specpilot.controller.evaluator import Evaluator
from specpilot.controller.local_devices import devices_of
from specpilot.controller.local_groups import group_of
from specpilot.controller.local_registry import LocalChannels, LocalRegistry, as_object
from specpilot.controller.parts import Parts
from specpilot.controller.reconciler import Reconciler
from specpilot.controller.recorder import Recorder
from specpilot.controller.runner import Runner, SystemClock
from specpilot.domain.settings import Declared
from specpilot.engines import arguments
from specpilot.fleets.local import LocalFleet, Supervision
from specpilot.fleets.local.state import GroupLock
from specpilot.resources import LOCAL_NAMESPACE, local_fleet_from, read
from specpilot.store import Store
from specpilot.telemetry import AutoTelemetry, ScrapeTelemetry
from specpilot.telemetry.gpu import ExporterTelemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often things happen, in seconds.

    Attributes:
        tick: Between evaluations.
        reconcile: Between looks at open changes.
        scrape: Between scrapes of a replica.
    """

    tick: float = 5.0
    reconcile: float = 1.0
    scrape: float = 2.0


@dataclass(slots=True, kw_only=True)
class LocalService:
    """Everything `specpilot local` runs, started and stopped together.

    Attributes:
        store: The embedded store; groups, policies and channels come from it.
        state_dir: Where the fleet keeps its state and logs.
        pace: How often things happen.
        supervision: How closely processes are watched.
        initial: By group, what it runs when it is started for the first time; else off.
        gpu_exporters: Pages of the GPU exporters of this machine.
    """

    store: Store
    state_dir: Path
    pace: Pace = field(default_factory=Pace)
    supervision: Supervision = field(default_factory=Supervision)
    initial: Mapping[str, Declared] = field(default_factory=dict)
    gpu_exporters: tuple[str, ...] = ()
    fleet: LocalFleet = field(init=False)
    runner: Runner = field(init=False)
    _stack: ExitStack = field(init=False, default_factory=ExitStack)

    def __enter__(self) -> Self:
        clock = SystemClock()
        with self.store.read() as unit:
            resources = unit.resources.list(kind="LocalFleet", namespace=LOCAL_NAMESPACE)
        groups = [
            group_of(
                r.name,
                local_fleet_from(read(as_object(r))),
                supervision=self.supervision,
                initial=self.initial.get(r.name, Declared()),
                labels=read(as_object(r)).metadata.labels,
            )
            for r in resources
        ]
        with ExitStack() as stack:
            # One loop a database: a second one would judge targets that it does not supervise.
            lock = GroupLock(self.state_dir / "supervisor.lock", group=str(self.state_dir))
            lock.acquire()
            stack.callback(lock.release)
            self.fleet = stack.enter_context(
                LocalFleet(groups, state_dir=self.state_dir, clock=clock, arguments=_arguments)
            )
            scrape = stack.enter_context(ScrapeTelemetry(clock=clock, interval_s=self.pace.scrape))
            devices = None
            if self.gpu_exporters:
                given = devices_of(groups, inherited=os.environ)
                devices = stack.enter_context(
                    ExporterTelemetry(self.gpu_exporters, clock=clock, devices=given)
                )
            parts = Parts(
                store=self.store,
                fleet=self.fleet,
                telemetry=AutoTelemetry(prometheus=None, scrape=scrape, devices=devices),
                registry=LocalRegistry(store=self.store, clock=clock),
                recorder=Recorder(store=self.store, clock=clock),
                clock=clock,
            )
            dispatcher = Dispatcher(
                store=self.store,
                channels=LocalChannels(self.store),
                client=stack.enter_context(make_client()),
                clock=clock,
            )
            self.runner = stack.enter_context(
                Runner(
                    evaluator=Evaluator(parts),
                    reconciler=Reconciler(parts),
                    deliver=dispatcher.deliver_due,
                    interval_s=self.pace.tick,
                    pace_s=self.pace.reconcile,
                )
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _arguments(declared: Declared, version: str) -> tuple[str, ...]:
    return arguments(declared.config, version=version)
