"""The kinds of workloads that can be steered, one adapter each.

A new kind is a module here and a line in `WORKLOADS`; see docs/workloads.md.
"""

from collections.abc import Mapping

from specpilot.fleets.kubernetes.workloads.base import Family, Workload
from specpilot.fleets.kubernetes.workloads.deployment import DeploymentWorkload
from specpilot.fleets.kubernetes.workloads.leaderworkerset import LeaderWorkerSetWorkload
from specpilot.fleets.kubernetes.workloads.rollout import RolloutWorkload
from specpilot.fleets.kubernetes.workloads.statefulset import StatefulSetWorkload

WORKLOADS: Mapping[str, Workload] = {
    workload.resource.kind: workload
    for workload in (
        DeploymentWorkload(),
        StatefulSetWorkload(),
        LeaderWorkerSetWorkload(),
        RolloutWorkload(),
    )
}
"""By the kind that a policy names."""

__all__ = ["WORKLOADS", "Family", "Workload"]
