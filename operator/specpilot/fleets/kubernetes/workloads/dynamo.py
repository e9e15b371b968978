"""NVIDIA Dynamo: the arguments of the vLLM worker of a DynamoGraphDeployment.

What is easy to get wrong:

- Its operator keeps the hash of the workers' specs in annotations and starts a managed roll when it
  changes. Replacing the object would drop them and leave a generation of workers behind: it is only
  ever patched, one list of it.
- Going back in mid-roll is a new generation too, and has been seen to take more workers away than
  maxUnavailable allows; quick successive patches roll whole gangs. So between two changes the
  cooldown of the policy is the least, and ten minutes are no luxury here.
- Its state may say "successful" before the workers are replaced. What counts here is the pods.
- A frontend belongs to the same object; its pods are not the engine's.
- Prefill and decode workers with KV transfer between them, and workers over several nodes, are
  refused.

Written from its documentation and API types (`nvidia.com/v1alpha1`, which newer releases convert),
and tested with objects made as its operator makes them on Deployments. The Grove path (PodCliques)
is found by the same label and was not run.
"""

from specpilot.fleets.kubernetes.channels.owner import ListChannel
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, REPLICA_SETS, Object, Resource
from specpilot.fleets.kubernetes.wiring import argv
from specpilot.fleets.kubernetes.workloads.base import Path, dig
from specpilot.fleets.kubernetes.workloads.owned import OwnedWorkload

GRAPH_DEPLOYMENTS = Resource(
    group="nvidia.com",
    version="v1alpha1",
    plural="dynamographdeployments",
    kind="DynamoGraphDeployment",
)
COMPONENT_DEPLOYMENTS = Resource(
    group="nvidia.com",
    version="v1alpha1",
    plural="dynamocomponentdeployments",
    kind="DynamoComponentDeployment",
)


def _grove(plural: str, kind: str) -> Resource:
    return Resource(group="grove.io", version="v1alpha1", plural=plural, kind=kind)


POD_CLIQUE_SETS = _grove("podcliquesets", "PodCliqueSet")
SCALING_GROUPS = _grove("podcliquescalinggroups", "PodCliqueScalingGroup")
POD_CLIQUES = _grove("podcliques", "PodClique")

COMPONENT_LABEL = "nvidia.com/dynamo-component"
_SERVICES: Path = ("spec", "services")
_CONTAINER: Path = ("extraPodSpec", "mainContainer")


class WorkerArguments(ListChannel):
    """See the module."""

    why = "Dynamo's operator writes the pods; the worker's mainContainer.args are the object's own"
    needs_version = False  # neither its images' tags nor its workers tell; all of them take JSON

    def place(self, root: Object) -> Path | None:
        """See `ListChannel`."""
        found = _workers(root)
        return (*_SERVICES, found[0], *_CONTAINER, "args") if len(found) == 1 else None

    def no_place(self, root: Object) -> str:
        """See `ListChannel`."""
        return "has no service whose extraPodSpec.mainContainer starts dynamo.vllm"


class DynamoWorkload(OwnedWorkload):
    """See the module."""

    resource = GRAPH_DEPLOYMENTS
    between = (
        COMPONENT_DEPLOYMENTS,
        DEPLOYMENTS,
        REPLICA_SETS,
        POD_CLIQUE_SETS,
        SCALING_GROUPS,
        POD_CLIQUES,
    )
    heads = (DEPLOYMENTS, POD_CLIQUES)
    container = "main"
    or_without_surge = ""
    owner_channel = WorkerArguments()

    def replicas_at(self, root: Object) -> Path:
        """See `Workload`."""
        return (*_SERVICES, (_workers(root) or [""])[0], "replicas")

    def unsuitable(self, root: Object) -> str:
        """See `Workload`."""
        found = _workers(root)
        if len(found) > 1:
            return (
                f"has several vLLM workers ({', '.join(found)}); with KV transfer between prefill "
                f"and decode a setting has to be the same on both at every moment, which no roll "
                f"can do"
            )
        if found and int(dig(root, (*_SERVICES, found[0], "multinode", "nodeCount")) or 1) > 1:
            return f"has a worker {found[0]} over several nodes, which is not supported"
        return ""

    def is_engine(self, root: Object, member: Object) -> bool:
        """See `OwnedWorkload`."""
        labels = member["metadata"].get("labels") or {}
        return labels.get(COMPONENT_LABEL) in _workers(root)


def _workers(root: Object) -> list[str]:
    """Names of the services that run vLLM."""
    return [
        str(name)
        for name, service in (dig(root, _SERVICES) or {}).items()
        if any("dynamo.vllm" in word for word in argv(dig(service, _CONTAINER) or {}))
    ]
