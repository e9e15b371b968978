"""A player: acts for the controller of one kind, from start to stop."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.api import Api, ApiError
from tests.cluster.manifests import PORT, container
from tests.cluster.owners.engine import IMAGE

JsonObject = dict[str, Any]
_PROBE = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}


def engine(name: str, *, command: Sequence[str], args: Sequence[str], **more: Any) -> JsonObject:
    """The engine's container as an owner writes it."""
    return container(
        name=name,
        image=IMAGE,
        command=list(command),
        args=list(args),
        ports=[{"name": "http", "containerPort": PORT}],
        readinessProbe=_PROBE,
        **more,
    )


def owned_by(owner: JsonObject) -> list[JsonObject]:
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]


class Player(ABC):
    """Acts for the controller of one kind in one namespace, from start to stop."""

    api_version: str
    kind: str

    def __init__(self, api: Api, *, namespace: str, home: Path) -> None:
        self.api = api
        self.namespace = namespace
        self.home = home
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def manifest(self, *words: str, replicas: int = 2) -> JsonObject:
        """The object as its user writes it, with further arguments of the engine."""

    @abstractmethod
    def act(self, root: JsonObject) -> None:
        """Bring about what the object asks for, one step of it."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            with contextlib.suppress(ApiError):  # somebody wrote in between: look again
                for root in self.api.list(self.api_version, self.kind, namespace=self.namespace):
                    self.act({"apiVersion": self.api_version, "kind": self.kind, **root})

    def object(self, **spec: Any) -> JsonObject:
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": "chat"},
            "spec": spec,
        }

    def find(self, api_version: str, kind: str, name: str) -> JsonObject | None:
        with contextlib.suppress(ApiError):
            return self.api.get(api_version, kind, name=name, namespace=self.namespace)
        return None

    def make(self, manifest: JsonObject, *, owner: JsonObject) -> JsonObject:
        manifest["metadata"]["ownerReferences"] = owned_by(owner)
        return self.api.create(manifest, namespace=self.namespace)

    def deploy(self, wanted: JsonObject, *, owner: JsonObject, scaled: bool = False) -> None:
        """Keep a Deployment's template (and its replicas, unless an autoscaler does) as wanted."""
        found = self.find("apps/v1", "Deployment", wanted["metadata"]["name"])
        if found is None:
            self.make(wanted, owner=owner)
        elif self.differs(found, wanted):
            spec = {**found["spec"], "template": wanted["spec"]["template"]}
            spec["replicas"] = (found if scaled else wanted)["spec"]["replicas"]
            self.api.replace({**found, "spec": spec}, namespace=self.namespace)

    def differs(self, found: JsonObject, wanted: JsonObject) -> bool:
        """By what the API server neither adds by itself nor drops."""

        def gist(one: JsonObject) -> Any:
            template = one["spec"]["template"]
            return [
                (template["metadata"].get("annotations") or {}),
                [
                    [*(c.get(key) or [] for key in ("command", "args")), _written(c.get("env"))]
                    for c in template["spec"]["containers"]
                ],
            ]

        return bool(gist(found) != gist(wanted))

    def observed(self, root: JsonObject, **status: Any) -> None:
        generation = root["metadata"]["generation"]
        wanted = {"observedGeneration": generation, **status}
        present = root.get("status") or {}
        if any(present.get(key) != value for key, value in wanted.items()):
            self.api.patch(
                self.api_version,
                self.kind,
                name=root["metadata"]["name"],
                namespace=self.namespace,
                patch={"status": wanted},
                subresource="status",
            )


def _written(variables: list[JsonObject] | None) -> list[JsonObject]:
    """Variables without what the API server adds (a reference's version) or drops (what is "")."""
    found = []
    for variable in variables or []:
        name, value, source = (variable.get(key) for key in ("name", "value", "valueFrom"))
        if reference := (source or {}).get("fieldRef"):
            source = {"fieldRef": {"fieldPath": reference["fieldPath"]}}
        found.append({"name": name, "value": value or "", "valueFrom": source})
    return found
