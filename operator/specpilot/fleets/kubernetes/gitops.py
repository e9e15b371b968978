"""Who applies a workload from elsewhere, what makes them leave our fields, and what to give them.

A tool that keeps a workload as Git has it may take foreign annotations away, which rolls the pods
back: silently, in the middle of a flip, or again and again. Which tool it is stands in the labels
and annotations that it puts on what it applies, and in the managed fields.

How the tools behave is taken from their documentation and issue trackers; none of them was run.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import yaml

from specpilot.domain.settings import Declared
from specpilot.domain.targets import Keeper, TargetRef
from specpilot.fleets.kubernetes.changes import pointer
from specpilot.fleets.kubernetes.channels.annotation import annotation_path
from specpilot.fleets.kubernetes.channels.patching import PatchChannel
from specpilot.fleets.kubernetes.objects import TOOLS
from specpilot.fleets.kubernetes.podline_channel import OWNER_FIELDS
from specpilot.fleets.kubernetes.request import DEPLOYMENTS
from specpilot.fleets.kubernetes.wiring import ANNOTATIONS, annotations
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import merged, nested

ARGO_TRACKING = "argocd.argoproj.io/tracking-id"
ARGO_INSTANCE = "argocd.argoproj.io/instance"
FLUX_KUSTOMIZE = "kustomize.toolkit.fluxcd.io"
FLUX_HELM = "helm.toolkit.fluxcd.io"
HELM_RELEASE = "meta.helm.sh/release-name"
MANAGED_BY = "app.kubernetes.io/managed-by"

_REMEMBERED = lru_cache(maxsize=8192)
"""Writing YAML takes most of a millisecond, and each tick asks about every workload."""


def keeper(workload: Mapping[str, Any], *, field_manager: str) -> Keeper | None:
    """The tool that applies a workload; None when there is no sign of one.

    Args:
        workload: The object, with its managed fields.
        field_manager: Ours, which a tool can be told to leave alone.
    """
    metadata = workload["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    kind, name = str(workload.get("kind") or DEPLOYMENTS.kind), str(metadata["name"])
    namespace = str(metadata.get("namespace") or "")
    managers = {str(f.get("manager")) for f in metadata.get("managedFields") or ()}
    tools = {TOOLS[m] for m in managers if m in TOOLS}
    tracked = str(notes.get(ARGO_TRACKING) or "").partition(":")[0] or labels.get(ARGO_INSTANCE)
    if tracked or "Argo CD" in tools:
        return Keeper(
            tool="Argo CD",
            name=f"Application {tracked or 'unknown'}",
            snippet=_argo(
                kind,
                namespace,
                name,
                pointers=_pointers(kind, workload),
                field_manager=field_manager,
            ),
        )
    if (release := labels.get(f"{FLUX_HELM}/name")) is not None or "helm-controller" in managers:
        return Keeper(
            tool="Flux",
            name=f"HelmRelease {release or 'unknown'}",
            snippet=_flux_helm(kind, name, pointers=_pointers(kind, workload)),
        )
    kustomization = labels.get(f"{FLUX_KUSTOMIZE}/name")
    if kustomization is not None or "kustomize-controller" in managers:
        return Keeper(
            tool="Flux",
            name=f"Kustomization {kustomization or 'unknown'}",
            snippet=f"metadata:\n  annotations:\n    {FLUX_KUSTOMIZE}/ssa: Merge",
        )
    if HELM_RELEASE in notes or labels.get(MANAGED_BY) == "Helm" or "Helm" in tools:
        return Keeper(
            tool="Helm",
            name=f"release {notes.get(HELM_RELEASE) or 'unknown'}",
            snippet="# helm upgrade keeps annotations that the chart does not set; nothing to do, "
            "except not to use --force"
            if WORKLOADS[kind].owner_channel is None
            else f"# helm upgrade writes {OWNER_FIELDS[kind]} again when the chart changes it; "
            "leave it as it is in the values while Specpilot steers it",
        )
    return None


def _pointers(kind: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """Our fields of an object as JSON pointers, which write `/` in a key as `~1`."""
    workload = WORKLOADS[kind]
    keys = [annotation_path(path, key) for path in workload.templates for key in ANNOTATIONS]
    if isinstance(channel := workload.owner_channel, PatchChannel):
        keys = list(channel.fields(workload, dict(found)))
    # Never the empty pointer: that would be the whole object.
    return tuple(pointer(path) for path in (*keys, workload.hold_field) if path)


@_REMEMBERED
def _argo(
    kind: str, namespace: str, name: str, *, pointers: tuple[str, ...], field_manager: str
) -> str:
    return _yaml(
        {
            "spec": {
                "ignoreDifferences": [
                    {
                        "group": WORKLOADS[kind].resource.group,
                        "kind": kind,
                        "namespace": namespace,
                        "name": name,
                        "managedFieldsManagers": [field_manager],
                        "jsonPointers": list(pointers),
                    }
                ],
                "syncPolicy": {"syncOptions": ["RespectIgnoreDifferences=true"]},
            }
        }
    )


@_REMEMBERED
def _flux_helm(kind: str, name: str, *, pointers: tuple[str, ...]) -> str:
    ignore = {"paths": list(pointers), "target": {"kind": kind, "name": name}}
    return _yaml({"spec": {"driftDetection": {"mode": "enabled", "ignore": [ignore]}}})


def patch(target: TargetRef, wanted: Declared) -> str:
    """What to merge into the workload so that it runs a setting, as a kustomize patch has it."""
    workload = WORKLOADS[target.kind]
    if workload.owner_channel is not None:
        said = f"speculative config {wanted.config}" if wanted.config else "no speculative config"
        return f"# {target.kind} {target.name}, {OWNER_FIELDS[target.kind]}: {said}\n"
    body: dict[str, Any] = {
        "apiVersion": workload.resource.api_version,
        "kind": target.kind,
        "metadata": {"name": target.name, "namespace": target.namespace},
    }
    for path in workload.templates:
        body = merged(body, nested((*path, "metadata", "annotations"), annotations(wanted)))
    return _yaml(body)


def _yaml(plain: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(plain, sort_keys=False, width=1000)
    return text.rstrip()


def hands_kv_over(command: Iterable[str]) -> bool:
    """Whether a command line makes the engine one half of a pair that hands its KV cache over."""
    return any("--kv-transfer-config" in word.replace("_", "-") for word in command)
