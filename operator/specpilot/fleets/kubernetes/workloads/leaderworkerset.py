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

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.objects import controller_of, uid_of
from specpilot.fleets.kubernetes.request import STATEFUL_SETS, Object, Request, Resource
from specpilot.fleets.kubernetes.wiring import CHANGE_ANNOTATION
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Look, Workload, dig
from specpilot.fleets.kubernetes.workloads.partitions import (
    holds_back,
    left_behind,
    partition_for,
    removals,
)
from specpilot.fleets.kubernetes.workloads.strategies import resolve, room_for_canary

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


class LeaderWorkerSetWorkload(Workload):
    """See the module."""

    resource = LEADER_WORKER_SETS
    between = (STATEFUL_SETS,)
    templates = (_LEADER, _WORKER)  # without the first, the second is the leader's too
    hold_field = (*_STRATEGY, "partition")

    def selector(self, root: Object) -> str:
        """See `Workload`."""
        return f"leaderworkerset.sigs.k8s.io/name={root['metadata']['name']}"

    def how_to_release(self, root: Object) -> str:
        """See `Workload`."""
        partition = dig(root, self.hold_field)
        return (
            f"spec.rolloutStrategy.rollingUpdateConfiguration.partition is {partition} and keeps "
            f"the groups below it as they are; set it to 0"
        )

    def holds(self, value: JsonValue) -> bool:
        """See `Workload`."""
        return holds_back(value)

    def replicas(self, family: Family) -> list[tuple[Object, ...]]:
        """The groups: each leader with the workers that its own StatefulSet has."""
        root = uid_of(family.root)
        owners = {uid_of(s): _owner(s) for s in family.of(STATEFUL_SETS)}
        leaders = [pod for pod in family.pods if owners.get(_owner(pod)) == root]
        workers: dict[str, list[Object]] = {}
        for pod in family.pods:
            workers.setdefault(owners.get(_owner(pod), ""), []).append(pod)
        return [(leader, *workers.get(uid_of(leader), ())) for leader in leaders]

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        root = family.root
        status = root.get("status") or {}
        wanted = self.replicas_wanted(root)
        total = int(status.get("replicas") or 0)
        updated = int(status.get("updatedReplicas") or 0)
        ready = int(status.get("readyReplicas") or 0)
        observed = status.get("observedGeneration")
        words = []
        # Older controllers do not report it; what the pods were started with tells anyway.
        if observed is not None and int(root["metadata"].get("generation") or 0) > int(observed):
            words.append("the LeaderWorkerSet controller has not acted on the latest change yet")
        if updated < wanted:
            words.append(f"{updated} of {wanted} groups are of the latest template")
        if total != wanted:
            words.append(f"{total} groups exist and {wanted} are wanted")
        if ready < wanted:
            words.append(f"{ready} of {wanted} groups are ready")
        return "; ".join(words)

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`."""
        root = family.root
        wanted = self.replicas_wanted(root)
        surge, unavailable = _fenceposts(root, wanted=wanted)
        return room_for_canary(
            wanted=wanted,
            surge=surge,
            unavailable=unavailable,
            room=lambda: has_room(_pods_of_group(root)),
        )

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """See `Workload`: a whole group."""
        root = family.root
        _, unavailable = _fenceposts(root, wanted=self.replicas_wanted(root))
        return () if unavailable else _pods_of_group(root)

    def hold_at_once(self, root: Object, *, canaries: int) -> JsonValue:
        """See `Workload`."""
        return partition_for(wanted=self.replicas_wanted(root), canaries=canaries)

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """See `Workload`; somebody may have scaled since."""
        return self.hold_at_once(root, canaries=canaries)

    def unblock(self, root: Object, look: Look, *, back: bool) -> tuple[Request, ...]:
        """Delete the leaders that a change left broken; their groups go with them."""
        if not self.rolling(Family(root=root)):
            return ()
        template = _LEADER if dig(root, _LEADER) else _WORKER
        change_id = str(dig(root, (*template, "metadata", "annotations", CHANGE_ANNOTATION)) or "")
        leaders = [group[0] for group in self.replicas(look())]
        return removals(left_behind(leaders, change_id=change_id))


def _fenceposts(root: Object, *, wanted: int) -> tuple[int, int]:
    strategy = dig(root, _STRATEGY) or {}
    return (
        resolve(strategy.get("maxSurge", 0), of=wanted, up=True),
        resolve(strategy.get("maxUnavailable", 1), of=wanted, up=False),
    )


def _pods_of_group(root: Object) -> list[Mapping[str, Any]]:
    worker = dig(root, (*_WORKER, "spec")) or {}
    leader = dig(root, (*_LEADER, "spec")) or worker
    size = int(dig(root, (*_GROUP, "size")) or 1)
    return [leader, *[worker] * (size - 1)]


def _owner(obj: Object) -> str:
    return str((controller_of(obj) or {}).get("uid") or "")
