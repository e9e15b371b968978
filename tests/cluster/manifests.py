"""Manifests for tests, as dictionaries: the shortest that the API server accepts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.cluster.nodes import GPU

JsonObject = dict[str, Any]

WORKLOAD = [sys.executable, str(Path(__file__).with_name("workload.py"))]
PORT = 8000


def field(name: str, path: str) -> JsonObject:
    """An entry of ``env`` from the downward API."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def container(*, gpus: int = 0, **spec: Any) -> JsonObject:
    """A container; without ``command`` or ``image`` it runs :mod:`tests.cluster.workload`."""
    base: JsonObject = {"name": "main", "image": "local"}
    if "command" not in spec and "image" not in spec:
        base["command"] = WORKLOAD
        base["ports"] = [{"name": "http", "containerPort": PORT}]
        base["readinessProbe"] = {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 1,
        }
    if gpus:
        base["resources"] = {"limits": {GPU: str(gpus)}}
    environment = [field("POD_IP", "status.podIP"), *spec.pop("env", [])]
    return {**base, **spec, "env": environment}


def template(
    *containers: JsonObject,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    """A pod template; the grace period is short so that a forgotten handler costs little time."""
    return {
        "metadata": {"labels": labels or {}, "annotations": annotations or {}},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": list(containers), **spec},
    }


def pod(name: str, *containers: JsonObject, **rest: Any) -> JsonObject:
    """A pod of its own."""
    body = template(*containers, **rest)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **body["metadata"]},
        "spec": body["spec"],
    }


def stateful_set(name: str, *containers: JsonObject, replicas: int = 1, **rest: Any) -> JsonObject:
    """A StatefulSet without storage that selects its pods by the label ``app``.

    ``updateStrategy`` and ``podManagementPolicy`` go into its spec, the rest into the template.
    """
    own = {key: rest.pop(key) for key in ("updateStrategy", "podManagementPolicy") if key in rest}
    labels = {"app": name, **rest.pop("labels", {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template(*containers, labels=labels, **rest),
            **own,
        },
    }


def deployment(
    name: str,
    *containers: JsonObject,
    replicas: int = 1,
    strategy: JsonObject | None = None,
    **rest: Any,
) -> JsonObject:
    """A Deployment that selects its pods by the label ``app``."""
    labels = {"app": name, **rest.pop("labels", {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(*containers, labels=labels, **rest),
            **({"strategy": strategy} if strategy else {}),
        },
    }
