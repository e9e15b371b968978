"""What StatefulSets and LeaderWorkerSets share: ordinals, a partition, and pods that get stuck.

Ordinals from the partition upwards run the new template, those below it the old one. So the write
that changes the template also sets the partition, and no moment lies between.
"""

from collections.abc import Iterable

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.objects import condition_of, uid_of
from specpilot.fleets.kubernetes.request import PODS, Object, Request, delete
from specpilot.fleets.kubernetes.wiring import CHANGE_ANNOTATION


def partition_for(*, wanted: int, canaries: int) -> int:
    """The partition that gives the new template to so many replicas; 0 when that is all."""
    return max(wanted - canaries, 0)


def holds_back(value: JsonValue) -> bool:
    """Whether a partition that a user has set keeps any ordinal from being updated."""
    return isinstance(value, int) and value > 0


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
        serves = condition_of(pod, "Ready").get("status") == "True"
        ours = written_by and written_by != change_id
        if ours and not serves and not metadata.get("deletionTimestamp"):
            found.append(pod)
    return found


def removals(pods: Iterable[Object]) -> tuple[Request, ...]:
    """Requests that delete those very pods."""
    return tuple(
        delete(
            PODS,
            namespace=pod["metadata"]["namespace"],
            name=pod["metadata"]["name"],
            uid=uid_of(pod),
        )
        for pod in pods
    )
