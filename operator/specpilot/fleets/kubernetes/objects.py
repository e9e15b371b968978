"""Reading raw Kubernetes objects: owners, times, field ownership, and what of them is kept.

A cluster has far more pods than Specpilot has targets, and a pod is mostly things nobody here
reads (managed fields, volumes, probes). The caches keep the few parts that are read.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from specpilot.domain.settings import canonical_json
from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.wiring import ANNOTATIONS

TOOLS: Mapping[str, str] = {
    "argocd-controller": "Argo CD",
    "argocd-application-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
    "helm": "Helm",
}
"""The tool by its field manager: the managers tell who applies a workload (`gitops`)."""

TEMPLATE_HASH_LABEL = "pod-template-hash"
"""Label that the Deployment controller adds to a ReplicaSet's template, and to nothing else."""

ROLLOUT_HASH_LABEL = "rollouts-pod-template-hash"
"""The same of the Argo Rollouts controller."""

USER_TEMPLATE = "specpilotUserTemplate"
"""Key under which what is kept carries `user_template`: it is asked for at every tick, and a
ReplicaSet is kept without its template's bulk."""


_HASH_LABELS = (TEMPLATE_HASH_LABEL, ROLLOUT_HASH_LABEL)


def key_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name."""
    metadata = obj["metadata"]
    return (str(metadata.get("namespace") or ""), str(metadata["name"]))


def uid_of(obj: Mapping[str, Any]) -> str:
    """The object's uid."""
    return str(obj["metadata"].get("uid") or "")


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of the controller that manages the object, if one does."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def instant(text: str | None) -> datetime | None:
    """Read a Kubernetes time, with or without fractions of a second."""
    if not text:
        return None
    return datetime.fromisoformat(text).astimezone(UTC)


def condition_of(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The status condition of a type, empty when there is none."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return {}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod serves, by its own word."""
    return bool(condition_of(pod, "Ready").get("status") == "True")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is done: it serves no more and holds no device."""
    return (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}


def user_template(template: Mapping[str, Any]) -> str:
    """Hash of a pod template without what is ours and what the Deployment controller adds.

    Anything else counts: a restart annotation by kubectl is an edit as an image change is one.
    """
    metadata = {k: v for k, v in (template.get("metadata") or {}).items() if v is not None}
    for field, dropped in (("annotations", ANNOTATIONS), ("labels", _HASH_LABELS)):
        # The server leaves an empty map out or not, by its version and by who emptied it.
        kept = {k: v for k, v in (metadata.pop(field, None) or {}).items() if k not in dropped}
        if kept:
            metadata[field] = kept
    text = canonical_json({"metadata": metadata, "spec": template.get("spec") or {}})
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def owners(obj: Mapping[str, Any], *path: str | int) -> frozenset[str]:
    """Field managers that own a field, by the object's managed fields.

    Args:
        obj: The object.
        path: Names of the fields from the top (`"spec", "paused"`). A list's item is not found.
    """
    found = set()
    for entry in obj["metadata"].get("managedFields") or ():
        if entry.get("subresource"):
            continue
        node: Any = entry.get("fieldsV1") or {}
        for name in path:
            node = node.get(f"f:{name}") if isinstance(node, dict) else None
        if node is not None:
            found.add(str(entry.get("manager") or ""))
    return frozenset(found)


def _project(fields: Any, path: Sequence[str]) -> dict[str, Any] | None:
    """The part of a managed-fields set that lies on a path."""
    if not path:
        return {}
    if not isinstance(fields, dict) or f"f:{path[0]}" not in fields:
        return None
    below = _project(fields[f"f:{path[0]}"], path[1:])
    return None if below is None else {f"f:{path[0]}": below}


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        _merge(into.setdefault(key, {}), value)


def slim_workload(obj: Object, *, fields: Sequence[Sequence[str]]) -> Object:
    """Keep all but the managed fields that do not concern us, and a hash of the template.

    Args:
        obj: The object, which is changed.
        fields: Paths of the fields whose owners matter.
    """
    kept = []
    for entry in obj["metadata"].pop("managedFields", None) or ():
        found: dict[str, Any] = {}
        for path in fields:
            part = _project(entry.get("fieldsV1"), path)
            if part is not None:
                _merge(found, part)
        tool = entry.get("manager") in TOOLS
        if (found or tool) and not entry.get("subresource"):
            kept.append({"manager": entry.get("manager"), "fieldsV1": found})
    obj["metadata"]["managedFields"] = kept
    template = (obj.get("spec") or {}).get("template")
    if template:
        obj[USER_TEMPLATE] = user_template(template)
    return obj


def _slim_metadata(obj: Object) -> Object:
    metadata = obj["metadata"]
    kept = {
        field: metadata[field]
        for field in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "ownerReferences",
        )
        if field in metadata
    }
    kept["annotations"] = our_annotations(metadata)
    return kept


def our_annotations(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Those of an object's (or template's) annotations that are ours."""
    return {k: v for k, v in (metadata.get("annotations") or {}).items() if k in ANNOTATIONS}


def slim_replica_set(obj: Object) -> Object:
    """Keep identity, counts, our annotations of the template, and a hash of the rest of it."""
    template = (obj.get("spec") or {}).get("template") or {}
    return {
        "metadata": _slim_metadata(obj),
        "spec": {
            "replicas": (obj.get("spec") or {}).get("replicas"),
            "template": {"metadata": {"annotations": our_annotations(template["metadata"])}},
        },
        "status": {"replicas": (obj.get("status") or {}).get("replicas", 0)},
        USER_TEMPLATE: user_template(template),
    }


_CONTAINER_FIELDS = (
    "name",
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "ports",
    "resources",
    "restartPolicy",
)


_WITH_TEMPLATE = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "Job"})
"""Kinds whose template says where their pods may run; for other pods only the pod does."""


def slim_pod(obj: Object) -> Object:
    """Keep identity, node, how the containers were started, and the status."""
    spec = obj.get("spec") or {}
    template = (controller_of(obj) or {}).get("kind") in _WITH_TEMPLATE
    placement = () if template else ("nodeSelector", "affinity", "tolerations")
    status = dict(obj.get("status") or {})
    for field in ("volumes", "podIPs", "hostIPs", "qosClass", "resourceClaimStatuses"):
        status.pop(field, None)
    return {
        "metadata": _slim_metadata(obj),
        "spec": {
            "nodeName": spec.get("nodeName") or "",
            "overhead": spec.get("overhead") or {},
            **{field: spec[field] for field in placement if field in spec},
            **{
                kind: [
                    {field: c[field] for field in _CONTAINER_FIELDS if field in c}
                    for c in spec.get(kind) or ()
                ]
                for kind in ("containers", "initContainers")
            },
        },
        "status": status,
    }


def slim_custom(obj: Object) -> Object:
    """Keep all: who decided on a flag change is read from the managed fields."""
    return obj


def template_of(revision: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Our annotations in the template of a ReplicaSet or the like, and the hash of the rest."""
    template = revision["spec"]["template"]
    kept = revision.get(USER_TEMPLATE)
    return our_annotations(template.get("metadata") or {}), str(kept or user_template(template))


def user_templates(templates: Iterable[Mapping[str, Any]]) -> str:
    """The hash of several templates; that of one is `user_template`."""
    hashes = [user_template(template) for template in templates]
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("/".join(hashes).encode()).hexdigest()[:16]
