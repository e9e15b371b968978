"""LeaderWorkerSets: a replica is a group of pods, and the partition counts groups.

What is easy to get wrong:

- Each group is a leader pod and `size - 1` workers; only the leader serves. A change of either
  template recreates whole groups, so both get the annotations in one write.
- With Ray the workers take their configuration from the leader. With `--nnodes`/`--headless` each
  pod runs the engine by its own command line, and all of a group have to say the same.
- A surge needs room for a whole group.
- The LeaderWorkerSet owns StatefulSets (one of leaders, one per group of workers), which are not to
  be steered by themselves.

Written from the documented API (`leaderworkerset.x-k8s.io/v1`): partition, maxSurge and
maxUnavailable are spec.rolloutStrategy.rollingUpdateConfiguration's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specpilot.fleets.kubernetes.objects import controller_of, uid_of
from specpilot.fleets.kubernetes.request import STATEFUL_SETS, Object, Resource
from specpilot.fleets.kubernetes.workloads.base import Family, dig
from specpilot.fleets.kubernetes.workloads.partitions import PartitionedWorkload
from specpilot.fleets.kubernetes.workloads.strategies import SurgingWorkload

LEADER_WORKER_SETS = Resource(
    group="leaderworkerset.x-k8s.io",
    version="v1",
    plural="leaderworkersets",
    kind="LeaderWorkerSet",
)

_GROUP = ("spec", "leaderWorkerTemplate")
_LEADER = (*_GROUP, "leaderTemplate")
_WORKER = (*_GROUP, "workerTemplate")
_STRATEGY = ("spec", "rolloutStrategy", "rollingUpdateConfiguration")


class LeaderWorkerSetWorkload(PartitionedWorkload, SurgingWorkload):
    """See the module."""

    resource = LEADER_WORKER_SETS
    between = (STATEFUL_SETS,)
    templates = (_LEADER, _WORKER)  # without the first, the second is the leader's too
    hold_field = (*_STRATEGY, "partition")
    strategy = _STRATEGY
    unless_said = (0, 1)
    noun = "groups"
    serving = "ready"
    reports_observed = False  # older controllers do not

    def selector(self, root: Object) -> str:
        """See `Workload`."""
        return f"leaderworkerset.sigs.k8s.io/name={root['metadata']['name']}"

    def replicas(self, family: Family) -> list[tuple[Object, ...]]:
        """The groups: each leader with the workers that its own StatefulSet has."""
        root = uid_of(family.root)
        owners = {uid_of(s): _owner(s) for s in family.of(STATEFUL_SETS)}
        leaders = [pod for pod in family.pods if owners.get(_owner(pod)) == root]
        workers: dict[str, list[Object]] = {}
        for pod in family.pods:
            workers.setdefault(owners.get(_owner(pod), ""), []).append(pod)
        return [(leader, *workers.get(uid_of(leader), ())) for leader in leaders]

    def replica_specs(self, root: Object) -> Sequence[Mapping[str, Any]]:
        """See `SurgingWorkload`: a whole group."""
        worker = dig(root, (*_WORKER, "spec")) or {}
        leader = dig(root, (*_LEADER, "spec")) or worker
        size = int(dig(root, (*_GROUP, "size")) or 1)
        return [leader, *[worker] * (size - 1)]


def _owner(obj: Object) -> str:
    return str((controller_of(obj) or {}).get("uid") or "")
