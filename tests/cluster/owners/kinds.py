"""The kinds of the owners in a test cluster: KubeRay's own CRDs, the others by hand."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import yaml

from tests.cluster import build
from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for

JsonObject = dict[str, Any]

_ANY: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXTS: JsonObject = {"type": "array", "items": {"type": "string"}}
_NUMBER: JsonObject = {"type": "integer", "format": "int32"}


def _object(**properties: JsonObject) -> JsonObject:
    """Only these fields: what else is written, the API server drops."""
    return {"type": "object", "properties": properties}


def _open(**properties: JsonObject) -> JsonObject:
    return {**_ANY, "properties": properties}


_VLLM_RUNTIME = _object(
    model=_object(modelURL={"type": "string"}),
    vllmConfig=_object(extraArgs=_TEXTS, port={**_NUMBER, "default": 8000}),
    deploymentConfig=_object(
        replicas={**_NUMBER, "default": 1},
        image=_object(registry={"type": "string"}, name={"type": "string"}),
        podAnnotations={"type": "object", "additionalProperties": {"type": "string"}},
    ),
)

SHAPES: Mapping[tuple[str, str, str, str], JsonObject] = {
    ("serving.kserve.io", "v1beta1", "inferenceservices", "InferenceService"): _object(
        predictor=_open(
            minReplicas=_NUMBER,
            canaryTrafficPercent={"type": "integer", "format": "int64"},
            model=_open(args=_TEXTS),
        )
    ),
    ("serving.kserve.io", "v1alpha1", "llminferenceservices", "LLMInferenceService"): _open(
        replicas=_NUMBER, template=_ANY
    ),
    ("production-stack.vllm.ai", "v1alpha1", "vllmruntimes", "VLLMRuntime"): _VLLM_RUNTIME,
    ("nvidia.com", "v1alpha1", "dynamographdeployments", "DynamoGraphDeployment"): _object(
        backendFramework={"type": "string"},
        services={"type": "object", "additionalProperties": _open(replicas=_NUMBER)},
    ),
    (
        "nvidia.com",
        "v1alpha1",
        "dynamocomponentdeployments",
        "DynamoComponentDeployment",
    ): _ANY,
    ("orchestration.aibrix.ai", "v1alpha1", "stormservices", "StormService"): _open(
        replicas=_NUMBER, paused={"type": "boolean"}
    ),
    ("orchestration.aibrix.ai", "v1alpha1", "rolesets", "RoleSet"): _ANY,
    ("kubeai.org", "v1", "models", "Model"): _object(
        url={"type": "string"},
        engine={"type": "string", "enum": ["OLlama", "VLLM", "FasterWhisper", "Infinity"]},
        features=_TEXTS,
        args=_TEXTS,
        replicas=_NUMBER,
        minReplicas=_NUMBER,
    ),
}
"""Group, version, plural, kind -> schema of the spec. By hand, from the documented shape."""


def install(cluster: Cluster) -> None:
    """Let the API server serve all of them."""
    for (group, version, plural, kind), spec in SHAPES.items():
        cluster.api.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Namespaced",
                    "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
                    "versions": [
                        {
                            "name": version,
                            "served": True,
                            "storage": True,
                            "subresources": {"status": {}},
                            "schema": {"openAPIV3Schema": _object(spec=spec, status=_ANY)},
                        }
                    ],
                },
            }
        )
    real = build.module_directory(build.KUBERAY) / "config" / "crd" / "bases"
    for name in ("ray.io_rayservices.yaml", "ray.io_rayclusters.yaml"):
        _create(cluster, yaml.load((real / name).read_text(), Loader=yaml.CSafeLoader))
    served = [f"/apis/{g}/{v}/{plural}" for g, v, plural, _ in SHAPES]
    for path in (*served, "/apis/ray.io/v1/rayservices", "/apis/ray.io/v1/rayclusters"):
        wait_for(lambda path=path: _served(cluster, path), describe=f"the API server serves {path}")


def _create(cluster: Cluster, crd: JsonObject) -> None:
    """Too large to be applied, as its authors say too."""
    with contextlib.suppress(ApiError):
        cluster.api.create(crd)


def _served(cluster: Cluster, path: str) -> bool:
    with contextlib.suppress(ApiError):
        cluster.api.request("GET", path)
        return True
    return False
