"""A cluster: watches always, the loop only while this process leads."""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from specpilot.alerts import Dispatcher, make_client
from specpilot.controller.cluster_channels import ClusterChannels
from specpilot.controller.cluster_registry import ClusterRegistry
from specpilot.controller.evaluator import Evaluator
from specpilot.controller.parts import Parts
from specpilot.controller.publisher import WRITERS, Publisher
from specpilot.controller.reconciler import Reconciler
from specpilot.controller.recorder import Recorder
from specpilot.controller.runner import Runner, SystemClock
from specpilot.domain.portions import UNDIVIDED
from specpilot.fleets.kubernetes import (
    WATCHED,
    Api,
    Cached,
    Elector,
    KubernetesFleet,
    Live,
    Terms,
    Token,
    Watches,
    ask_engine,
    get_text,
    installed,
)
from specpilot.fleets.kubernetes.gitops import patch
from specpilot.store import Leadership, Store
from specpilot.telemetry import AutoTelemetry, PrometheusTelemetry, ScrapeTelemetry
from specpilot.telemetry.connection import PrometheusServer
from specpilot.telemetry.gpu import DeviceChoice, ExporterTelemetry, PrometheusDevices
from specpilot.telemetry.portions import MOST_PORTIONS
from specpilot.telemetry.windows import Source

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How the operator runs.

    Attributes:
        namespaces: Where it works; empty means everywhere.
        ignored: Namespaces that are left to another installation.
        prometheus: The Prometheus that scrapes the engines; None means direct scrape only.
        gpu_exporters: Pages of GPU exporters, for devices that Prometheus does not know.
        gpu_matchers: PromQL matchers for the GPU exporters' series in Prometheus.
        interval_s: Seconds between evaluations.
        pace_s: Seconds between looks at open changes.
        scrape_interval_s: Seconds between direct scrapes of a replica.
        lease_namespace: Namespace of the lease.
        lease_name: Name of the lease; unique per installation.
        terms: Times of the lease.
        most_concurrent: Changes in flight at a time, in all targets; None is any number.
    """

    namespaces: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    prometheus: PrometheusServer | None = None
    gpu_exporters: tuple[str, ...] = ()
    gpu_matchers: str = ""
    interval_s: float = 15.0
    pace_s: float = 1.0
    scrape_interval_s: float = 5.0
    lease_namespace: str = "default"
    lease_name: str = "specpilot"
    terms: Terms = field(default_factory=Terms)
    most_concurrent: int | None = None


class ClusterService:
    """Everything `specpilot operator` runs.

    Args:
        api: The API server.
        store: The database.
        options: How it runs.
        on_lost: Called when leadership is lost; must end the process.
    """

    def __init__(
        self,
        *,
        api: Api,
        store: Store,
        options: ClusterOptions,
        on_lost: Callable[[str], None],
    ) -> None:
        self._api = api
        self._store = store
        self._options = options
        self._clock = SystemClock()
        self._stack = ExitStack()
        self._leading = ExitStack()
        self._lock = threading.Lock()
        self.runner: Runner | None = None
        """The loop, while this process leads."""
        self._watches = Watches(
            api=api,
            clock=self._clock,
            on_change=lambda *_: None,  # level-triggered: open changes are looked at every second
            namespaces=options.namespaces,
            ignored=options.ignored,
            resources=(*WATCHED, *installed(api, namespaces=options.namespaces)),
        )
        self._elector = Elector(
            api=api,
            namespace=options.lease_namespace,
            name=options.lease_name,
            identity=f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            on_elected=self._lead,
            on_lost=on_lost,
            clock=self._clock,
            terms=options.terms,
        )

    def ready(self) -> str:
        """Return "" when every watch has its first list, else what is missing."""
        broken = [s for s in self._watches.states() if not s.synced]
        return "; ".join(str(s) for s in broken)

    def healthy(self) -> str:
        """Return "" while the process should live: losing the API server is no reason to die."""
        return ""

    def __enter__(self) -> Self:
        self._watches.start()
        self._stack.callback(self._watches.stop)
        self._elector.start()
        self._stack.callback(self._elector.stop)
        self._stack.callback(self._stop_leading)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _stop_leading(self) -> None:
        with self._lock:
            self.runner = None
            self._leading.close()

    def _lead(self, token: Token) -> None:
        """Build the loop and start it; in a thread, so that the lease is renewed meanwhile."""
        threading.Thread(
            target=self._start_leading, args=(token,), name="lead", daemon=True
        ).start()

    def _start_leading(self, token: Token) -> None:
        while not self._watches.wait_synced(timeout_s=30):
            log.warning("still listing: %s", self.ready())
        with self._lock, ExitStack() as stack:
            options, clock = self._options, self._clock
            prometheus = self._prometheus(stack)
            portions = prometheus.portions if prometheus is not None else UNDIVIDED
            telemetry = AutoTelemetry(
                prometheus=prometheus,
                scrape=stack.enter_context(
                    ScrapeTelemetry(clock=clock, interval_s=options.scrape_interval_s)
                ),
                devices=self._devices(stack),
            )
            # A process that was stopped and wakes up when another one leads changes nothing: the
            # database refuses its transactions, and its own clock its requests.
            store = self._store.led(
                Leadership(
                    lease=f"{options.lease_namespace}/{options.lease_name}",
                    lease_created=token.lease_created,
                    transitions=token.transitions,
                    holder=token.holder,
                )
            )
            api = self._api.led(lambda: self._elector.token is not None)
            registry = ClusterRegistry(
                api=api,
                watches=self._watches,
                store=store,
                clock=clock,
                publisher=stack.enter_context(Publisher()),
                changes=stack.enter_context(Publisher(writers=2 * WRITERS)),
            )
            fleet = KubernetesFleet(
                api,
                source=Cached(self._watches, live=Live(api)),
                version=ask_engine,
                get=get_text,
            )
            parts = Parts(
                store=store,
                fleet=fleet,
                telemetry=telemetry,
                registry=registry,
                recorder=Recorder(store=store, clock=clock),
                clock=clock,
                portions=portions,
                most_concurrent=options.most_concurrent,
                patch=patch,
            )
            channels = ClusterChannels(api=api, watches=self._watches, store=store, clock=clock)

            def bring_in() -> None:
                registry.sync_rule_sets()
                channels.report()

            dispatcher = Dispatcher(
                store=store,
                channels=channels,
                client=stack.enter_context(make_client()),
                clock=clock,
            )
            self.runner = stack.enter_context(
                Runner(
                    evaluator=Evaluator(parts),
                    reconciler=Reconciler(parts),
                    deliver=dispatcher.deliver_due,
                    freshen=fleet.freshen,
                    look=lambda portion: telemetry.look(
                        timeout_s=options.interval_s / 2, portion=portion
                    ),
                    portions=portions,
                    before_tick=bring_in,
                    interval_s=options.interval_s,
                    pace_s=options.pace_s,
                )
            )
            self._leading = stack.pop_all()

    def _prometheus(self, stack: ExitStack) -> PrometheusTelemetry | None:
        if self._options.prometheus is None:
            return None
        return stack.enter_context(
            PrometheusTelemetry(
                server=self._options.prometheus,
                clock=self._clock,
                interval_s=self._options.interval_s,
                most_portions=MOST_PORTIONS,
            )
        )

    def _devices(self, stack: ExitStack) -> Source | None:
        """Where numbers of GPUs come from; None where nobody is to be asked."""
        options, clock = self._options, self._clock
        exporters = prometheus = None
        if options.gpu_exporters:
            exporters = stack.enter_context(ExporterTelemetry(options.gpu_exporters, clock=clock))
        if options.prometheus is not None:
            prometheus = stack.enter_context(
                PrometheusDevices(
                    server=options.prometheus,
                    clock=clock,
                    matchers=options.gpu_matchers,
                    interval_s=options.interval_s,
                )
            )
        if prometheus is not None and exporters is not None:
            return DeviceChoice(prometheus=prometheus, exporters=exporters)
        return prometheus if prometheus is not None else exporters
