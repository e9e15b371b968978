"""A pod as a replica: what it was started with, whether it serves, and what is wrong, in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from specpilot.domain.settings import UNRECOGNISED, Declared
from specpilot.domain.targets import Replica
from specpilot.fleets.kubernetes.objects import condition_of, has_ended, instant, uid_of
from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.wiring import argv, is_wired, running

Runs: TypeAlias = Callable[[Object, Mapping[str, Any]], Declared]
"""Says what a pod runs in its engine's container."""

DEFAULT_PORT = 8000
"""Where vLLM listens unless told otherwise."""

_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons to wait that are no failure."""

_OF_THE_MACHINE = frozenset(
    {
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "NodeAffinity",
        "Shutdown",
        "Terminated",
        "Preempting",
        "UnexpectedAdmissionError",
        "OutOfcpu",
        "OutOfmemory",
    }
)
"""`status.reason` of pods that the node or the scheduler ended, whatever they ran."""

_MAX_WORDS = 300


def pick_container(containers: list[Mapping[str, Any]], wanted: str) -> Mapping[str, Any] | None:
    """The container that runs the engine: the named one, else the only one, else `vllm`."""
    if not wanted and len(containers) == 1:
        return containers[0]
    name = wanted or "vllm"
    return next((c for c in containers if c.get("name") == name), None)


def by_its_line(pod: Object, engine: Mapping[str, Any]) -> Declared:
    """What the command line and the annotations say."""
    return running(pod["metadata"], engine)


def replica_of_group(
    pods: Sequence[Object], *, container: str, version: str = "", runs: Runs = by_its_line
) -> Replica:
    """Describe a replica of several pods: the one that serves, and what is wrong with any.

    Args:
        pods: Its pods, the one that serves first.
        container: See `replica_of`.
        version: Version of the engine, "" when not known.
        runs: See `Runs`.
    """
    leader, *workers = (replica_of(pod, container=container, runs=runs) for pod in pods)
    if not workers:
        return leader
    broken = next((r for r in (leader, *workers) if r.failure), None)
    started = [r.started_at for r in (leader, *workers) if r.started_at is not None]
    since = [r.ready_since for r in (leader, *workers) if r.ready_since is not None]
    ready = all(r.ready for r in (leader, *workers))
    return replace(
        leader,
        ready=ready,
        ready_since=max(since, default=None) if ready else None,
        started_at=min(started, default=None),
        restarts=sum(r.restarts for r in (leader, *workers)),
        failure="" if broken is None else _of_member(broken, leader=leader),
        lost=broken is not None and broken.lost,
        terminating=any(r.terminating for r in (leader, *workers)),
        declared=leader.declared
        if all(_agrees(pod, leader, version=version, runs=runs) for pod in pods[1:])
        else Declared(setting=UNRECOGNISED, config=leader.declared.config),
    )


def _of_member(broken: Replica, *, leader: Replica) -> str:
    return broken.failure if broken is leader else f"{broken.id}: {broken.failure}"


def _agrees(worker: Object, leader: Replica, *, version: str, runs: Runs) -> bool:
    """Whether a worker that is told anything is told the same as its leader."""
    return all(
        runs(worker, container) == leader.declared
        for container in worker["spec"].get("containers") or ()
        if is_wired(container, version=version)
    )


def replica_of(pod: Object, *, container: str, runs: Runs = by_its_line) -> Replica:
    """Describe a pod.

    Args:
        pod: The pod, whole or as the caches keep it.
        container: Name of the container that runs the engine.
        runs: See `Runs`.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    engine = pick_container(spec.get("containers") or [], container) or {}
    states = {s["name"]: s for s in status.get("containerStatuses") or ()}
    ready = condition_of(pod, "Ready")
    serves = ready.get("status") == "True"
    lost = _lost(pod)
    return Replica(
        id=metadata["name"],
        namespace=str(metadata.get("namespace") or ""),
        instance=uid_of(pod),
        declared=runs(pod, engine),
        ready=serves,
        ready_since=instant(ready.get("lastTransitionTime")) if serves else None,
        started_at=_started(metadata),
        restarts=int(states.get(str(engine.get("name")), {}).get("restartCount") or 0),
        failure=lost or _failure(pod, engine=str(engine.get("name"))),
        # A pod that ended is not replaced in place and serves no more: its successor counts.
        terminating=bool(metadata.get("deletionTimestamp")) or has_ended(pod),
        lost=bool(lost),
        endpoint=endpoint_of(pod, engine),
        node=str(spec.get("nodeName") or ""),
    )


def _started(metadata: Mapping[str, Any]) -> datetime | None:
    return instant(metadata.get("creationTimestamp"))


def endpoint_of(pod: Object, engine: Mapping[str, Any]) -> str:
    """Base URL of the engine in a pod, "" before it has an address."""
    return address_of(pod, port_of(engine))


def address_of(pod: Object, port: int) -> str:
    """Base URL of a port of a pod, "" before it has an address."""
    address = str((pod.get("status") or {}).get("podIP") or "")
    if not address:
        return ""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}"


def port_of(engine: Mapping[str, Any]) -> int:
    """Where the engine listens: its `--port`, else the port named http, else the first."""
    line = argv(engine)
    for at, word in enumerate(line):
        flag, _, value = word.partition("=")
        if flag == "--port":
            value = value or (line[at + 1] if at + 1 < len(line) else "")
            if value.isdecimal():
                return int(value)
    ports = engine.get("ports") or []
    chosen = next((p for p in ports if p.get("name") == "http"), ports[0] if ports else {})
    return int(chosen.get("containerPort") or DEFAULT_PORT)


def _lost(pod: Object) -> str:
    """Words when the pod failed for a reason of the machine, "" otherwise."""
    status = pod.get("status") or {}
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    if reason in _OF_THE_MACHINE:
        return _words(reason, message)
    disrupted = condition_of(pod, "DisruptionTarget")
    if disrupted.get("status") == "True":
        return _words(str(disrupted.get("reason") or "Disrupted"), str(disrupted.get("message")))
    # The node controller turns the pod's Ready to False and leaves the containers' own alone:
    # nobody on that node reports any more.
    ready = condition_of(pod, "Ready")
    containers = condition_of(pod, "ContainersReady")
    if (
        ready.get("status") in {"False", "Unknown"}
        and containers.get("status") == "True"
        and ready.get("reason") != "ReadinessGatesNotReady"
    ):
        node = (pod.get("spec") or {}).get("nodeName") or "?"
        return f"NodeNotReady: node {node} has stopped reporting"
    return ""


def _failure(pod: Object, *, engine: str) -> str:
    status = pod.get("status") or {}
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") != "SchedulingGated":
        return _words(str(scheduled.get("reason") or "NotScheduled"), str(scheduled.get("message")))
    for kind, label in (("initContainerStatuses", "init container "), ("containerStatuses", "")):
        for state in status.get(kind) or ():
            words = _container_failure(state)
            if words:
                name = str(state.get("name"))
                prefix = "" if name == engine and not label else f"{label or 'container '}{name}: "
                return prefix + words
    if status.get("phase") == "Failed":
        return _words(str(status.get("reason") or "Failed"), str(status.get("message") or ""))
    return ""


def _container_failure(state: Mapping[str, Any]) -> str:
    now = state.get("state") or {}
    waiting = now.get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    if reason in _STARTING:
        return _exit_words(now.get("terminated"))
    if reason == "CrashLoopBackOff":
        last = _exit_words((state.get("lastState") or {}).get("terminated"))
        return _words(reason, last or str(waiting.get("message") or ""))
    return _words(reason, str(waiting.get("message") or ""))


def _exit_words(terminated: Mapping[str, Any] | None) -> str:
    if not terminated or not terminated.get("exitCode"):
        return ""
    reason = terminated.get("reason")
    text = f"exit {terminated['exitCode']}"
    if reason and reason != "Error":
        text += f" ({reason})"
    message = " ".join(str(terminated.get("message") or "").split())
    # The end of a log says why; its beginning is the banner.
    return f"{text}: {message[-_MAX_WORDS:]}" if message else text


def _words(reason: str, message: str) -> str:
    message = " ".join(message.split()) if message != "None" else ""
    return f"{reason}: {message[:_MAX_WORDS]}" if message else reason
