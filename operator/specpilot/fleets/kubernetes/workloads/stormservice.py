"""AIBrix StormService: the arguments in the pod template of the role that runs the engine.

What is easy to get wrong:

- It owns RoleSets, and those own pods (through PodSets where a role spans several): what is written
  into them is undone.
- The role is an item of a list, found by what it starts. AIBrix' samples have everything in
  `command`.
- Prefill and decode are roles of one object. Changing one side's method under KV transfer breaks
  their handshake, so a StormService with two engines is refused.
- In Pooled mode (one RoleSet) `spec.replicas` is 1 and the role's own number counts; in Replica
  mode both are multiplied.
- Whether `spec.paused` keeps a roll at its first pods differs by mode and release: it is not used.

Written from its API types, and tested with pods made as its controllers make them. A plain
Deployment of AIBrix is steered as a Deployment.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specpilot.domain.settings import Declared, JsonValue
from specpilot.domain.targets import Channel as ChannelName
from specpilot.fleets.kubernetes.channels.arguments import ArgumentsChannel
from specpilot.fleets.kubernetes.channels.base import Letters, View
from specpilot.fleets.kubernetes.request import Object, Resource
from specpilot.fleets.kubernetes.wiring import argv
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Path, dig
from specpilot.fleets.kubernetes.workloads.owned import OwnedWorkload
from specpilot.fleets.kubernetes.workloads.strategies import resolve


def _kind(plural: str, kind: str) -> Resource:
    return Resource(group="orchestration.aibrix.ai", version="v1alpha1", plural=plural, kind=kind)


STORM_SERVICES = _kind("stormservices", "StormService")
ROLE_SETS = _kind("rolesets", "RoleSet")
POD_SETS = _kind("podsets", "PodSet")

_ROLES: Path = ("spec", "template", "spec", "roles")


class RoleArguments(ArgumentsChannel):
    """Arguments of a role's container; what stood there is noted, no revision can be read."""

    name = ChannelName.OWNER
    why = "AIBrix writes the pods; the role's container is the StormService's own"
    keeps_values = True

    def earlier(self, view: View, family: Family, wanted: Declared) -> Letters | None:
        """See `PatchChannel`."""
        return None

    def rest(self, view: View, values: Mapping[Path, JsonValue]) -> JsonValue:
        """See `PatchChannel`."""
        return self.stripped(view, values)


class StormServiceWorkload(OwnedWorkload):
    """See the module."""

    resource = STORM_SERVICES
    between = (ROLE_SETS, POD_SETS)
    heads = ()
    owner_channel = RoleArguments()

    def templates_in(self, root: Object) -> tuple[Path, ...]:
        """See `Workload`."""
        return tuple((*_ROLES, index, "template") for index in _engines(root)[:1])

    def replicas_at(self, root: Object) -> Path:
        """See `Workload`: the role's; the number of RoleSets is multiplied with it."""
        return (*_ROLES, (_engines(root) or [0])[0], "replicas")

    def replicas_wanted(self, root: Object) -> int:
        """See `Workload`."""
        sets = dig(root, ("spec", "replicas"))
        return super().replicas_wanted(root) * (1 if sets is None else int(sets))

    def unsuitable(self, root: Object) -> str:
        """See `Workload`."""
        roles = dig(root, _ROLES) or []
        found = [roles[index] for index in _engines(root)]
        names = ", ".join(str(role.get("name")) for role in found)
        if not found:
            return "has no role whose container starts vllm"
        if len(found) > 1:
            return (
                f"runs the engine in several roles ({names}); with KV transfer between them a "
                f"setting has to be the same on both at every moment, which no roll can do"
            )
        if int(found[0].get("podGroupSize") or 1) > 1:
            return f"has a role {names} of several pods each, which is not supported"
        return "is paused (spec.paused); set it to false" if dig(root, ("spec", "paused")) else ""

    def engine_pods(self, family: Family) -> tuple[Object, ...]:
        """See `OwnedWorkload`: those with a container of the same name and start as the role's."""
        templates = self.pod_templates(family.root)
        names = {c["name"] for _, t in templates for c in t["spec"]["containers"] if _is_engine(c)}
        return tuple(
            pod
            for pod in family.pods
            if any(
                c.get("name") in names and _is_engine(c)
                for c in pod["spec"].get("containers") or ()
            )
        )

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`: only where the role says itself that one more comes first."""
        role = _role(family.root)
        strategy = role.get("updateStrategy") or {}
        wanted = self.replicas_wanted(family.root)
        surge = resolve(strategy.get("maxSurge", 0), of=wanted, up=True)
        unavailable = resolve(strategy.get("maxUnavailable", 1), of=wanted, up=False)
        return surge >= 1 and unavailable == 0 and has_room([role["template"]["spec"]])

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """See `Workload`: where neither is said, its controller's default is not known."""
        role = _role(family.root)
        unavailable = str((role.get("updateStrategy") or {}).get("maxUnavailable"))
        return [role["template"]["spec"]] if unavailable in {"0", "0%"} else ()


def _role(root: Object) -> Mapping[str, Any]:
    """The first role that runs the engine, empty when none does."""
    return next((dig(root, _ROLES)[index] for index in _engines(root)), {})


def _engines(root: Object) -> list[int]:
    """Places of the roles that run the engine."""
    return [
        index
        for index, role in enumerate(dig(root, _ROLES) or ())
        if any(_is_engine(c) for c in dig(role, ("template", "spec", "containers")) or ())
    ]


def _is_engine(container: Mapping[str, Any]) -> bool:
    """Whether a container starts vLLM: by its command, else by its image."""
    line = argv(container)
    if container.get("command"):
        return any("vllm" in word for word in line)
    return "vllm" in str(container.get("image") or "") or any("vllm" in word for word in line)
