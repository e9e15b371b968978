"""Which way a setting can reach the engine of a workload, judged by its manifest alone.

A: an annotation of the pod template, read through the downward API. B: the container's arguments,
patched. C: a field of the object that another controller makes the pods from.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specpilot.engines import Parsed, empty_value_is_off
from specpilot.fleets.kubernetes.podline import PodLine
from specpilot.fleets.kubernetes.wiring import (
    ARGUMENT,
    CONFIG_ANNOTATION,
    FIELD_PATH,
    VARIABLE,
)


class Fit(StrEnum):
    """A channel."""

    ANNOTATION = "A"
    ARGUMENTS = "B"
    OWNER = "C"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The channel that fits, and why."""

    channel: Fit
    why: str


OWNER_FIELDS: Mapping[str, str] = {
    "InferenceService": "spec.predictor.model.args (KServe patches the Deployment back)",
    "LLMInferenceService": "the args or VLLM_ADDITIONAL_ARGS of its container main "
    "(KServe puts the pod spec back)",
    "VLLMRuntime": "spec.vllmConfig.extraArgs, with a change of "
    "spec.deploymentConfig.podAnnotations (its operator compares no arguments)",
    "RayService": "speculative_config in spec.serveConfigV2",
    "RayCluster": "the RayService that made it",
    "DynamoGraphDeployment": "the args of its service's mainContainer",
    "StormService": "spec.template.spec.roles[].template",
    "RayClusterFleet": "its pod templates",
    "ModelClaim": "spec.engineConfig.args",
    "Model": "spec.args",
}
"""Where the kinds that own their pods have the engine's arguments (documented, not run)."""

_TEMPLATES = frozenset(
    {"Deployment", "StatefulSet", "DaemonSet", "Rollout", "LeaderWorkerSet", "ReplicaSet"}
)


def advice(
    parsed: Parsed, line: PodLine, *, owner: Mapping[str, Any] | None, version: str
) -> Advice:
    """Choose a channel.

    Args:
        parsed: What the command line says.
        line: The container.
        owner: The object that holds the pod template; None for a bare command line.
        version: The engine's version; "" when it is not known.
    """
    if owner is not None and (owned := _owned(owner)):
        return Advice(channel=Fit.OWNER, why=owned)
    if owner is not None and owner.get("kind") == "Pod":
        return Advice(
            channel=Fit.NONE,
            why="a bare Pod is not replaced by anybody when it is changed; put it in a Deployment",
        )
    carrier = line.variables.get(VARIABLE)
    if parsed.wired and carrier is not None and carrier.origin.startswith(FIELD_PATH):
        return Advice(
            channel=Fit.ANNOTATION,
            why=f"{CONFIG_ANNOTATION} is read through {VARIABLE}, and nothing shadows it",
        )
    if parsed.shadowed_by:
        return Advice(
            channel=Fit.ANNOTATION,
            why=f"it is wired, but {parsed.shadowed_by} wins over it; take that out",
        )
    if parsed.problem:
        return Advice(
            channel=Fit.NONE, why=f"what the container runs is not understood: {parsed.problem}"
        )
    if version and not empty_value_is_off(version=version):
        return Advice(
            channel=Fit.ARGUMENTS,
            why=f"vLLM {version} does not start with an empty value, so an annotation could not "
            "switch it off; it can from 0.10.1 on",
        )
    script = any(re.fullmatch(r"-[a-z]*c", word) for word in line.argv)
    argument = f"--speculative-config='$({VARIABLE})'" if script else ARGUMENT
    literal = ", and the flags that are there taken out" if parsed.config else ""
    return Advice(
        channel=Fit.ANNOTATION,
        why=f"once the variable {VARIABLE} and the argument {argument} are added{literal}",
    )


def _owned(owner: Mapping[str, Any]) -> str:
    """Who owns the pods, and where the arguments are, "" when nobody does."""
    metadata = owner.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    for reference in references if isinstance(references, list) else []:
        if isinstance(reference, Mapping) and reference.get("controller"):
            kind, name = str(reference.get("kind")), reference.get("name")
            if owner.get("kind") == "Pod" and kind in _TEMPLATES | {"Job"}:
                return f"the pod is made by {kind} {name}: change that"
            where = OWNER_FIELDS.get(kind, "the field that it makes the pods from")
            return f"{kind} {name} controls it and would undo a change: use {where}"
    kind = str(owner.get("kind"))
    if kind in OWNER_FIELDS:
        return f"a {kind} makes its pods itself: use {OWNER_FIELDS[kind]}"
    if kind in _TEMPLATES or kind == "Pod":
        return ""
    return f"a {kind} is not described: use the field that its controller makes the pods from"
