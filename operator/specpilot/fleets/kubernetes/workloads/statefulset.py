"""StatefulSets: a canary is the highest ordinals, held by the partition.

What is easy to get wrong:

- The controller never starts an extra pod: each one stops before its successor starts. So there is
  no GPU to surge into, and with one replica a change means downtime.
- With `podManagementPolicy: OrderedReady` (the default) a pod that never becomes ready blocks the
  way back: the controller waits for it before it looks at revisions. Kubernetes' documentation has
  its users delete that pod by hand; here it is deleted when it is of a change that was left.
- A partition that the user has set means that some ordinals are to stay as they are. That is a
  roll held by its user, and not steered.
"""

from specpilot.domain.settings import JsonValue
from specpilot.domain.targets import Problem, TargetProblem
from specpilot.fleets.kubernetes.request import STATEFUL_SETS, Object, Request
from specpilot.fleets.kubernetes.wiring import CHANGE_ANNOTATION
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Look, Workload, dig
from specpilot.fleets.kubernetes.workloads.partitions import (
    holds_back,
    left_behind,
    partition_for,
    removals,
)

_NOTED = ("spec", "template", "metadata", "annotations", CHANGE_ANNOTATION)


class StatefulSetWorkload(Workload):
    """See the module."""

    resource = STATEFUL_SETS
    hold_field = ("spec", "updateStrategy", "rollingUpdate", "partition")

    def problem(self, root: Object) -> Problem | None:
        """See `Workload`."""
        if dig(root, ("spec", "updateStrategy", "type")) != "OnDelete":
            return None
        metadata = root["metadata"]
        return Problem(
            reason=TargetProblem.UNSUITABLE_STRATEGY,
            message=f"StatefulSet {metadata['namespace']}/{metadata['name']} has "
            "spec.updateStrategy.type OnDelete, with which no pod is replaced until somebody "
            "deletes it; set it to RollingUpdate",
        )

    def how_to_release(self, root: Object) -> str:
        """See `Workload`."""
        partition = dig(root, self.hold_field)
        return (
            f"spec.updateStrategy.rollingUpdate.partition is {partition} and keeps the ordinals "
            f"below it as they are; set it to 0"
        )

    def holds(self, value: JsonValue) -> bool:
        """See `Workload`."""
        return holds_back(value)

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        root = family.root
        status = root.get("status") or {}
        wanted = self.replicas_wanted(root)
        total = int(status.get("replicas") or 0)
        updated = int(status.get("updatedReplicas") or 0)
        available = int(status.get("availableReplicas") or 0)
        words = []
        if int(root["metadata"].get("generation") or 0) > int(
            status.get("observedGeneration") or 0
        ):
            words.append("the StatefulSet controller has not acted on the latest change yet")
        if updated < wanted:
            words.append(f"{updated} of {wanted} replicas are of the latest template")
        if total != wanted:
            words.append(f"{total} replicas exist and {wanted} are wanted")
        if available < wanted:
            words.append(f"{available} of {wanted} are available")
        return "; ".join(words)

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`: one of several makes room where it stood, as every roll of it does."""
        return self.replicas_wanted(family.root) > 1

    def hold_at_once(self, root: Object, *, canaries: int) -> JsonValue:
        """See `Workload`."""
        return partition_for(wanted=self.replicas_wanted(root), canaries=canaries)

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """See `Workload`; somebody may have scaled since."""
        return self.hold_at_once(root, canaries=canaries)

    def unblock(self, root: Object, look: Look, *, back: bool) -> tuple[Request, ...]:
        """Delete the pods that a change left broken: the controller waits for them for ever."""
        if not self.rolling(Family(root=root)):
            return ()
        change_id = str(dig(root, _NOTED) or "")
        return removals(left_behind(look().pods, change_id=change_id))
