"""KubeAI Model: `spec.args`, and bare pods that its controller replaces by a hash of their spec.

What is easy to get wrong:

- No Deployment stands between. The controller starts one pod more than wanted
  (`modelRollouts.surge`, 1 by default), and replaces an old pod whenever all are ready: with no GPU
  to spare nothing happens, until the flip is undone at its deadline. That number is in KubeAI's own
  configuration, so it is not known here; the user's word is asked for.
- An old pod that is not ready is replaced at once, whatever the new one does.
- It gives a pod three hours to start. A setting with which the engine hangs would be waited for as
  long; so the limit is Specpilot's own (20 minutes, or `canary.readyWithin`).
- `spec.replicas` belongs to KubeAI's autoscaler.
- Values are text of one list, and other engines (Ollama, Infinity) have no speculation.

Written from the controller's source, and tested with pods made as it makes them.
"""

from specpilot.fleets.kubernetes.channels.owner import ListChannel
from specpilot.fleets.kubernetes.request import Object, Resource
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Path, dig
from specpilot.fleets.kubernetes.workloads.owned import OwnedWorkload

MODELS = Resource(group="kubeai.org", version="v1", plural="models", kind="Model")


class ModelArguments(ListChannel):
    """See the module."""

    why = "KubeAI writes the pods; the Model's args are added to its own"

    def place(self, root: Object) -> Path | None:
        """See `ListChannel`."""
        return ("spec", "args") if root.get("spec") is not None else None

    def no_place(self, root: Object) -> str:
        """See `ListChannel`."""
        return "has no spec"


class ModelWorkload(OwnedWorkload):
    """See the module."""

    resource = MODELS
    between = ()
    heads = ()
    container = "server"
    owner_channel = ModelArguments()

    def unsuitable(self, root: Object) -> str:
        """See `Workload`."""
        engine = dig(root, ("spec", "engine"))
        return "" if engine == "VLLM" else f"has spec.engine {engine}; only VLLM can be steered"

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`: by default it starts one more before any stops."""
        return has_room([pod["spec"] for pod in family.pods[:1]])

    def unheld(self, root: Object) -> str:
        """See `Workload`."""
        return (
            f"{super().unheld(root)}, and KubeAI starts one more first (modelRollouts.surge), for "
            f"which it waits where no node has room"
        )
