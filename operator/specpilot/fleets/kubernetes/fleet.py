"""The fleet of a cluster: an adapter for the kind of workload, a channel for the words.

What is written is our annotations (or the arguments, where the user allows that) and the one field
that holds a roll. Everything else of a workload (replicas, strategy, image) belongs to the user or
to an autoscaler and is only read.

A canary is a roll that is held. Going on lets go of it, going back re-applies what stood there
before; how a kind of workload does that is its adapter's matter.
"""

import functools
import time
from collections.abc import Callable, Mapping

from specpilot.domain.changes import Intent
from specpilot.domain.ports import FleetError
from specpilot.domain.targets import TargetRef, TargetState
from specpilot.fleets.kubernetes import problems
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.autoscaling import Autoscalers
from specpilot.fleets.kubernetes.capacity import Capacity
from specpilot.fleets.kubernetes.channels import Channel, choose
from specpilot.fleets.kubernetes.observing import Observer, container_of
from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.source import Live, Source
from specpilot.fleets.kubernetes.steps import Act, Step
from specpilot.fleets.kubernetes.versions import Ask
from specpilot.fleets.kubernetes.workloads import WORKLOADS, Family, Workload


class KubernetesFleet:
    """Observes workloads and carries out intents on them. See `specpilot.domain.ports.Fleet`.

    Args:
        api: The API server. Its field manager is the one our fields are owned under.
        source: Where to read from when observing; None asks the API server each time.
        version: Asks an engine for its version where its image does not say, None for never.
        get: Gets the text at an address inside the cluster, for owners whose pods do not say what
            they run (RayService); None for never.
        clock: Monotonic seconds.
        sleep: Waits some seconds.
        workloads: Adapter per kind.
    """

    def __init__(
        self,
        api: Api,
        *,
        source: Source | None = None,
        version: Ask | None = None,
        get: Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        workloads: Mapping[str, Workload] = WORKLOADS,
    ) -> None:
        self._api = api
        self._live = Live(api)
        self._source = source or self._live
        self._clock = clock
        self._sleep = sleep
        self._workloads = workloads
        self._capacity = Capacity(api, clock=clock, pods=self._source.pods_everywhere)
        self._observer = Observer(
            capacity=self._capacity,
            autoscalers=Autoscalers(api, clock=clock),
            version=version,
            get=get,
            clock=clock,
            manager=api.field_manager,
            workloads=workloads,
        )

    def observe(self, ref: TargetRef) -> TargetState:
        """Report what is; see `Fleet.observe`.

        What can be said is said beside a problem too: an unwired workload has replicas all the
        same, and an adviser wants to know what they run.

        Raises:
            FleetError: The API server did not answer, or what is known of it is stale.
        """
        workload = self._workloads.get(ref.kind)
        if workload is None:
            return TargetState(ref=ref, problem=problems.unsupported(ref, kinds=self._workloads))
        channel = choose(workload, ref.channel)
        if channel is None:
            return TargetState(ref=ref, problem=problems.no_such_channel(ref))
        try:
            family = self._source.family(workload, ref.namespace, ref.name)
        except ApiError as error:
            if not error.forbidden:
                raise
            return TargetState(ref=ref, problem=problems.forbidden(ref, workload, error))
        if family is None:
            return TargetState(ref=ref, problem=problems.not_found(ref))
        return self._observer.describe(ref, workload, channel, family)

    def freshen(self) -> None:
        """Read what all targets share before it is too old; see `Capacity.freshen`."""
        self._capacity.freshen()

    def carry_out(self, intent: Intent) -> bool:
        """Take the next step towards an intent; see `Fleet.carry_out`.

        Raises:
            FleetError: The step could not be taken.
        """
        ref = intent.target
        workload = self._workloads.get(ref.kind)
        channel = choose(workload, ref.channel) if workload is not None else None
        if workload is None or channel is None:
            return False
        known = self._known(workload, ref)
        if known is not None and not self._due(
            intent, workload, channel, known.root, lambda _: known
        ):
            return False
        root = self._live.root(workload, ref.namespace, ref.name)
        look = functools.partial(self._live.family_of, workload)
        act = self._due(intent, workload, channel, root, look) if root is not None else None
        return act() if act is not None else False

    def _known(self, workload: Workload, ref: TargetRef) -> Family | None:
        """What the watches know, None where they do not.

        A cache that is behind can be wrong for a moment, and then the next call acts; most calls of
        a long roll have nothing to do, and asking each second would cost more than all else.
        """
        if self._source is self._live:
            return None
        try:
            return self._source.family(workload, ref.namespace, ref.name)
        except FleetError:
            return None

    def _due(
        self,
        intent: Intent,
        workload: Workload,
        channel: Channel,
        root: Object,
        look: Callable[[Object], Family],
    ) -> Act | None:
        container = container_of(intent.target, workload, root)
        if container is None:
            return None
        step = Step(
            api=self._api,
            observer=self._observer,
            clock=self._clock,
            sleep=self._sleep,
            workload=workload,
            channel=channel,
            container=container,
            root=root,
            look=look,
        )
        return step.due(intent)
