"""Where a Deployment's family (itself, its ReplicaSets, their pods) is read from."""

from dataclasses import dataclass
from typing import Protocol

from specpilot.fleets.kubernetes.api import Api
from specpilot.fleets.kubernetes.objects import by_controller, uid_of
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, PODS, REPLICA_SETS, Object
from specpilot.fleets.kubernetes.watches import Watches


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A Deployment and what it owns, by uid: labels can lie, a uid is of one object only."""

    deployment: Object
    replica_sets: tuple[Object, ...]
    pods: tuple[Object, ...]


class Source(Protocol):
    """Reads families."""

    def family(self, namespace: str, name: str) -> Family | None:
        """Return the family, None when there is no such Deployment.

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

    def family(self, namespace: str, name: str) -> Family | None:
        """See `Source`."""
        deployment = self._api.find(DEPLOYMENTS, namespace=namespace, name=name)
        if deployment is None:
            return None
        replica_sets = self.replica_sets(deployment)
        uids = {uid_of(rs) for rs in replica_sets}
        pods, _ = self._api.all(PODS, namespace=namespace, label_selector=_selector(deployment))
        owned = [pod for uid in uids for pod in by_controller(pods, uid)]
        return Family(deployment=deployment, replica_sets=tuple(replica_sets), pods=tuple(owned))

    def pods_everywhere(self) -> list[Object] | None:
        """See `Source`."""
        return None

    def deployment(self, namespace: str, name: str) -> Object | None:
        """The Deployment alone."""
        return self._api.find(DEPLOYMENTS, namespace=namespace, name=name)

    def replica_sets(self, deployment: Object) -> list[Object]:
        """The ReplicaSets of a Deployment."""
        found, _ = self._api.all(
            REPLICA_SETS,
            namespace=deployment["metadata"]["namespace"],
            label_selector=_selector(deployment),
        )
        return by_controller(found, uid_of(deployment))


class Cached:
    """Reads what the watches know; a namespace that is not watched is asked for."""

    def __init__(self, watches: Watches, *, live: Live) -> None:
        self._watches = watches
        self._live = live

    def family(self, namespace: str, name: str) -> Family | None:
        """See `Source`."""
        if not self._watches.covers(namespace):
            return self._live.family(namespace, name)
        deployments, sets, pods = (
            self._watches.current(resource, namespace=namespace)
            for resource in (DEPLOYMENTS, REPLICA_SETS, PODS)
        )
        deployment = deployments.get(namespace, name)
        if deployment is None:
            return None
        replica_sets = sets.owned_by(uid_of(deployment))
        return Family(
            deployment=deployment,
            replica_sets=tuple(replica_sets),
            pods=tuple(pod for rs in replica_sets for pod in pods.owned_by(uid_of(rs))),
        )

    def pods_everywhere(self) -> list[Object] | None:
        """See `Source`."""
        if not self._watches.everywhere:
            return None
        return self._watches.current(PODS, namespace="").all()


def _selector(deployment: Object) -> str:
    """The Deployment's selector as text for a list request."""
    selector = deployment["spec"].get("selector") or {}
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(expression.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return ",".join(parts)
