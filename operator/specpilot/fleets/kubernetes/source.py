"""Where a workload's family (itself, what it owns, their pods) is read from."""

from typing import Protocol

from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.objects import uid_of
from specpilot.fleets.kubernetes.request import PODS, Object, Resource
from specpilot.fleets.kubernetes.store import Store
from specpilot.fleets.kubernetes.watches import Watches
from specpilot.fleets.kubernetes.workloads.base import Family, Workload, descendants


class Source(Protocol):
    """Reads families."""

    def family(self, workload: Workload, namespace: str, name: str) -> Family | None:
        """Return the family, None when there is no such object.

        Raises:
            FleetError: It cannot be known now.
        """
        ...

    def pods_everywhere(self) -> list[Object] | None:
        """Pods of all namespaces, None when they are not at hand.

        Raises:
            FleetError: It cannot be known now.
        """
        ...


class Live:
    """Asks the API server each time."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def family(self, workload: Workload, namespace: str, name: str) -> Family | None:
        """See `Source`."""
        root = self.root(workload, namespace, name)
        return None if root is None else self.family_of(workload, root)

    def pods_everywhere(self) -> list[Object] | None:
        """See `Source`."""
        return None

    def root(self, workload: Workload, namespace: str, name: str) -> Object | None:
        """The object alone."""
        return self._api.find(workload.resource, namespace=namespace, name=name)

    def family_of(self, workload: Workload, root: Object) -> Family:
        """What an object that is at hand owns."""
        selector = workload.selector(root)
        found = {
            resource: self._list(resource, root=root, selector=selector)
            for resource in (*workload.between, PODS)
        }
        return _family(workload, root, found)

    def _list(self, resource: Resource, *, root: Object, selector: str) -> list[Object]:
        try:
            found, _ = self._api.all(
                resource, namespace=root["metadata"]["namespace"], label_selector=selector
            )
        except ApiError as error:
            if error.not_found and not resource.builtin:
                return []  # a cluster has what its owners are installed with, and nothing else
            raise
        return found


def _family(workload: Workload, root: Object, found: dict[Resource, list[Object]]) -> Family:
    """Keep what the root owns: a selector may match other things too."""
    owned = {
        uid_of(o) for o in descendants(uid_of(root), (o for objs in found.values() for o in objs))
    }
    kept = {
        resource: tuple(o for o in objs if uid_of(o) in owned) for resource, objs in found.items()
    }
    return Family(
        root=root,
        members={resource: kept[resource] for resource in workload.between},
        pods=kept[PODS],
    )


class Cached:
    """Reads what the watches know; a kind or a namespace that is not watched is asked for."""

    def __init__(self, watches: Watches, *, live: Live) -> None:
        self._watches = watches
        self._live = live

    def family(self, workload: Workload, namespace: str, name: str) -> Family | None:
        """See `Source`."""
        known = self._watches.watching
        if not self._watches.covers(namespace) or not all(
            known(resource) for resource in (*workload.between, PODS)
        ):
            return self._live.family(workload, namespace, name)
        if known(workload.resource):
            store = self._watches.current(workload.resource, namespace=namespace)
            root = store.get(namespace, name)
        else:
            root = self._live.root(workload, namespace, name)
        if root is None:
            return None
        stores = {
            resource: self._watches.current(resource, namespace=namespace)
            for resource in (*workload.between, PODS)
        }
        return _family(workload, root, _owned(stores, uid_of(root)))

    def pods_everywhere(self) -> list[Object] | None:
        """See `Source`."""
        if not self._watches.everywhere:
            return None
        return self._watches.current(PODS, namespace="").all()


def _owned(stores: dict[Resource, Store], uid: str) -> dict[Resource, list[Object]]:
    """What the root owns, directly or through each other, by kind."""
    found: dict[Resource, list[Object]] = {resource: [] for resource in stores}
    uids = [uid]
    while uids:
        owner = uids.pop()
        for resource, store in stores.items():
            children = store.owned_by(owner)
            found[resource] += children
            # Most pods own nothing, but the leader of a group owns its workers' StatefulSet.
            uids += [uid_of(child) for child in children]
    return found
