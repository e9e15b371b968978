"""Questions to the objects of a cluster, for ``wait_for`` and assertions."""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]


def condition(resource: JsonObject, kind: str) -> str:
    """The status of a condition: ``True``, ``False``, ``Unknown``, or ``""`` where it is absent."""
    found = (resource.get("status") or {}).get("conditions") or []
    return next((str(one["status"]) for one in found if one["type"] == kind), "")


def is_ready(pod: JsonObject) -> bool:
    return condition(pod, "Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def container_status(pod: JsonObject, name: str = "main") -> JsonObject:
    """The status of a container; empty while the kubelet has not reported one."""
    found = (pod.get("status") or {}).get("containerStatuses") or []
    return next((one for one in found if one["name"] == name), {})


def waiting_reason(pod: JsonObject, name: str = "main") -> str:
    """Why a container does not run, such as ``CrashLoopBackOff``; ``""`` when it does."""
    state = container_status(pod, name).get("state") or {}
    return str((state.get("waiting") or {}).get("reason", ""))


def is_rolled_out(deployment: JsonObject) -> bool:
    """``kubectl rollout status`` would say that it is done."""
    status, wanted = deployment.get("status") or {}, deployment["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == deployment["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
    )
