"""The status that the kubelet reports, as a pure function of what runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

JsonObject = dict[str, Any]


def timestamp(moment: datetime | None = None) -> str:
    """The API's form of a time: RFC 3339, whole seconds, UTC."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class ContainerState:
    """One container as it is now; exactly one of waiting, running_since and terminated is set."""

    name: str
    image: str
    waiting: JsonObject | None = field(default_factory=lambda: {"reason": "PodInitializing"})
    running_since: str | None = None
    terminated: JsonObject | None = None
    last: JsonObject | None = None
    restart_count: int = 0
    container_id: str = ""
    started: bool = False
    ready: bool = False

    def wait(self, reason: str, message: str = "") -> None:
        if self.terminated:
            self.last = {"terminated": self.terminated}
        self._reset()
        self.waiting = {"reason": reason, **({"message": message} if message else {})}

    def run(self, *, container_id: str) -> None:
        if self.terminated:
            self.last = {"terminated": self.terminated}
        self._reset()
        self.container_id = container_id
        self.running_since = timestamp()

    def terminate(self, *, exit_code: int, reason: str, message: str = "") -> None:
        since = self.running_since or timestamp()
        self._reset()
        self.terminated = {
            "exitCode": exit_code,
            "reason": reason,
            "startedAt": since,
            "finishedAt": timestamp(),
            "containerID": self.container_id,
            **({"message": message} if message else {}),
        }

    def _reset(self) -> None:
        self.waiting = self.running_since = self.terminated = None
        self.started = self.ready = False

    @property
    def running(self) -> bool:
        return self.running_since is not None

    @property
    def exit_code(self) -> int | None:
        return None if self.terminated is None else int(self.terminated["exitCode"])

    def report(self) -> JsonObject:
        """The API's ContainerStatus."""
        if self.running_since is not None:
            state: JsonObject = {"running": {"startedAt": self.running_since}}
        elif self.terminated is not None:
            state = {"terminated": self.terminated}
        else:
            state = {"waiting": self.waiting}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"local/{self.image}" if self.container_id else "",
            "containerID": self.container_id,
            "restartCount": self.restart_count,
            "started": self.started,
            "ready": self.ready,
            "state": state,
            "lastState": self.last or {},
        }


def pod_status(
    pod: JsonObject,
    *,
    initialised: bool,
    inits: Sequence[ContainerState],
    containers: Sequence[ContainerState],
    ip: str,
    host_ip: str,
    previous: Iterable[JsonObject],
) -> JsonObject:
    """The pod's status, without the conditions that others own.

    ``previous`` are the conditions reported before: a transition time changes with the status only.
    """
    phase = _phase(pod, initialised=initialised, inits=inits, containers=containers)
    finished = phase in ("Succeeded", "Failed")
    unready = [one.name for one in containers if not one.ready]
    contained = "PodCompleted" if finished else "ContainersNotReady"
    detail = "" if finished else f"containers with unready status: [{' '.join(unready)}]"
    waiting_gates = _waiting_gates(pod)
    conditions = [
        _condition("PodReadyToStartContainers", holds=not finished),
        _condition("Initialized", holds=initialised, reason="ContainersNotInitialized"),
        _condition("ContainersReady", holds=not unready, reason=contained, message=detail),
        _condition("Ready", holds=not unready, reason=contained, message=detail)
        if unready
        else _condition("Ready", holds=not waiting_gates, reason="ReadinessGatesNotReady"),
    ]
    known = {one["type"]: one for one in previous}
    for condition in conditions:
        before = known.get(condition["type"])
        same = before is not None and before["status"] == condition["status"]
        condition["lastTransitionTime"] = (
            before["lastTransitionTime"] if before and same else timestamp()
        )
    return {
        "phase": phase,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": (pod.get("status") or {}).get("startTime") or timestamp(),
        "qosClass": (pod.get("status") or {}).get("qosClass") or "BestEffort",
        "conditions": conditions,
        "initContainerStatuses": [one.report() for one in inits],
        "containerStatuses": [one.report() for one in containers],
    }


def _condition(kind: str, *, holds: bool, reason: str = "", message: str = "") -> JsonObject:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": None if holds else reason or None,
        "message": None if holds else message or None,
    }


def _waiting_gates(pod: JsonObject) -> list[str]:
    status = {
        one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or []
    }
    gates = [one["conditionType"] for one in pod["spec"].get("readinessGates") or []]
    return [gate for gate in gates if status.get(gate) != "True"]


def _phase(
    pod: JsonObject,
    *,
    initialised: bool,
    inits: Sequence[ContainerState],
    containers: Sequence[ContainerState],
) -> str:
    policy = pod["spec"].get("restartPolicy", "Always")
    if not initialised:
        broken = any(one.exit_code for one in inits)
        return "Failed" if broken and policy == "Never" else "Pending"
    codes = [one.exit_code for one in containers]
    if policy != "Always" and all(code is not None for code in codes):
        if not any(codes):
            return "Succeeded"
        if policy == "Never":
            return "Failed"
    never_ran = all(one.waiting and not one.restart_count and not one.last for one in containers)
    return "Pending" if never_ran else "Running"
