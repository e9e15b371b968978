"""What is, as the core wants to hear it: adapter, channel and pods put together."""

import functools
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specpilot.domain.engine_run import EngineRun
from specpilot.domain.ports import FleetError
from specpilot.domain.settings import JsonValue
from specpilot.domain.targets import Problem, Replica, TargetRef, TargetState
from specpilot.fleets.kubernetes import problems
from specpilot.fleets.kubernetes.autoscaling import Autoscalers
from specpilot.fleets.kubernetes.capacity import Capacity
from specpilot.fleets.kubernetes.channels import Channel, View
from specpilot.fleets.kubernetes.gitops import hands_kv_over, keeper
from specpilot.fleets.kubernetes.objects import owners, uid_of
from specpilot.fleets.kubernetes.replicas import pick_container, replica_of_group
from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.source import MOST_REMEMBERED
from specpilot.fleets.kubernetes.versions import Ask, Versions
from specpilot.fleets.kubernetes.wiring import argv
from specpilot.fleets.kubernetes.workloads.base import Family, Workload, dig

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Described:
    """A target as it was described last.

    Attributes:
        family: The workload, what it owns, and its pods.
        since: The moment since which readings of nodes say what the answers about room rest on,
            None for none.
        state: What was said.
    """

    family: Family
    since: float | None
    state: TargetState

    def of(self, family: Family) -> "_Described | None":
        """The same of a family of the very same objects, None for another one.

        A cache puts another object where one has changed.
        """
        if family is self.family:
            return self
        before, after = _objects(self.family), _objects(family)
        same = len(before) == len(after) and all(map(operator.is_, before, after))
        return replace(self, family=family) if same else None


def _objects(family: Family) -> tuple[Object, ...]:
    return (family.root, *family.between(), *family.pods)


class Observer:
    """Describes families of workloads; sends nothing but the questions for room and version.

    Args:
        capacity: Knows of room on the nodes.
        autoscalers: Know who scales what.
        version: See `KubernetesFleet`.
        get: See `KubernetesFleet`.
        clock: Monotonic seconds.
        manager: Field manager under which our fields are owned.
        workloads: Adapter per kind.
    """

    def __init__(
        self,
        *,
        capacity: Capacity,
        autoscalers: Autoscalers,
        version: Ask | None,
        get: Ask | None = None,
        clock: Callable[[], float],
        manager: str,
        workloads: Mapping[str, Workload],
    ) -> None:
        self._capacity = capacity
        self._autoscalers = autoscalers
        self._versions = Versions(version, clock=clock)
        self._get = get
        self._manager = manager
        self._workloads = workloads
        self._described: dict[TargetRef, _Described] = {}

    def describe(
        self, ref: TargetRef, workload: Workload, channel: Channel, family: Family
    ) -> TargetState:
        """Put together what is known of a workload.

        It is put together again only when one of its objects has changed: that is most of the work,
        and at rest every tick would do it anew for every target. Where room and autoscalers are as
        they were too, the very same state is returned again.

        Raises:
            FleetError: The API server did not answer about nodes.
        """
        root = family.root
        scaling = self._autoscalers.scaling(ref.namespace, ref.name, kind=ref.kind)
        known = self._described.get(ref)
        if known is not None:
            known = known.of(family)
        if known is not None and self._capacity.stands(known.since):
            return self._with(known, scaling)
        name = container_of(ref, workload, root)
        if name is None:
            problem = self._unfit(ref, workload, root) or problems.no_container(ref, workload, root)
            return TargetState(ref=ref, problem=problem)
        if known is not None:
            state, lasting = known.state, True
        else:
            state, lasting = self._of_objects(ref, workload, channel, family, container=name)
        since = self._capacity.since
        can_add = workload.can_add_replica(family, self._has_room)
        deadlock = self._deadlock(workload, family)
        if (state.can_add_replica, state.deadlock) != (can_add, deadlock):
            state = replace(state, can_add_replica=can_add, deadlock=deadlock)
        known = _Described(family, since, state)
        return self._with(known, scaling, keep=lasting)

    def _with(self, known: _Described, scaling: str, *, keep: bool = True) -> TargetState:
        """A description, with what is known of autoscalers now; kept for the next look."""
        if known.state.scaling != scaling:
            known = replace(known, state=replace(known.state, scaling=scaling))
        if keep:
            if len(self._described) >= MOST_REMEMBERED:
                self._described.clear()
            self._described[known.state.ref] = known
        return known.state

    def _of_objects(
        self,
        ref: TargetRef,
        workload: Workload,
        channel: Channel,
        family: Family,
        *,
        container: str,
    ) -> tuple[TargetState, bool]:
        """What the objects of a family say, and nothing that changes without them.

        Second, whether that is all: while an engine is still to be asked something, there may be
        more to say of the same objects next time.
        """
        root = family.root
        view, replicas = self.read(workload, channel, family, container=container)
        halted = self.held(workload, root) is not None
        state = TargetState(
            ref=ref,
            problem=self._unfit(ref, workload, root)
            or channel.problem(view)
            or (None if halted else problems.held_by_user(ref, workload, root)),
            declared=channel.declared(view),
            desired_replicas=workload.desired(family),
            replicas=replicas,
            user_template=channel.edits(view),
            rolling=workload.rolling(family),
            halted=halted,
            unheld=workload.unheld(root),
            engine=_engine_run(channel, view),
            labels=root["metadata"].get("labels") or {},
            progress_deadline_s=workload.progress_deadline_s(root),
            channel=f"{channel.name}: {channel.why}",
            kv_transfer=_hands_kv_over(view),
            keeper=keeper({"kind": ref.kind, **root}, field_manager=self._manager),
        )
        return state, bool(view.version) and not channel.question(view)

    def _unfit(self, ref: TargetRef, workload: Workload, root: Object) -> Problem | None:
        return problems.owned(ref, root, kinds=self._workloads) or workload.problem(root)

    def read(
        self, workload: Workload, channel: Channel, family: Family, *, container: str
    ) -> tuple[View, tuple[Replica, ...]]:
        """The workload as the channel sees it, and its replicas.

        Args:
            workload: Its adapter.
            channel: How settings reach it.
            family: It and what it owns.
            container: Name of the engine's container, see `container_of`.
        """
        groups = [
            group
            for group in workload.replicas(family)
            if all(pod["spec"].get("containers") for pod in group)
        ]
        view = View(
            workload=workload,
            root=family.root,
            container=container,
            pods=tuple(pod for group in groups for pod in group),
        )
        view = replace(view, version=self._version(view, groups))
        view = replace(view, answer=self._answer(channel.question(view)))
        runs = functools.partial(channel.runs, view)
        replicas = (
            replica_of_group(group, container=container, version=view.version, runs=runs)
            for group in groups
        )
        return view, tuple(sorted(replicas, key=lambda r: r.id))

    def held(self, workload: Workload, root: Object) -> JsonValue:
        """What we wrote into the field that holds a roll, None when it is not ours."""
        if not workload.hold_field:
            return None
        value: JsonValue = dig(root, workload.hold_field)
        if value is None or value is False:
            return None
        return value if self._manager in owners(root, *workload.hold_field) else None

    def _version(self, view: View, groups: Sequence[tuple[Object, ...]]) -> str:
        images = {uid_of(group[0]): _image(group[0], view.container) for group in groups}
        image = str((_engine(view) or {}).get("image") or "")
        same = (
            replica_of_group(group, container=view.container)
            for group in groups
            if images[uid_of(group[0])] == image
        )
        return self._versions.of(same, image=image)

    def _deadlock(self, workload: Workload, family: Family) -> str:
        room = self._capacity.room_for(workload.must_surge(family))
        if room.there:
            return ""
        return (
            f"its strategy starts a new replica before an old one stops, and {room.message}: the "
            f"roll would wait for ever. Make room{workload.or_without_surge}"
        )

    def _answer(self, question: str) -> str:
        if not question or self._get is None:
            return ""
        try:
            return self._get(question)
        except FleetError as error:
            _log.info("what runs is not known: %s", error)
            return ""

    def _has_room(self, specs: Sequence[Mapping[str, Any]]) -> bool:
        return self._capacity.room_for(specs).there


def _engine(view: View) -> Mapping[str, Any] | None:
    """The container that new replicas run the engine in; the newest pod's, without a template."""
    if view.templates():
        return view.engine()[1]
    newest = max(view.pods, key=_created, default=None)
    return None if newest is None else pick_container(newest["spec"]["containers"], view.container)


def _engine_run(channel: Channel, view: View) -> EngineRun:
    container = _engine(view)
    if container is None:
        return EngineRun(version=view.version)
    return channel.engine_run(view, container)


def _hands_kv_over(view: View) -> bool:
    if not view.templates():
        return False
    _, container = view.engine()
    return hands_kv_over(argv(container))


def container_of(ref: TargetRef, workload: Workload, root: Object) -> str | None:
    """Name of the engine's container; None when no template has such one.

    Where there is no template that tells, it is the policy's word, else the adapter's.
    """
    templates = workload.pod_templates(root)
    if not templates:
        return ref.container or workload.container or None
    found = pick_container(templates[0][1]["spec"]["containers"], ref.container)
    return None if found is None else str(found["name"])


def _created(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def _image(pod: Object, container: str) -> str:
    found = pick_container(pod["spec"]["containers"], container) or {}
    return str(found.get("image") or "")
