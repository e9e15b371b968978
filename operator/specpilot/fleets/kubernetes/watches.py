"""All watches together: what the controller needs to know, kept in memory and reported on change.

Only things of interest are reported: a change of a pod or a ReplicaSet is a change of the
Deployment that owns it, and of nothing when none does.
"""

import threading
import time
from collections.abc import Callable, Sequence

from specpilot.domain.ports import Clock
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.objects import (
    controller_of,
    key_of,
    slim_custom,
    slim_deployment,
    slim_pod,
    slim_replica_set,
    uid_of,
)
from specpilot.fleets.kubernetes.request import (
    CUSTOM_RESOURCES,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    Object,
    Resource,
)
from specpilot.fleets.kubernetes.store import Store
from specpilot.fleets.kubernetes.watch import Pace, Watch, WatchState

OnChange = Callable[[str, str, str], None]
"""Called with kind, namespace and name, from a watch's thread; must only note it down."""

WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, PODS)
WATCHED = (*CUSTOM_RESOURCES, *WORKLOADS)

_KEEP: dict[Resource, Callable[[Object], Object]] = {
    DEPLOYMENTS: slim_deployment,
    REPLICA_SETS: slim_replica_set,
    PODS: slim_pod,
}


class Watches:
    """Watches resources in all namespaces, or in some.

    Args:
        api: The API server.
        clock: For the age of what is known.
        on_change: See `OnChange`.
        namespaces: Where to look; empty means everywhere.
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
        resources: Sequence[Resource] = WATCHED,
        stale_after_s: float = 60.0,
        pace: Pace | None = None,
    ) -> None:
        self._clock = clock
        self._on_change = on_change
        self._namespaces = frozenset(namespaces)
        self._stale_after_s = stale_after_s
        self._stores = {resource: Store() for resource in resources}
        self._watches = {
            (resource, namespace): Watch(
                api=api,
                resource=resource,
                namespace=namespace,
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
        namespace, name = key_of(obj)
        if resource == PODS:
            owner = controller_of(obj)
            if owner is None or owner.get("kind") != "ReplicaSet":
                return
            replica_set = self._stores[REPLICA_SETS].get(namespace, str(owner.get("name")))
            # Not known yet: its own arrival will report the Deployment.
            if replica_set is None or uid_of(replica_set) != owner.get("uid"):
                return
            obj, resource = replica_set, REPLICA_SETS
        if resource == REPLICA_SETS:
            owner = controller_of(obj)
            if owner is None or owner.get("kind") != "Deployment":
                return
            name = str(owner.get("name"))
            resource = DEPLOYMENTS
        self._on_change(resource.kind, namespace, name)
