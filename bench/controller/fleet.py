"""The cluster that is steered: Deployments of two replicas, half of them speculating, and policies.

Pods are bound to their node by the template, so that no scheduler is needed; everything else of
them is made by the real Deployment and ReplicaSet controllers.
"""

from __future__ import annotations

import json
from typing import Any

JsonObject = dict[str, Any]

API = "specpilot.io/v1alpha1"
NAMESPACES = 50
REPLICAS = 2
"""One to try a setting on, and one to compare it with."""
GPUS = 16
TARGETS_A_NODE = 5
"""Ten GPUs of a node's sixteen are taken, and each target finds room for its canary."""

NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
CONFIG = "specpilot.io/speculative-config"
SETTING = "specpilot.io/setting"

USUAL_BATCH, IDLE_BATCH, OVERLOAD_BATCH = 12.0, 40.0, 2000.0
"""Running requests a replica: while speculation pays, where it is off, and after the load rose. By
so much that the mean over a window follows at once."""

RULES: JsonObject = {
    "parameters": {"busyBatch": 14, "quietBatch": 2, "minAcceptanceLength": 1.2},
    "rules": [
        {
            "name": "off-when-busy",
            "when": "batch_size > params.busyBatch",
            "setting": "off",
        },
        {
            "name": "off-when-drafts-stop-paying",
            "when": "mean_acceptance_length < params.minAcceptanceLength && queue_depth > 1",
            "for": "1m",
            "setting": "off",
            "minDrafts": 100,
        },
        {
            "name": "on-when-quiet",
            "when": "batch_size < params.quietBatch && queue_depth < 1",
            "for": "1m",
            "setting": "speculating",
        },
    ],
}
"""The signals of the shipped `hit-rate`. The first rule holds from the first look after a load has
risen, so that what is measured is the operator's delay and not that of a rule or a window."""


def workload(number: int) -> str:
    """Name of a policy and of its Deployment."""
    return f"chat-{number:05d}"


def namespace(number: int) -> str:
    return f"team-{number % NAMESPACES:02d}"


def speculates(number: int) -> bool:
    """Whether a target begins with speculation on."""
    return number // NAMESPACES % 2 == 0


def node_name(number: int) -> str:
    """The node of a target's pods."""
    return f"gpu-{number // TARGETS_A_NODE:05d}"


def node(name: str) -> JsonObject:
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def deployment(number: int) -> JsonObject:
    name = workload(number)
    config = json.dumps(NGRAM, separators=(",", ":"))
    noted = {CONFIG: config, SETTING: "ngram"} if speculates(number) else {}
    variable = {
        "name": "SPECPILOT_SPECULATIVE_CONFIG",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{CONFIG}']"}},
    }
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["demo-8b", "--speculative-config=$(SPECPILOT_SPECULATIVE_CONFIG)"],
        "env": [variable],
        "ports": [{"name": "http", "containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace(number), "labels": {"app": name}},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": noted},
                "spec": {"nodeName": node_name(number), "containers": [container]},
            },
        },
    }


def policy(number: int) -> JsonObject:
    return {
        "apiVersion": API,
        "kind": "SpeculationPolicy",
        "metadata": {"name": workload(number), "namespace": namespace(number)},
        "spec": {
            "target": {"kind": "Deployment", "name": workload(number)},
            "mode": "Auto",
            "settings": [
                {
                    "name": "ngram",
                    "method": "ngram",
                    "numSpeculativeTokens": 4,
                    "extra": {"prompt_lookup_max": 4},
                }
            ],
            "rules": {"ruleSet": "bench"},
            "telemetry": {"source": "prometheus", "window": "60s"},
            "rollout": {"canary": {"analysis": "60s", "minDrafts": 10, "minRequests": 2}},
            "guardrails": [
                {"signal": "tpot_mean", "max": "5s"},
                {"signal": "e2e_p99", "max": "60s"},
            ],
            "probe": {"enabled": False},
        },
    }


def rule_set(where: str) -> JsonObject:
    return {
        "apiVersion": API,
        "kind": "RuleSet",
        "metadata": {"name": "bench", "namespace": where},
        "spec": RULES,
    }
