"""What StatefulSets and LeaderWorkerSets share: ordinals, a partition, and pods that get stuck.

Ordinals from the partition upwards run the new template, those below it the old one. So the write
that changes the template also sets the partition, and no moment lies between.
"""

from collections.abc import Iterable

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.objects import is_ready, uid_of
from specpilot.fleets.kubernetes.request import PODS, Object, Request, delete
from specpilot.fleets.kubernetes.wiring import CHANGE_ANNOTATION
from specpilot.fleets.kubernetes.workloads.base import Family, Look, Workload, dig
from specpilot.fleets.kubernetes.workloads.strategies import counted


class PartitionedWorkload(Workload):
    """A workload whose `hold_field` is a partition.

    Attributes:
        noun: What its replicas are called.
        serving: How its status calls those that serve.
    """

    noun: str = "replicas"
    serving: str = "available"

    def how_to_release(self, root: Object) -> str:
        """See `Workload`."""
        return (
            f"{'.'.join(map(str, self.hold_field))} is {dig(root, self.hold_field)} and keeps the "
            f"{self.noun} below it as they are; set it to 0"
        )

    def holds(self, value: JsonValue) -> bool:
        """See `Workload`."""
        return isinstance(value, int) and value > 0

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        root = family.root
        wanted = self.replicas_wanted(root)
        counts = counted(root, wanted=wanted, noun=self.noun, serving=self.serving)
        return "; ".join([*self.not_observed(root), *counts])

    def hold_at_once(self, root: Object, *, canaries: int) -> JsonValue:
        """See `Workload`: as many as are to try it are left at or above the partition."""
        return max(self.replicas_wanted(root) - canaries, 0)

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """See `Workload`; somebody may have scaled since."""
        return self.hold_at_once(root, canaries=canaries)

    def unblock(self, root: Object, look: Look, *, back: bool) -> tuple[Request, ...]:
        """Delete the pods that a change left broken: the controller waits for them for ever."""
        if not self.rolling(Family(root=root)):
            return ()
        [(_, template), *_] = self.pod_templates(root)
        change_id = str(dig(template, ("metadata", "annotations", CHANGE_ANNOTATION)) or "")
        serving = [replica[0] for replica in self.replicas(look())]  # what else there is goes along
        return tuple(
            delete(
                PODS,
                namespace=pod["metadata"]["namespace"],
                name=pod["metadata"]["name"],
                uid=uid_of(pod),
            )
            for pod in left_behind(serving, change_id=change_id)
        )


def left_behind(pods: Iterable[Object], *, change_id: str) -> list[Object]:
    """Pods that another flag change than the present one has left, and that do not serve.

    Args:
        pods: Pods to choose from.
        change_id: The change that the template carries now, "" for none.
    """
    found = []
    for pod in pods:
        metadata = pod["metadata"]
        written_by = (metadata.get("annotations") or {}).get(CHANGE_ANNOTATION)
        ours = written_by and written_by != change_id
        if ours and not is_ready(pod) and not metadata.get("deletionTimestamp"):
            found.append(pod)
    return found
