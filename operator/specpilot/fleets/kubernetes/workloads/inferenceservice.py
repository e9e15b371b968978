"""KServe InferenceService: the arguments of the predictor's model.

What is easy to get wrong:

- KServe compares the Deployment with what it would write and patches it back, so nothing may be
  written there. Its arguments come after those of the ServingRuntime, and the last flag wins.
- A canary (`canaryTrafficPercent`) exists in Serverless mode only; in Standard (RawDeployment) mode
  the field does nothing, and a change reaches all replicas by the Deployment's strategy.
- In Serverless mode a percentage of *traffic* is what holds, and the new revision comes beside the
  old one with as many replicas as `minReplicas` says, not one.
- Going back in Serverless mode makes a third revision. To let go of the percentage before that one
  is ready would give all traffic to the revision that is being left: so it is pinned to 0 first.

Written from KServe's documentation and source. Standard mode is tested with a Deployment made as
KServe makes it; Serverless mode was not run against Knative.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.channels.owner import ListChannel
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, REPLICA_SETS, Object, Resource
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Look, Path, dig
from specpilot.fleets.kubernetes.workloads.owned import OwnedWorkload

INFERENCE_SERVICES = Resource(
    group="serving.kserve.io",
    version="v1beta1",
    plural="inferenceservices",
    kind="InferenceService",
)
KNATIVE = tuple(
    Resource(group="serving.knative.dev", version="v1", plural=plural, kind=kind)
    for plural, kind in (
        ("services", "Service"),
        ("configurations", "Configuration"),
        ("revisions", "Revision"),
    )
)
CONTAINER = "kserve-container"

_PREDICTOR: Path = ("spec", "predictor")
_MODE = "serving.kserve.io/deploymentMode"
_SERVERLESS = frozenset({"Serverless", "Knative"})
_WHOLE = 100
_MOST = 50
"""A canary never gets more traffic than what it is compared with."""


class PredictorArguments(ListChannel):
    """The list of the model's arguments, or of the predictor's own container."""

    why = "KServe writes the pods; the predictor's args are added to the runtime's"

    def place(self, root: Object) -> Path | None:
        """See `ListChannel`."""
        if dig(root, (*_PREDICTOR, "model")) is not None:
            return (*_PREDICTOR, "model", "args")
        for index, container in enumerate(dig(root, (*_PREDICTOR, "containers")) or ()):
            if container.get("name") == CONTAINER:
                return (*_PREDICTOR, "containers", index, "args")
        return None

    def no_place(self, root: Object) -> str:
        """See `ListChannel`."""
        there = ", ".join(sorted(dig(root, _PREDICTOR) or ())) or "nothing"
        return (
            f"has neither spec.predictor.model nor a container {CONTAINER} in spec.predictor "
            f"(there is {there}); write the model as spec.predictor.model with its modelFormat"
        )


class InferenceServiceWorkload(OwnedWorkload):
    """See the module."""

    resource = INFERENCE_SERVICES
    between = (*KNATIVE, DEPLOYMENTS, REPLICA_SETS)
    container = CONTAINER
    or_without_surge = (
        ", or set spec.predictor.deploymentStrategy with maxUnavailable: 1 and maxSurge: 0"
    )
    hold_field = (*_PREDICTOR, "canaryTrafficPercent")
    owner_channel = PredictorArguments()

    def replicas_at(self, root: Object) -> Path:
        """See `Workload`."""
        return (*_PREDICTOR, "minReplicas")

    def replicas_wanted(self, root: Object) -> int:
        """See `Workload`; it may scale to zero."""
        return max(super().replicas_wanted(root), 1)

    def desired(self, family: Family) -> int:
        """See `Workload`: its autoscaler writes in the Deployments below."""
        found = [dig(one, ("spec", "replicas")) for one in self.engines(family)]
        return (
            sum(int(1 if n is None else n) for n in found)
            if found
            else self.replicas_wanted(family.root)
        )

    def is_engine(self, root: Object, member: Object) -> bool:
        """See `OwnedWorkload`: transformers and explainers have Deployments of their own."""
        return str(member["metadata"]["name"]).startswith(f"{root['metadata']['name']}-predictor")

    def unsuitable(self, root: Object) -> str:
        """See `Workload`."""
        if dig(root, (*_PREDICTOR, "workerSpec")) is not None:
            return (
                "spans several nodes (spec.predictor.workerSpec), and head and workers would have "
                "to change together, which is not supported; set speculation in its args yourself"
            )
        if _mode(root) == "ModelMesh":
            return "is served by ModelMesh, where its arguments are not the pods'"
        return ""

    def unheld(self, root: Object) -> str:
        """See `Workload`."""
        if _serverless(root):
            return ""
        return (
            "an InferenceService in Standard (RawDeployment) mode has no canary: "
            "canaryTrafficPercent works in Serverless mode only"
        )

    def how_to_release(self, root: Object) -> str:
        """See `Workload`."""
        percent = dig(root, self.hold_field)
        return (
            f"spec.predictor.canaryTrafficPercent is {percent} and splits its traffic; finish that "
            f"canary and remove the field"
        )

    def holds(self, value: JsonValue) -> bool:
        """See `Workload`."""
        return isinstance(value, int) and value < _WHOLE

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`."""
        if not _serverless(family.root):
            return super().can_add_replica(family, has_room)
        return has_room(self._revision(family))

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """See `Workload`: a revision comes whole, beside the old one."""
        if not _serverless(family.root):
            return super().must_surge(family)
        return self._revision(family)

    def _revision(self, family: Family) -> list[Mapping[str, Any]]:
        """Specs of the pods of one more revision."""
        engines = self.engines(family)
        specs = [dig(engines[-1], ("spec", "template", "spec"))] if engines else []
        return [spec for spec in specs if spec] * self.replicas_wanted(family.root)

    def hold_at_once(self, root: Object, *, canaries: int) -> JsonValue:
        """See `Workload`: about the share of traffic that so many of the replicas would get."""
        if not _serverless(root):
            return None
        share = round(_WHOLE * canaries / (canaries + self.replicas_wanted(root)))
        return min(max(share, 1), _MOST)

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """See `Workload`."""
        present = dig(root, self.hold_field)
        if isinstance(present, int) and 0 < present < _WHOLE:
            return present
        return self.hold_at_once(root, canaries=canaries)

    def hold_going_back(self, root: Object) -> JsonValue:
        """See `Workload`: no traffic for a new revision until the old setting is ready again."""
        return 0 if _serverless(root) else None

    def may_release(self, root: Object) -> bool:
        """See `Workload`."""
        if not _serverless(root) or dig(root, self.hold_field) != 0:
            return True
        status = dig(root, ("status", "components", "predictor")) or {}
        seen = int(dig(root, ("status", "observedGeneration")) or 0)
        return (
            seen >= int(root["metadata"].get("generation") or 0)
            and bool(status.get("latestReadyRevision"))
            and status.get("latestReadyRevision") == status.get("latestCreatedRevision")
        )


def _mode(root: Object) -> str:
    """Its deployment mode, "" where nothing says it."""
    annotated = dig(root, ("metadata", "annotations", _MODE))
    found = annotated or dig(root, ("status", "deploymentMode"))
    if found:
        return str(found)
    revision = dig(root, ("status", "components", "predictor", "latestCreatedRevision"))
    return "Serverless" if revision else ""


def _serverless(root: Object) -> bool:
    return _mode(root) in _SERVERLESS
