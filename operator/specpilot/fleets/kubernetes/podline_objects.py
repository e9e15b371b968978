"""Finding pod templates in objects of any kind, and ConfigMaps and Secrets beside them.

A manifest is what a user has at hand: the output of `helm template`, `kustomize build` or
`kubectl get -o yaml`. A pod template is known by its shape, so that a kind nobody described here
is read as well.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MAIN_CONTAINERS = ("mainContainer", "model")
"""Fields that hold one container: Dynamo's `extraPodSpec`, the predictor of KServe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A pod template in an object.

    Attributes:
        owner: The object.
        path: Where in it the pod's spec is.
        metadata: Metadata of its pods.
        spec: The pod's spec.
    """

    owner: Mapping[str, Any]
    path: tuple[str, ...]
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """Its containers."""
        listed = self.spec.get("containers")
        found = [c for c in listed if isinstance(c, Mapping)] if isinstance(listed, list) else []
        for name in _MAIN_CONTAINERS:
            one = self.spec.get(name)
            if isinstance(one, Mapping) and _starts_something(one):
                found.append({"name": name, **one})
        return found

    def __str__(self) -> str:
        kind, name = self.owner.get("kind"), _metadata(self.owner).get("name")
        where = ".".join(self.path)
        plain = where in {"spec", "spec.template.spec"}
        return f"{kind}/{name}" + ("" if plain else f" at {where}")


def _metadata(value: Mapping[str, Any]) -> Mapping[str, Any]:
    found = value.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _starts_something(value: Mapping[str, Any]) -> bool:
    return any(isinstance(value.get(key), list) for key in ("args", "command"))


def templates(obj: Mapping[str, Any]) -> list[Template]:
    """Every pod template of an object, from the top down."""
    return list(_templates(obj, owner=obj, path=(), above=obj))


def _templates(
    value: object, *, owner: Mapping[str, Any], path: tuple[str, ...], above: Mapping[str, Any]
) -> Iterator[Template]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _templates(item, owner=owner, path=(*path, str(index)), above=above)
    if not isinstance(value, Mapping) or path[:1] == ("status",):
        return
    if _is_pod_spec(value):
        metadata = dict(_metadata(above)) if path and path[-1] == "spec" else {}
        namespace = _metadata(owner).get("namespace")
        if namespace is not None:
            metadata.setdefault("namespace", namespace)
        yield Template(owner=owner, path=path, metadata=metadata, spec=value)
        return
    for key, item in value.items():
        yield from _templates(item, owner=owner, path=(*path, str(key)), above=value)


def _is_pod_spec(value: Mapping[str, Any]) -> bool:
    listed = value.get("containers")
    if isinstance(listed, list) and any(
        isinstance(c, Mapping) and ("image" in c or "name" in c) for c in listed
    ):
        return True
    one = (value.get(name) for name in _MAIN_CONTAINERS)
    return any(isinstance(c, Mapping) and _starts_something(c) for c in one)


def flattened(documents: Sequence[object]) -> list[Mapping[str, Any]]:
    """The objects of a stream; those of a List one by one."""
    found: list[Mapping[str, Any]] = []
    for document in documents:
        if not isinstance(document, Mapping):
            continue
        items = document.get("items")
        if isinstance(items, list) and str(document.get("kind", "")).endswith("List"):
            found += flattened(items)
        else:
            found.append(document)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """The ConfigMaps and Secrets of a stream, as seen from one namespace.

    Attributes:
        objects: All objects of the stream.
        namespace: Where the pod is; "" matches objects of any namespace.
    """

    objects: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    namespace: str = ""

    def data(self, kind: str, name: str) -> Mapping[str, str] | None:
        """The texts of a ConfigMap or a Secret; None when it is not in the stream."""
        for obj in self.objects:
            metadata = _metadata(obj)
            there = str(metadata.get("namespace") or "")
            apart = bool(there and self.namespace and there != self.namespace)
            if obj.get("kind") == kind and metadata.get("name") == name and not apart:
                try:
                    return _texts_of(obj)
                except binascii.Error:
                    return None  # no API server takes it
        return None


def _texts_of(obj: Mapping[str, Any]) -> dict[str, str]:
    data = obj.get("data")
    texts = {str(k): str(v) for k, v in data.items()} if isinstance(data, Mapping) else {}
    if obj.get("kind") == "Secret":
        texts = {
            key: base64.b64decode(raw, validate=True).decode(errors="surrogateescape")
            for key, raw in texts.items()
        }
        plain = obj.get("stringData")
        if isinstance(plain, Mapping):
            texts |= {str(k): str(v) for k, v in plain.items()}
    return texts
