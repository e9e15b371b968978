"""Where a workload's family (itself, what it owns, their pods) is read from."""

from collections.abc import Iterable
from dataclasses import dataclass
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
    kept = {r: [o for o in objs if uid_of(o) in owned] for r, objs in found.items()}
    return _put_together(workload, root, kept)


def _put_together(workload: Workload, root: Object, owned: dict[Resource, list[Object]]) -> Family:
    return Family(
        root=root,
        members={resource: tuple(owned[resource]) for resource in workload.between},
        pods=tuple(owned[PODS]),
    )


MOST_REMEMBERED = 20_000
"""Families that are remembered before all are forgotten: more than anybody has at a time."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A family, and the revisions of what it was put together from."""

    revisions: tuple[int, ...]
    family: Family


class Cached:
    """Reads what the watches know; a kind or a namespace that is not watched is asked for.

    The very same family is returned again while nothing changes in its namespace.
    """

    def __init__(self, watches: Watches, *, live: Live) -> None:
        self._watches = watches
        self._live = live
        self._found: dict[tuple[Resource, str, str], _Found] = {}

    def family(self, workload: Workload, namespace: str, name: str) -> Family | None:
        """See `Source`."""
        known = self._watches.watching
        kinds = (*workload.between, PODS)
        if not self._watches.covers(namespace) or not all(map(known, kinds)):
            return self._live.family(workload, namespace, name)
        if not known(workload.resource):
            root = self._live.root(workload, namespace, name)
            if root is None:
                return None
            stores = self._stores(kinds, namespace)
            return _put_together(workload, root, _owned(stores, uid_of(root)))
        key = (workload.resource, namespace, name)
        roots = self._watches.current(workload.resource, namespace=namespace)
        stores = self._stores(kinds, namespace)
        # Before anything is read: what changes while it is read counts as a change.
        revisions = tuple(store.revision(namespace) for store in (roots, *stores.values()))
        found = self._found.get(key)
        if found is not None and found.revisions == revisions:
            return found.family
        root = roots.get(namespace, name)
        if root is None:
            return None
        family = _put_together(workload, root, _owned(stores, uid_of(root)))
        if len(self._found) >= MOST_REMEMBERED:
            self._found.clear()
        self._found[key] = _Found(revisions, family)
        return family

    def _stores(self, kinds: Iterable[Resource], namespace: str) -> dict[Resource, Store]:
        return {kind: self._watches.current(kind, namespace=namespace) for kind in kinds}

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
