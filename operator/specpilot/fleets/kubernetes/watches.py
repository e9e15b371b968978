"""All watches together: what the controller needs to know, kept in memory and reported on change.

Only things of interest are reported: a change of a pod or a ReplicaSet is a change of the workload
that owns it, and of nothing when none does that could be steered.
"""

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from specpilot.domain.ports import Clock
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.channels import owned_fields
from specpilot.fleets.kubernetes.objects import (
    controller_of,
    key_of,
    slim_custom,
    slim_pod,
    slim_replica_set,
    slim_workload,
    uid_of,
)
from specpilot.fleets.kubernetes.request import (
    CUSTOM_RESOURCES,
    PODS,
    REPLICA_SETS,
    Object,
    Resource,
    page,
)
from specpilot.fleets.kubernetes.store import Store
from specpilot.fleets.kubernetes.watch import Pace, Watch, WatchState
from specpilot.fleets.kubernetes.workloads import WORKLOADS

_log = logging.getLogger(__name__)

OnChange = Callable[[str, str, str], None]
"""Called with kind, namespace and name, from a watch's thread; must only note it down."""

WATCHED = (
    *CUSTOM_RESOURCES,
    *(workload.resource for workload in WORKLOADS.values() if workload.resource.builtin),
    REPLICA_SETS,
    PODS,
)
"""What every cluster has."""

_KEEP: dict[Resource, Callable[[Object], Object]] = {
    REPLICA_SETS: slim_replica_set,
    PODS: slim_pod,
    **{
        workload.resource: functools.partial(slim_workload, fields=owned_fields(workload))
        for workload in WORKLOADS.values()
    },
}


def installed(api: Api, *, namespaces: Sequence[str] = ()) -> tuple[Resource, ...]:
    """Those kinds of workloads, besides `WATCHED`, that this cluster has and lets us see.

    A kind that is installed later, or may not be listed, is asked for at each look: a watch of it
    would never be complete, and with it nothing would.

    Args:
        api: The API server.
        namespaces: Where to look; empty means everywhere.
    """
    found, forbidden = [], []
    for resource in (w.resource for w in WORKLOADS.values() if not w.resource.builtin):
        try:
            for namespace in namespaces or ("",):
                api.send(page(resource, namespace=namespace))
        except ApiError as error:
            if error.forbidden:
                forbidden.append(resource.plural)
            elif not error.not_found:
                _log.warning("%s are not watched: %s", resource.plural, error)
        else:
            found.append(resource)
    if forbidden:
        _log.info("not watched, as they may not be listed: %s", ", ".join(forbidden))
    return tuple(found)


class Watches:
    """Watches resources in all namespaces, or in some.

    Args:
        api: The API server.
        clock: For the age of what is known.
        on_change: See `OnChange`.
        namespaces: Where to look; empty means everywhere.
        ignored: Namespaces whose policies, rule sets, flag changes and channels are another
            installation's. Their pods are seen all the same: they take up GPUs.
        resources: What to watch.
        stale_after_s: How long a connection may be gone before what is known counts as stale.
        pace: Times of each watch.
    """

    def __init__(
        self,
        *,
        api: Api,
        clock: Clock,
        on_change: OnChange,
        namespaces: Sequence[str] = (),
        ignored: Sequence[str] = (),
        resources: Sequence[Resource] = WATCHED,
        stale_after_s: float = 60.0,
        pace: Pace | None = None,
    ) -> None:
        self._clock = clock
        self._on_change = on_change
        self._namespaces = frozenset(namespaces)
        self._stale_after_s = stale_after_s
        self._stores = {resource: Store() for resource in resources}
        elsewhere = ",".join(f"metadata.namespace!={name}" for name in ignored)
        self._watches = {
            (resource, namespace): Watch(
                api=api,
                resource=resource,
                namespace=namespace,
                field_selector=elsewhere if resource in CUSTOM_RESOURCES else "",
                store=self._stores[resource],
                keep=_KEEP.get(resource, slim_custom),
                notify=self._changed,
                clock=clock,
                pace=pace or Pace(),
            )
            for resource in resources
            for namespace in (namespaces or ("",))
        }

    def start(self) -> None:
        """Begin watching."""
        for watch in self._watches.values():
            watch.start()

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """End all watches."""
        enders = [
            threading.Thread(target=watch.stop, kwargs={"timeout_s": timeout_s})
            for watch in self._watches.values()
        ]
        for ender in enders:
            ender.start()
        for ender in enders:
            ender.join(timeout_s)

    def wait_synced(self, *, timeout_s: float) -> bool:
        """Wait until each watch has read a whole list; False when the time is over first."""
        deadline = time.monotonic() + timeout_s
        return all(
            watch.wait_synced(max(0.0, deadline - time.monotonic()))
            for watch in self._watches.values()
        )

    def synced(self) -> bool:
        """Whether each watch has read a whole list at least once."""
        return all(watch.state.synced for watch in self._watches.values())

    def states(self) -> tuple[WatchState, ...]:
        """How each watch is doing."""
        return tuple(watch.state for watch in self._watches.values())

    @property
    def everywhere(self) -> bool:
        """Whether all namespaces are watched."""
        return not self._namespaces

    def covers(self, namespace: str) -> bool:
        """Whether objects of a namespace are watched."""
        return not self._namespaces or namespace in self._namespaces

    def watching(self, resource: Resource) -> bool:
        """Whether objects of a kind are watched."""
        return resource in self._stores

    def store(self, resource: Resource) -> Store:
        """What is known of a resource, stale or not."""
        return self._stores[resource]

    def current(self, resource: Resource, *, namespace: str) -> Store:
        """What is known of a resource, when it can be relied on.

        Raises:
            ApiError: The first list is not complete, or there has been no connection for longer
                than `stale_after_s`.
        """
        where = namespace if self._namespaces else ""
        state = self._watches[(resource, where)].state
        if not state.synced:
            raise ApiError(f"{resource.plural} are still being listed: {state.error}", status=0)
        if state.broken_since is not None:
            age = (self._clock.now() - state.broken_since).total_seconds()
            if age > self._stale_after_s:
                raise ApiError(
                    f"no connection to the API server for {age:.0f} s: {state.error}", status=0
                )
        return self._stores[resource]

    def _changed(self, resource: Resource, obj: Object) -> None:
        if resource.kind not in WORKLOADS and resource not in {PODS, REPLICA_SETS}:
            self._on_change(resource.kind, *key_of(obj))
            return
        for kind, namespace, name in self._upwards(resource, obj):
            if kind in WORKLOADS:
                self._on_change(kind, namespace, name)

    def _upwards(self, resource: Resource, obj: Object) -> Iterator[tuple[str, str, str]]:
        """The object and what it belongs to, from owner to owner, as far as that is known.

        An owner that is not known yet reports itself when it arrives.
        """
        namespace, name = key_of(obj)
        yield resource.kind, namespace, name
        owner = controller_of(obj)
        while owner is not None:
            kind, name = str(owner.get("kind")), str(owner.get("name"))
            store = next((s for r, s in self._stores.items() if r.kind == kind), None)
            above = store.get(namespace, name) if store is not None else None
            if store is not None and (above is None or uid_of(above) != owner.get("uid")):
                return
            yield kind, namespace, name
            owner = controller_of(above) if above is not None else None
