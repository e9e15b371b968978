"""Deployments: a canary is a roll that is paused as soon as the first new pods are given.

The rules of the Deployment controller that matter here, and are easy to get wrong:

- maxSurge rounds up, maxUnavailable down; when both come out as zero the controller takes one
  replica away after all.
- A paused Deployment still scales. With two ReplicaSets of pods it fills up to replicas + maxSurge,
  proportionally, so a held canary with maxUnavailable > 0 gets its missing old pod back.
- A new ReplicaSet that has all wanted replicas available ends the roll even when paused. So one
  replica is never held beside its canary: it is replaced as soon as the canary is ready.

Going back re-applies what the annotations were, which is the old ReplicaSet to the letter.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.objects import (
    condition_of,
    controller_of,
    template_of,
    uid_of,
)
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, REPLICA_SETS, Object
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Look, Workload
from specpilot.fleets.kubernetes.workloads.strategies import resolve, room_for_canary

_NO_DEADLINE = 2**31 - 1
_DEFAULT_DEADLINE_S = 600


def replicas_wanted(deployment: Mapping[str, Any]) -> int:
    """Replicas the user or an autoscaler asks for."""
    replicas = deployment["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def progress_deadline_s(deployment: Mapping[str, Any]) -> float:
    """The Deployment's own limit for progress; 0 for none."""
    seconds = deployment["spec"].get("progressDeadlineSeconds", _DEFAULT_DEADLINE_S)
    return 0.0 if seconds is None or seconds >= _NO_DEADLINE else float(seconds)


def fenceposts(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """Replicas by which a roll may exceed (surge) and fall short of (unavailable) those wanted."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    wanted = replicas_wanted(deployment)
    surge = resolve(rolling.get("maxSurge", "25%"), of=wanted, up=True)
    unavailable = resolve(rolling.get("maxUnavailable", "25%"), of=wanted, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, unavailable


def recreates(deployment: Mapping[str, Any]) -> bool:
    """Whether all replicas stop before the first new one starts."""
    return (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"


def can_add_replica(deployment: Mapping[str, Any], *, room: Callable[[], bool]) -> bool:
    """Whether a canary can come up without fewer serving than the user's strategy allows.

    Args:
        deployment: The Deployment.
        room: Whether a node has what one more pod requests; asked only when that decides.
    """
    if recreates(deployment):
        return False
    surge, unavailable = fenceposts(deployment)
    return room_for_canary(
        wanted=replicas_wanted(deployment), surge=surge, unavailable=unavailable, room=room
    )


def new_replica_set(deployment: Object, replica_sets: Iterable[Object]) -> Object | None:
    """The ReplicaSet of the Deployment's present template, if it exists."""
    wanted = template_of(deployment)
    same = [rs for rs in replica_sets if template_of(rs) == wanted]
    # The controller takes the oldest when, against its own rules, there are several.
    return min(same, key=lambda rs: str(rs["metadata"].get("creationTimestamp")), default=None)


def rolling(deployment: Object, replica_sets: Iterable[Object], *, old_pods: int) -> str:
    """Words when replicas are being replaced or scaled, "" at rest.

    Args:
        deployment: The Deployment.
        replica_sets: Those it owns.
        old_pods: Pods of another template that are not going away yet.
    """
    status = deployment.get("status") or {}
    wanted = replicas_wanted(deployment)
    total = int(status.get("replicas") or 0)
    updated = int(status.get("updatedReplicas") or 0)
    available = int(status.get("availableReplicas") or 0)
    failed = condition_of(deployment, "ReplicaFailure")
    progress = condition_of(deployment, "Progressing")
    words = []
    if int(deployment["metadata"].get("generation") or 0) > int(
        status.get("observedGeneration") or 0
    ):
        words.append("the Deployment controller has not acted on the latest change yet")
    if failed.get("status") == "True":
        words.append(f"{failed.get('reason')}: {failed.get('message')}")
    if progress.get("reason") == "ProgressDeadlineExceeded":
        words.append(f"ProgressDeadlineExceeded: {progress.get('message')}")
    if updated < wanted:
        words.append(f"{updated} of {wanted} replicas are of the latest template")
    new = new_replica_set(deployment, replica_sets)
    old = sum(int(rs["status"].get("replicas") or 0) for rs in replica_sets if rs is not new)
    left = max(old, old_pods, total - updated)
    if left > 0:
        words.append(f"{left} of an older template are still there")
    if total != wanted:
        words.append(f"{total} replicas exist and {wanted} are wanted")
    if available < wanted:
        words.append(f"{available} of {wanted} are available")
    return "; ".join(words)


def _old_pods(family: Family) -> int:
    """Pods of another ReplicaSet than the newest that are not going away yet."""
    new = new_replica_set(family.root, family.of(REPLICA_SETS))
    newest = uid_of(new) if new is not None else ""
    return sum(
        1
        for pod in family.pods
        if (controller_of(pod) or {}).get("uid") != newest
        and not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") not in {"Failed", "Succeeded"}
    )


class DeploymentWorkload(Workload):
    """See the module."""

    resource = DEPLOYMENTS
    between = (REPLICA_SETS,)
    hold_field = ("spec", "paused")

    def canaries(self, root: Object, asked: int) -> int:
        """See `Workload`; with Recreate there is no first one."""
        return 1 if recreates(root) else super().canaries(root, asked)

    def progress_deadline_s(self, root: Object) -> float:
        """See `Workload`."""
        return progress_deadline_s(root)

    def how_to_release(self, root: Object) -> str:
        """See `Workload`."""
        namespace, name = root["metadata"]["namespace"], root["metadata"]["name"]
        return f"resume it with `kubectl -n {namespace} rollout resume deployment/{name}`"

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        return rolling(family.root, family.of(REPLICA_SETS), old_pods=_old_pods(family))

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`."""
        root = family.root
        return can_add_replica(root, room=lambda: has_room([root["spec"]["template"]["spec"]]))

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """See `Workload`."""
        root = family.root
        _, unavailable = fenceposts(root)
        return () if recreates(root) or unavailable else [root["spec"]["template"]["spec"]]

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """Pause once the new ReplicaSet is told to have enough: its pods follow even then.

        Too few (again: somebody scaled down) means going on until there are enough.
        """
        new = new_replica_set(root, look().of(REPLICA_SETS))
        given = 0 if new is None else int(new["spec"].get("replicas") or 0)
        return True if given >= canaries else None
