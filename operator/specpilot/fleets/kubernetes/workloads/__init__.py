"""The kinds of workloads that can be steered, one adapter each.

A new kind is a module here and a line in `WORKLOADS`; see docs/workloads.md.
"""

from collections.abc import Mapping

from specpilot.fleets.kubernetes.workloads.base import Family, Workload
from specpilot.fleets.kubernetes.workloads.deployment import DeploymentWorkload
from specpilot.fleets.kubernetes.workloads.dynamo import DynamoWorkload
from specpilot.fleets.kubernetes.workloads.inferenceservice import InferenceServiceWorkload
from specpilot.fleets.kubernetes.workloads.kubeai import ModelWorkload
from specpilot.fleets.kubernetes.workloads.leaderworkerset import LeaderWorkerSetWorkload
from specpilot.fleets.kubernetes.workloads.llminferenceservice import LLMInferenceServiceWorkload
from specpilot.fleets.kubernetes.workloads.rayservice import RayServiceWorkload
from specpilot.fleets.kubernetes.workloads.rollout import RolloutWorkload
from specpilot.fleets.kubernetes.workloads.statefulset import StatefulSetWorkload
from specpilot.fleets.kubernetes.workloads.stormservice import StormServiceWorkload
from specpilot.fleets.kubernetes.workloads.vllmruntime import VLLMRuntimeWorkload

WORKLOADS: Mapping[str, Workload] = {
    workload.resource.kind: workload
    for workload in (
        DeploymentWorkload(),
        StatefulSetWorkload(),
        LeaderWorkerSetWorkload(),
        RolloutWorkload(),
        InferenceServiceWorkload(),
        LLMInferenceServiceWorkload(),
        VLLMRuntimeWorkload(),
        RayServiceWorkload(),
        DynamoWorkload(),
        StormServiceWorkload(),
        ModelWorkload(),
    )
}
"""By the kind that a policy names."""

__all__ = ["WORKLOADS", "Family", "Workload"]
