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

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.objects import (
    condition_of,
    controller_of,
    has_ended,
    template_of,
    uid_of,
)
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, REPLICA_SETS, Object
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Look, dig
from specpilot.fleets.kubernetes.workloads.strategies import SurgingWorkload, counted

_NO_DEADLINE = 2**31 - 1
_DEFAULT_DEADLINE_S = 600


def recreates(root: Object) -> bool:
    """Whether all replicas stop before the first new one starts."""
    return bool(dig(root, ("spec", "strategy", "type")) == "Recreate")


def new_replica_set(deployment: Object, replica_sets: Iterable[Object]) -> Object | None:
    """The ReplicaSet of the Deployment's present template, if it exists."""
    wanted = template_of(deployment)
    same = [rs for rs in replica_sets if template_of(rs) == wanted]
    # The controller takes the oldest when, against its own rules, there are several.
    return min(same, key=lambda rs: str(rs["metadata"].get("creationTimestamp")), default=None)


def _older(family: Family) -> int:
    """Replicas of another template than the present one that are not going away yet."""
    sets = family.of(REPLICA_SETS)
    new = new_replica_set(family.root, sets)
    newest = uid_of(new) if new is not None else ""
    pods = sum(
        1
        for pod in family.pods
        if (controller_of(pod) or {}).get("uid") != newest
        and not pod["metadata"].get("deletionTimestamp")
        and not has_ended(pod)
    )
    return max(pods, sum(int(rs["status"].get("replicas") or 0) for rs in sets if rs is not new))


class DeploymentWorkload(SurgingWorkload):
    """See the module."""

    resource = DEPLOYMENTS
    between = (REPLICA_SETS,)
    hold_field = ("spec", "paused")
    strategy = ("spec", "strategy", "rollingUpdate")

    def canaries(self, root: Object, asked: int) -> int:
        """See `Workload`; with Recreate there is no first one."""
        return 1 if recreates(root) else super().canaries(root, asked)

    def progress_deadline_s(self, root: Object) -> float:
        """See `Workload`."""
        seconds = root["spec"].get("progressDeadlineSeconds", _DEFAULT_DEADLINE_S)
        return 0.0 if seconds is None or seconds >= _NO_DEADLINE else float(seconds)

    def how_to_release(self, root: Object) -> str:
        """See `Workload`."""
        namespace, name = root["metadata"]["namespace"], root["metadata"]["name"]
        return f"resume it with `kubectl -n {namespace} rollout resume deployment/{name}`"

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        root = family.root
        words = self.not_observed(root)
        failed, progress = condition_of(root, "ReplicaFailure"), condition_of(root, "Progressing")
        if failed.get("status") == "True":
            words.append(f"{failed.get('reason')}: {failed.get('message')}")
        if progress.get("reason") == "ProgressDeadlineExceeded":
            words.append(f"ProgressDeadlineExceeded: {progress.get('message')}")
        wanted = self.replicas_wanted(root)
        return "; ".join([*words, *counted(root, wanted=wanted, older=_older(family))])

    def fenceposts(self, root: Object) -> tuple[int, int]:
        """See `SurgingWorkload`; where both come out as zero, one has to go."""
        surge, unavailable = super().fenceposts(root)
        return surge, unavailable or int(surge == 0)

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`."""
        return not recreates(family.root) and super().can_add_replica(family, has_room)

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """See `Workload`."""
        return () if recreates(family.root) else super().must_surge(family)

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """Pause once the new ReplicaSet is told to have enough: its pods follow even then.

        Too few (again: somebody scaled down) means going on until there are enough.
        """
        new = new_replica_set(root, look().of(REPLICA_SETS))
        given = 0 if new is None else int(new["spec"].get("replicas") or 0)
        return True if given >= canaries else None
