"""What Specpilot must know of a kind of workload to steer it: the interface of an adapter.

An adapter answers questions about objects that it is given. It sends nothing, remembers nothing and
reads no clock; `fleet.KubernetesFleet` does that, and `channels` know how a setting is written. So
an adapter is a page of code, and its test a table. docs/workloads.md says how to write one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from specpilot.domain.settings import JsonValue
from specpilot.domain.targets import Problem, TargetProblem
from specpilot.fleets.kubernetes.objects import controller_of, uid_of
from specpilot.fleets.kubernetes.request import Object, Request, Resource

if TYPE_CHECKING:
    from specpilot.fleets.kubernetes.channels.base import Channel

Path: TypeAlias = tuple[str | int, ...]
"""Where a field is in an object, from the top: `("spec", "template")`."""

POD_TEMPLATE: Path = ("spec", "template")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A workload and what it owns, by uid: labels can lie, a uid is of one object only.

    Attributes:
        root: The object that a policy names.
        members: What stands between it and its pods, by kind; all of them owned by it in the end.
        pods: Its pods.
    """

    root: Object
    members: Mapping[Resource, tuple[Object, ...]] = field(default_factory=dict)
    pods: tuple[Object, ...] = ()

    def of(self, resource: Resource) -> tuple[Object, ...]:
        """The members of a kind."""
        return self.members.get(resource, ())

    def between(self) -> list[Object]:
        """The members of all kinds."""
        return [member for members in self.members.values() for member in members]


Look: TypeAlias = Callable[[], Family]
"""Reads the family anew: some list requests, so only where the root alone does not tell."""

HasRoom: TypeAlias = Callable[[Sequence[Mapping[str, Any]]], bool]
"""Whether nodes have room for pods of these specs, all of them at once."""


class Workload(ABC):
    """One kind of workload. What is abstract differs from kind to kind; the rest has a default.

    Attributes:
        resource: The object that a policy names as its target.
        between: Kinds that stand between it and its pods (ReplicaSet), empty when it owns them.
        templates: Where its pod templates are; the first is the engine's.
        hold_field: The field that keeps a roll from going on (`spec.paused`, a partition); () where
            there is none, and then `unheld` says so.
        or_without_surge: What a user can do, besides making room, about a roll that starts a new
            replica before an old one stops.
        container: Name of the engine's container where no template of its own tells.
        reports_observed: Whether its controller always writes `status.observedGeneration`; where
            some do not, what the pods were started with has to tell.
        owner_channel: How a setting is written into a field of the object's own, where its
            templates are not the user's to write (KServe); None where they are.
    """

    resource: Resource
    between: tuple[Resource, ...] = ()
    templates: tuple[Path, ...] = (POD_TEMPLATE,)
    hold_field: Path = ()
    container: str = ""
    or_without_surge: str = (
        ", or let one be unavailable (maxUnavailable: 1, maxSurge: 0) in its strategy"
    )
    reports_observed: bool = True
    owner_channel: "Channel | None" = None

    # --- what it is

    def templates_in(self, root: Object) -> tuple[Path, ...]:
        """`templates`, where they stand in this very object."""
        return self.templates

    def pod_templates(self, root: Object) -> list[tuple[Path, Object]]:
        """Its pod templates by their paths, as far as they are there; the engine's first."""
        found = ((path, dig(root, path)) for path in self.templates_in(root))
        return [(path, template) for path, template in found if template]

    def selector(self, root: Object) -> str:
        """Labels of its members and pods, as text for a list request. They need not be exact."""
        return selector_text(dig(root, ("spec", "selector")) or {})

    def replicas_at(self, root: Object) -> Path:
        """Where its user, or an autoscaler, writes the number of replicas."""
        return ("spec", "replicas")

    def replicas_wanted(self, root: Object) -> int:
        """Replicas the user or an autoscaler asks for. Never written."""
        replicas = dig(root, self.replicas_at(root))
        return 1 if replicas is None else int(replicas)

    def desired(self, family: Family) -> int:
        """The same, where what it owns knows better (an autoscaler that writes there)."""
        return self.replicas_wanted(family.root)

    def canaries(self, root: Object, asked: int) -> int:
        """How many replicas try a setting: those asked for, as far as there are so many."""
        return min(asked, max(self.replicas_wanted(root), 1))

    def unheld(self, root: Object) -> str:
        """Why a roll of it cannot be held after its first replicas, in words; "" where it can."""
        return ""

    def replicas(self, family: Family) -> list[tuple[Object, ...]]:
        """The pods of each replica, the one that serves first."""
        return [(pod,) for pod in family.pods]

    def progress_deadline_s(self, root: Object) -> float:
        """Its own limit for a replica to become ready, in seconds; 0 for none."""
        return 0.0

    def unsuitable(self, root: Object) -> str:
        """Why it cannot be steered as its user set it up, "" where it can.

        The words follow its name (`has ...`) and end with the exact next step.
        """
        return ""

    def problem(self, root: Object) -> Problem | None:
        """The same as a problem that names it."""
        words = self.unsuitable(root)
        if not words:
            return None
        metadata = root["metadata"]
        name = f"{self.resource.kind} {metadata.get('namespace', '')}/{metadata['name']}"
        return Problem(reason=TargetProblem.UNSUITABLE_STRATEGY, message=f"{name} {words}")

    def how_to_release(self, root: Object) -> str:
        """What a user does to let go of a roll that they hold themselves."""
        return ""

    # --- where a roll stands

    def observed(self, root: Object) -> bool:
        """Whether its controller has seen the latest spec."""
        seen = dig(root, ("status", "observedGeneration"))
        if seen is None:
            return not self.reports_observed
        return int(seen) >= int(root["metadata"].get("generation") or 0)

    def not_observed(self, root: Object) -> list[str]:
        """The same as words about a roll."""
        words = f"the {self.resource.kind} controller has not acted on the latest change yet"
        return [] if self.observed(root) else [words]

    @abstractmethod
    def rolling(self, family: Family) -> str:
        """Words when replicas are being replaced or scaled, "" at rest."""

    @abstractmethod
    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """Whether a canary can come up without fewer serving than the user's strategy allows."""

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """Specs of the pods that a roll starts before any old one stops; empty when one does."""
        return ()

    def holds(self, value: JsonValue) -> bool:
        """Whether the value of `hold_field` keeps a roll from going on, when a user has set it."""
        return bool(value)

    # --- what to write

    def hold_at_once(self, root: Object, *, canaries: int) -> JsonValue:
        """Value of `hold_field` that goes with the first write; None where it would hold too early.

        Args:
            root: The object before that write.
            canaries: Replicas that are to try the setting.
        """
        return None

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """Value of `hold_field` that keeps the roll at that many canaries; None to let it go on."""
        return None

    def hold_going_back(self, root: Object) -> JsonValue:
        """Value of `hold_field` that goes with the write that takes a setting back."""
        return None

    def may_release(self, root: Object) -> bool:
        """Whether that hold has done its work."""
        return True

    def unblock(self, root: Object, look: Look, *, back: bool) -> tuple[Request, ...]:
        """What else a roll that is not held needs in order to get on; asked for again and again.

        Args:
            root: The object.
            look: See `Look`.
            back: It is on its way back to what ran before.
        """
        return ()

    def wake(self, root: Object) -> tuple[Request, ...]:
        """What makes its controller look again at a write that it has missed.

        Asked for again and again where nothing else is due, so it may be sent once too often.
        Nothing for most: a controller that goes by its watches misses none.
        """
        return ()


def dig(obj: Any, path: Sequence[str | int]) -> Any:
    """The value at a path; None when any part of it is missing."""
    for step in path:
        if isinstance(step, int):
            obj = obj[step] if isinstance(obj, list) and step < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, Mapping) else None
    return obj


def nested(path: Path, value: Any) -> Object:
    """An object that holds nothing but a value at a path (without list indices)."""
    for step in reversed(path):
        value = {str(step): value}
    found: Object = value
    return found


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> Object:
    """Both objects together; `other` wins where they differ."""
    result = dict(one)
    for key, value in other.items():
        known = result.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        result[key] = merged(known or {}, value) if both else value
    return result


def descendants(root_uid: str, objs: Iterable[Object]) -> list[Object]:
    """Those of the objects that the root owns, directly or through each other."""
    by_owner: dict[str, list[Object]] = {}
    for obj in objs:
        owner = controller_of(obj)
        if owner is not None:
            by_owner.setdefault(str(owner.get("uid")), []).append(obj)
    found: list[Object] = []
    uids = [root_uid]
    while uids:
        children = by_owner.pop(uids.pop(), [])
        found += children
        uids += [uid_of(child) for child in children]
    return found


def selector_text(selector: Mapping[str, Any]) -> str:
    """A label selector as text for a list request."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], ",".join(expression.get("values") or ())
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return ",".join(parts)
