"""Requests to the API server as plain values: what to say, apart from saying it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

Object: TypeAlias = dict[str, Any]
"""A Kubernetes object as the server sent it."""

APPLY = "application/apply-patch+yaml"
"""The content type that makes a PATCH a server-side apply; JSON is YAML.

Without it the client sends a strategic merge, and says nothing.
"""

JSON_PATCH = "application/json-patch+json"
"""The content type of a list of operations that are done all or not at all (RFC 6902)."""

_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource type of the API."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def builtin(self) -> bool:
        """Whether every cluster has it."""
        return self.group in {"", "apps", "coordination.k8s.io"}

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path below the server's address; an empty namespace means all, or cluster scope."""
        parts = ["apis" if self.group else "api", self.api_version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/" + "/".join(parts)


DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment")
STATEFUL_SETS = Resource(group="apps", version="v1", plural="statefulsets", kind="StatefulSet")
REPLICA_SETS = Resource(group="apps", version="v1", plural="replicasets", kind="ReplicaSet")
PODS = Resource(group="", version="v1", plural="pods", kind="Pod")
NODES = Resource(group="", version="v1", plural="nodes", kind="Node")
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret")
HPAS = Resource(
    group="autoscaling",
    version="v2",
    plural="horizontalpodautoscalers",
    kind="HorizontalPodAutoscaler",
)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease")


def _ours(plural: str, kind: str) -> Resource:
    return Resource(group="specpilot.io", version="v1alpha1", plural=plural, kind=kind)


POLICIES = _ours("speculationpolicies", "SpeculationPolicy")
RULE_SETS = _ours("rulesets", "RuleSet")
FLAG_CHANGES = _ours("flagchanges", "FlagChange")
ALERT_CHANNELS = _ours("alertchannels", "AlertChannel")

CUSTOM_RESOURCES = (POLICIES, RULE_SETS, FLAG_CHANGES, ALERT_CHANNELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request before it is sent."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    content_type: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def read(resource: Resource, *, namespace: str = "", name: str) -> Request:
    """Get one object."""
    return Request(method="GET", path=resource.path(namespace=namespace, name=name))


def page(
    resource: Resource,
    *,
    namespace: str = "",
    label_selector: str = "",
    field_selector: str = "",
    token: str = "",
) -> Request:
    """Get one page of a list."""
    query = [("limit", str(_PAGE))]
    for key, value in (
        ("labelSelector", label_selector),
        ("fieldSelector", field_selector),
        ("continue", token),
    ):
        if value:
            query.append((key, value))
    return Request(method="GET", path=resource.path(namespace=namespace), query=tuple(query))


def watch(
    resource: Resource,
    *,
    namespace: str = "",
    field_selector: str = "",
    resource_version: str,
    timeout_s: float,
) -> Request:
    """Follow changes after a resource version, for at most `timeout_s`, with bookmarks."""
    query = [
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", resource_version),
        ("timeoutSeconds", str(max(1, round(timeout_s)))),
    ]
    if field_selector:
        query.append(("fieldSelector", field_selector))
    return Request(method="GET", path=resource.path(namespace=namespace), query=tuple(query))


def apply(
    resource: Resource,
    body: Mapping[str, Any],
    *,
    field_manager: str,
    subresource: str = "",
) -> Request:
    """Server-side apply of exactly the fields in `body`; fields applied before and absent now go.

    `force` takes over a field that another manager owns: `body` must hold none but our own keys.
    """
    metadata = body["metadata"]
    return Request(
        method="PATCH",
        path=resource.path(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            subresource=subresource,
        ),
        query=(("fieldManager", field_manager), ("force", "true")),
        body={"apiVersion": resource.api_version, "kind": resource.kind, **body},
        content_type=APPLY,
    )


def json_patch(
    resource: Resource,
    operations: Sequence[Mapping[str, Any]],
    *,
    namespace: str = "",
    name: str,
    field_manager: str,
) -> Request:
    """Change an object by operations; a `test` among them that fails refuses all of them (422)."""
    return Request(
        method="PATCH",
        path=resource.path(namespace=namespace, name=name),
        query=(("fieldManager", field_manager),),
        body=operations,
        content_type=JSON_PATCH,
    )


def merge_patch(
    resource: Resource,
    body: Mapping[str, Any],
    *,
    namespace: str = "",
    name: str,
    subresource: str = "",
) -> Request:
    """Merge fields into an object, null removes one; a resourceVersion makes it conditional."""
    return Request(
        method="PATCH",
        path=resource.path(namespace=namespace, name=name, subresource=subresource),
        body=body,
        content_type="application/merge-patch+json",
    )


def create(resource: Resource, body: Mapping[str, Any], *, field_manager: str) -> Request:
    """Create an object."""
    return Request(
        method="POST",
        path=resource.path(namespace=body["metadata"].get("namespace", "")),
        query=(("fieldManager", field_manager),),
        body={"apiVersion": resource.api_version, "kind": resource.kind, **body},
    )


def replace(resource: Resource, body: Mapping[str, Any], *, field_manager: str) -> Request:
    """Write an object whole; its resourceVersion makes that conditional."""
    metadata = body["metadata"]
    return Request(
        method="PUT",
        path=resource.path(namespace=metadata.get("namespace", ""), name=metadata["name"]),
        query=(("fieldManager", field_manager),),
        body=body,
    )


def delete(resource: Resource, *, namespace: str, name: str, uid: str) -> Request:
    """Delete one very object; another one of the same name stays."""
    return Request(
        method="DELETE",
        path=resource.path(namespace=namespace, name=name),
        body={"preconditions": {"uid": uid}, "propagationPolicy": "Background"},
    )
