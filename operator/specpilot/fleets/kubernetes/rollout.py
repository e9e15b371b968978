"""Where a Deployment's roll stands, as pure functions of the objects.

The rules of the Deployment controller that matter here, and are easy to get wrong:

- maxSurge rounds up, maxUnavailable down; when both come out as zero the controller takes one
  replica away after all.
- A paused Deployment still scales. With two ReplicaSets of pods it fills up to replicas + maxSurge,
  proportionally, so a held canary with maxUnavailable > 0 gets its missing old pod back.
- A new ReplicaSet that has all wanted replicas available ends the roll even when paused. So one
  replica is never held beside its canary: it is replaced as soon as the canary is ready.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from specpilot.fleets.kubernetes.objects import (
    USER_TEMPLATE,
    condition_of,
    our_annotations,
    user_template,
)
from specpilot.fleets.kubernetes.request import Object

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


def _resolve(value: object, *, of: int, up: bool) -> int:
    """A number of replicas from an int or a percentage, rounded as the controller rounds."""
    text = str(value)
    if text.endswith("%"):
        exact = int(text[:-1]) * of / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(text)


def fenceposts(deployment: Mapping[str, Any]) -> tuple[int, int]:
    """Replicas by which a roll may exceed (surge) and fall short of (unavailable) those wanted."""
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    wanted = replicas_wanted(deployment)
    surge = _resolve(rolling.get("maxSurge", "25%"), of=wanted, up=True)
    unavailable = _resolve(rolling.get("maxUnavailable", "25%"), of=wanted, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, unavailable


def recreates(deployment: Mapping[str, Any]) -> bool:
    """Whether all replicas stop before the first new one starts."""
    return (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"


def can_add_replica(deployment: Mapping[str, Any], *, room: bool) -> bool:
    """Whether a canary can come up without fewer serving than the user's strategy allows.

    Args:
        deployment: The Deployment.
        room: Whether a node has what one more pod requests.
    """
    if recreates(deployment):
        return False
    surge, unavailable = fenceposts(deployment)
    if replicas_wanted(deployment) <= 1:
        # With maxUnavailable 1 the controller stops the only one at once, surge or not.
        return surge >= 1 and unavailable == 0 and room
    # One of several may be missing by the user's own word, and makes room where it stood.
    return unavailable >= 1 or (surge >= 1 and room)


def template_of(owner: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Our annotations in an object's pod template, and the hash of the rest of it."""
    template = owner["spec"]["template"]
    kept = owner.get(USER_TEMPLATE)
    return our_annotations(template.get("metadata") or {}), str(kept or user_template(template))


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
