"""VLLMRuntime of the vLLM production stack: `extraArgs`, and an annotation that makes them count.

What is easy to get wrong:

- Its controller looks at replicas, model, port, image, resources and *pod annotations* to see
  whether the Deployment needs an update. Arguments are not among them: a changed `extraArgs` alone
  does nothing, until something else changes and brings it along by surprise. So a hash of the
  arguments goes into `podAnnotations` with them.
- It compares the annotations that are wanted, and older releases do not see one that is gone. So
  the hash stays when a setting is taken back, and says the old arguments.
- The Deployment is written whole. Whatever somebody patched there is gone then.

Written from the controller's source, and tested with a Deployment made as it makes it.
"""

import hashlib

from specpilot.domain.settings import Declared, JsonValue, canonical_json
from specpilot.fleets.kubernetes.channels.base import View
from specpilot.fleets.kubernetes.channels.owner import ListChannel
from specpilot.fleets.kubernetes.request import Object, Resource
from specpilot.fleets.kubernetes.workloads.base import Path, dig
from specpilot.fleets.kubernetes.workloads.owned import OwnedWorkload

VLLM_RUNTIMES = Resource(
    group="production-stack.vllm.ai",
    version="v1alpha1",
    plural="vllmruntimes",
    kind="VLLMRuntime",
)
HASH_ANNOTATION = "specpilot.io/extra-args"

_ARGS: Path = ("spec", "vllmConfig", "extraArgs")
_POD_ANNOTATIONS: Path = ("spec", "deploymentConfig", "podAnnotations")
_HASH: Path = (*_POD_ANNOTATIONS, HASH_ANNOTATION)

_STARTS_WITHIN_S = 120 + 100 * 20
"""Its startup probe: 100 failures every 20 s, after 120 s."""


class ExtraArguments(ListChannel):
    """See the module."""

    why = "the VLLMRuntime's controller writes the pods; extraArgs is the list it adds"
    reaches_pods = True

    def home(self, view: View) -> Path:
        """See `PatchChannel`."""
        return _POD_ANNOTATIONS

    def place(self, root: Object) -> Path | None:
        """See `ListChannel`."""
        return _ARGS if dig(root, _ARGS[:-1]) is not None else None

    def no_place(self, root: Object) -> str:
        """See `ListChannel`."""
        return "has no spec.vllmConfig; write one"

    def values(self, view: View) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        values = super().values(view)
        return values | {_HASH: dig(view.root, _HASH)} if values else values

    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        return {path: v for path, v in super().values_for(view, config).items() if path != _HASH}

    def completed(self, values: dict[Path, JsonValue], wanted: Declared) -> dict[Path, JsonValue]:
        """See `PatchChannel`: whatever the arguments become, the annotation changes with them."""
        text = canonical_json([values.get(_ARGS) or [], wanted.change_id])
        return values | {_HASH: hashlib.sha256(text.encode()).hexdigest()[:16]}


class VLLMRuntimeWorkload(OwnedWorkload):
    """See the module."""

    resource = VLLM_RUNTIMES
    container = "vllm"
    or_without_surge = (
        ", or set spec.deploymentConfig.deploymentStrategy: Recreate, which stops all of them first"
    )
    owner_channel = ExtraArguments()

    def replicas_at(self, root: Object) -> Path:
        """See `Workload`."""
        return ("spec", "deploymentConfig", "replicas")

    def progress_deadline_s(self, root: Object) -> float:
        """See `Workload`."""
        return float(_STARTS_WITHIN_S)
