"""What the owners have in common whose pods come by a controller that is not ours to pause.

Most make a Deployment for each part of a service and write its template. Its pods are found by the
chain of owners from the object that the policy names, and only those that run the engine count: a
router or a frontend beside it is none of our business.

Such an owner has no field that holds a roll. Whatever is written reaches all replicas, by the
strategy of the Deployment below; so with several replicas that needs the user's word beforehand
(`rollout.allowDowntime`), and with one it is a comparison of before and after, as everywhere.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specpilot.fleets.kubernetes.objects import is_ready, uid_of
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, REPLICA_SETS, Object, Resource
from specpilot.fleets.kubernetes.workloads.base import (
    Family,
    HasRoom,
    Path,
    Workload,
    descendants,
)
from specpilot.fleets.kubernetes.workloads.deployment import DeploymentWorkload

_DEPLOYMENT = DeploymentWorkload()


class OwnedWorkload(Workload):
    """See the module.

    Attributes:
        heads: Kinds among `between` of which some objects own the engine's pods (see `is_engine`);
            empty where it is the object itself.
    """

    between: tuple[Resource, ...] = (DEPLOYMENTS, REPLICA_SETS)
    templates: tuple[Path, ...] = ()
    heads: tuple[Resource, ...] = (DEPLOYMENTS,)
    reports_observed = False

    def is_engine(self, root: Object, member: Object) -> bool:
        """Whether the pods of a member of `heads` run the engine."""
        return True

    def selector(self, root: Object) -> str:
        """See `Workload`: all of the namespace, of which the chain of owners then takes its own."""
        return ""

    def unheld(self, root: Object) -> str:
        """See `Workload`."""
        return (
            f"{self.resource.kind} objects have nothing that holds a roll after its first replica"
        )

    def replicas(self, family: Family) -> list[tuple[Object, ...]]:
        """See `Workload`."""
        return [(pod,) for pod in self.engine_pods(family)]

    def engines(self, family: Family) -> list[Object]:
        """The members of `heads` whose pods run the engine."""
        return [
            member
            for resource in self.heads
            for member in family.of(resource)
            if self.is_engine(family.root, member)
        ]

    def engine_pods(self, family: Family) -> tuple[Object, ...]:
        """The pods that run the engine."""
        if not self.heads:
            return family.pods
        uids = set[str]().union(*(_below(engine, family) for engine in self.engines(family)))
        return tuple(pod for pod in family.pods if uid_of(pod) in uids)

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        words = self.not_observed(family.root)
        deployments = self._deployments(family)
        words += [found for one in deployments if (found := _DEPLOYMENT.rolling(one))]
        if len(deployments) != 1:
            words += _rolling_pods(self.engine_pods(family), wanted=self.desired(family))
        return "; ".join(words)

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`."""
        deployments = self._deployments(family)
        return len(deployments) == 1 and _DEPLOYMENT.can_add_replica(deployments[0], has_room)

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """See `Workload`."""
        deployments = self._deployments(family)
        return _DEPLOYMENT.must_surge(deployments[0]) if len(deployments) == 1 else ()

    def _deployments(self, family: Family) -> list[Family]:
        """The Deployments that run the engine, each with what it owns."""
        found = []
        for root in (e for e in self.engines(family) if e in family.of(DEPLOYMENTS)):
            owned = _below(root, family)
            sets = tuple(o for o in family.of(REPLICA_SETS) if uid_of(o) in owned)
            pods = tuple(o for o in family.pods if uid_of(o) in owned)
            found.append(Family(root=root, members={REPLICA_SETS: sets}, pods=pods))
        return found


def _below(member: Object, family: Family) -> set[str]:
    """Uids of what a member owns, directly or through others."""
    below = descendants(uid_of(member), [*family.between(), *family.pods])
    return {uid_of(o) for o in below}


def _rolling_pods(pods: Sequence[Object], *, wanted: int) -> list[str]:
    """Words about pods that are too many, too few, or not ready."""
    words = []
    staying = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    leaving = len(pods) - len(staying)
    ready = sum(is_ready(pod) for pod in staying)
    if leaving:
        words.append(f"{leaving} pods are going away")
    if len(staying) != wanted:
        words.append(f"{len(staying)} replicas exist and {wanted} are wanted")
    if ready < wanted:
        words.append(f"{ready} of {wanted} are ready")
    return words
