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

from specpilot.fleets.kubernetes.request import STATEFUL_SETS, Object
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, dig
from specpilot.fleets.kubernetes.workloads.partitions import PartitionedWorkload


class StatefulSetWorkload(PartitionedWorkload):
    """See the module."""

    resource = STATEFUL_SETS
    hold_field = ("spec", "updateStrategy", "rollingUpdate", "partition")

    def unsuitable(self, root: Object) -> str:
        """See `Workload`."""
        if dig(root, ("spec", "updateStrategy", "type")) != "OnDelete":
            return ""
        return (
            "has spec.updateStrategy.type OnDelete, with which no pod is replaced until somebody "
            "deletes it; set it to RollingUpdate"
        )

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`: one of several makes room where it stood, as every roll of it does."""
        return self.replicas_wanted(family.root) > 1
