"""The fleet for targets of kind Deployment.

It writes four fields and no other, by server-side apply: three annotations of the pod template and
`spec.paused`. Everything else of the Deployment (replicas, strategy, image, arguments) belongs to
the user or to an autoscaler and is only read.

A canary is a roll that is held: the template gets the new annotations, and as soon as the new
ReplicaSet has been given its first pods the Deployment is paused. Going on releases the pause;
going back re-applies what the annotations were, which is the old ReplicaSet to the letter.
"""

import logging
import time
from collections.abc import Callable

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.ports import FleetError
from specpilot.domain.settings import Declared
from specpilot.domain.targets import Problem, TargetProblem, TargetRef, TargetState
from specpilot.fleets.kubernetes.api import Api, ApiError
from specpilot.fleets.kubernetes.autoscaling import Autoscalers
from specpilot.fleets.kubernetes.capacity import Capacity
from specpilot.fleets.kubernetes.gitops import hands_kv_over, keeper
from specpilot.fleets.kubernetes.objects import (
    PAUSED,
    annotation_path,
    controller_of,
    our_annotations,
    owners,
    uid_of,
    user_template,
)
from specpilot.fleets.kubernetes.replicas import pick_container, replica_of
from specpilot.fleets.kubernetes.request import DEPLOYMENTS, Object
from specpilot.fleets.kubernetes.rollout import (
    can_add_replica,
    new_replica_set,
    progress_deadline_s,
    recreates,
    replicas_wanted,
    rolling,
    template_of,
)
from specpilot.fleets.kubernetes.source import Family, Live, Source
from specpilot.fleets.kubernetes.versions import Ask, Versions
from specpilot.fleets.kubernetes.wiring import (
    CHANGE_ANNOTATION,
    CONFIG_ANNOTATION,
    annotations,
    argv,
    declared,
    fault,
    running,
)

_log = logging.getLogger(__name__)

HOLD_WITHIN_S = 2.0
"""How long a canary's first pods are waited for in one call, so that the pause follows at once."""

_FIRST_LOOKS = 20
_LOOK_EVERY_S = (0.01, 0.05)


class DeploymentFleet:
    """Observes Deployments and carries out intents on them. See `specpilot.domain.ports.Fleet`.

    Args:
        api: The API server. Its field manager is the one our fields are owned under.
        source: Where to read from when observing; None asks the API server each time.
        version: Asks an engine for its version where its image does not say, None for never.
        clock: Monotonic seconds.
        sleep: Waits some seconds.
    """

    def __init__(
        self,
        api: Api,
        *,
        source: Source | None = None,
        version: Ask | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._live = Live(api)
        self._source = source or self._live
        self._versions = Versions(version, clock=clock)
        self._autoscalers = Autoscalers(api, clock=clock)
        self._capacity = Capacity(api, clock=clock, pods=self._source.pods_everywhere)
        self._clock = clock
        self._sleep = sleep

    def observe(self, ref: TargetRef) -> TargetState:
        """Report what is; see `Fleet.observe`.

        What can be said is said beside a problem too: an unwired workload has replicas all the
        same, and an adviser wants to know what they run.

        Raises:
            FleetError: The API server did not answer, or what is known of it is stale.
        """
        if ref.kind != DEPLOYMENTS.kind:
            return TargetState(ref=ref, problem=_unsupported(ref))
        family = self._source.family(ref.namespace, ref.name)
        if family is None:
            return TargetState(ref=ref, problem=_not_found(ref))
        return self._describe(ref, family)

    def carry_out(self, intent: Intent) -> None:
        """Take the next step towards an intent; see `Fleet.carry_out`.

        Raises:
            FleetError: The step could not be taken.
        """
        ref = intent.target
        if ref.kind != DEPLOYMENTS.kind:
            return
        if self._holds(intent):
            return
        # Read anew, never from a cache: acting on the state before our own last write would
        # release the pause that it set.
        deployment = self._live.deployment(ref.namespace, ref.name)
        if deployment is None:
            return
        if intent.extent is Extent.CANARY:
            self._try(deployment, intent)
        else:
            self._roll(deployment, intent.declared)

    def _holds(self, intent: Intent) -> bool:
        """Whether nothing is left to do, by what the watches know.

        A cache that is behind can be wrong for a moment, and then the next call acts; most calls of
        a long roll have nothing to do, and asking each second would cost more than everything else.
        """
        if self._source is self._live:
            return False
        try:
            family = self._source.family(intent.target.namespace, intent.target.name)
        except FleetError:
            return False
        if family is None:
            return False
        deployment = family.deployment
        if declared(our_annotations(_metadata(deployment))) != intent.declared:
            return False
        held = self._paused_by_us(deployment)
        if intent.extent is not Extent.CANARY:
            return not held
        new = new_replica_set(deployment, family.replica_sets)
        given = 0 if new is None else int(new["spec"].get("replicas") or 0)
        return held and given >= _canary_size(deployment, intent)

    def _describe(self, ref: TargetRef, family: Family) -> TargetState:
        deployment = family.deployment
        template = deployment["spec"]["template"]
        container = pick_container(template["spec"]["containers"], ref.container)
        owned = _owned(ref, deployment)
        if container is None:
            return TargetState(ref=ref, problem=owned or _no_container(ref, deployment))
        name, image = container["name"], str(container.get("image") or "")
        pods = [pod for pod in family.pods if pod["spec"].get("containers")]
        replicas = tuple(
            sorted((replica_of(pod, container=name) for pod in pods), key=lambda r: r.id)
        )
        images = {uid_of(pod): _image(pod, name) for pod in pods}
        version = self._versions.of(
            (r for r in replicas if images[r.instance] == image), image=image
        )
        workload = f"Deployment {ref.namespace}/{ref.name}"
        halted = self._paused_by_us(deployment)
        return TargetState(
            ref=ref,
            problem=owned
            or fault(container, workload=workload, version=version)
            or (None if halted else _paused(ref, deployment)),
            declared=running(template.get("metadata") or {}, container, version=version),
            desired_replicas=replicas_wanted(deployment),
            replicas=replicas,
            user_template=template_of(deployment)[1],
            rolling=rolling(
                deployment, family.replica_sets, old_pods=_old_pods(family, deployment)
            ),
            halted=halted,
            can_add_replica=self._can_add(deployment),
            engine_version=version,
            labels=deployment["metadata"].get("labels") or {},
            progress_deadline_s=progress_deadline_s(deployment),
            kv_transfer=hands_kv_over(argv(container)),
            keeper=keeper(deployment, field_manager=self._api.field_manager),
            scaling=self._autoscalers.scaling(ref.namespace, ref.name, kind=DEPLOYMENTS.kind),
        )

    def _paused_by_us(self, deployment: Object) -> bool:
        return bool(deployment["spec"].get("paused")) and self._api.field_manager in owners(
            deployment, *PAUSED
        )

    def _can_add(self, deployment: Object) -> bool:
        # The strategy alone often decides; nodes are looked at only when they can.
        if not can_add_replica(deployment, room=True):
            return False
        if can_add_replica(deployment, room=False):
            return True
        return self._capacity.room(deployment["spec"]["template"]["spec"]).there

    def _try(self, deployment: Object, intent: Intent) -> None:
        wanted = _canary_size(deployment, intent)
        noted = our_annotations(_metadata(deployment))
        if declared(noted) == intent.declared:
            letters = noted
            given = self._canaries(deployment)
        elif noted.get(CHANGE_ANNOTATION) == intent.declared.change_id and self._taken_over(
            deployment
        ):
            return  # ours was replaced in mid-flip: a contest, which is not ours to win
        else:
            letters = self._letters(deployment, intent.declared)
            deployment = self._apply(deployment, letters, paused=False)
            given = self._wait_for_canary(deployment, wanted)
        hold = given >= wanted
        # Too few (again: somebody scaled down) means going on until there are enough.
        if hold != self._paused_by_us(deployment):
            self._apply(deployment, letters, paused=hold)

    def _wait_for_canary(self, deployment: Object, wanted: int) -> int:
        """Replicas that the new ReplicaSet was given; comes back early when they are enough."""
        deadline = self._clock() + HOLD_WITHIN_S
        looks = 0
        while True:
            given = self._canaries(deployment)
            if given >= wanted or self._clock() >= deadline:
                return given
            looks += 1
            self._sleep(_LOOK_EVERY_S[looks > _FIRST_LOOKS])

    def _canaries(self, deployment: Object) -> int:
        """What the new ReplicaSet is told to have: its pods follow, whether paused or not."""
        new = new_replica_set(deployment, self._live.replica_sets(deployment))
        return 0 if new is None else int(new["spec"].get("replicas") or 0)

    def _roll(self, deployment: Object, wanted: Declared) -> None:
        now = declared(our_annotations(_metadata(deployment)))
        if now == wanted and not self._paused_by_us(deployment):
            return
        if now != wanted and self._taken_over(deployment):
            # Somebody set another value meanwhile. Theirs stays; what is still ours goes.
            self._apply(deployment, {}, paused=False)
        else:
            self._apply(deployment, self._letters(deployment, wanted), paused=False)

    def _taken_over(self, deployment: Object) -> bool:
        """Whether the value is owned by others and no longer by us."""
        managers = owners(deployment, *annotation_path(CONFIG_ANNOTATION))
        return bool(managers) and self._api.field_manager not in managers

    def _apply(self, deployment: Object, letters: dict[str, str], *, paused: bool) -> Object:
        """Apply the four fields; those that are left out are given back."""
        metadata = deployment["metadata"]
        spec: Object = {"template": {"metadata": {"annotations": letters}}} if letters else {}
        if paused:
            spec["paused"] = True
        body: Object = {
            "metadata": {
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                # Without it an apply would create what has been deleted meanwhile.
                "uid": metadata["uid"],
            }
        }
        if spec:  # an empty one would still be owned
            body["spec"] = spec
        try:
            return self._api.apply(DEPLOYMENTS, body)
        except ApiError as error:
            if error.conflict or error.not_found:
                _log.info("%s was deleted or replaced in between: %s", metadata["name"], error)
                return deployment
            raise

    def _letters(self, deployment: Object, wanted: Declared) -> dict[str, str]:
        """The annotations that say it, to the letter of the ReplicaSet that says it already.

        The same value in another notation would be another template, hence new pods.
        """
        rest = user_template(deployment["spec"]["template"])
        for replica_set in self._live.replica_sets(deployment):
            letters, others = template_of(replica_set)
            if others == rest and declared(letters) == wanted:
                return letters
        return annotations(wanted)


def _canary_size(deployment: Object, intent: Intent) -> int:
    """Replicas that are to run what is tried."""
    if recreates(deployment):
        return 1
    return min(intent.canary_replicas, max(replicas_wanted(deployment), 1))


def _metadata(deployment: Object) -> Object:
    found: Object = deployment["spec"]["template"].get("metadata") or {}
    return found


def _image(pod: Object, container: str) -> str:
    found = pick_container(pod["spec"]["containers"], container) or {}
    return str(found.get("image") or "")


def _old_pods(family: Family, deployment: Object) -> int:
    """Pods of another ReplicaSet than the newest that are not going away yet."""
    new = new_replica_set(deployment, family.replica_sets)
    newest = uid_of(new) if new is not None else ""
    return sum(
        1
        for pod in family.pods
        if (controller_of(pod) or {}).get("uid") != newest
        and not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or {}).get("phase") not in {"Failed", "Succeeded"}
    )


def _unsupported(ref: TargetRef) -> Problem:
    return Problem(
        reason=TargetProblem.UNSUPPORTED_KIND,
        message=f"target.kind {ref.kind} is not supported here; supported is {DEPLOYMENTS.kind}",
    )


def _not_found(ref: TargetRef) -> Problem:
    return Problem(
        reason=TargetProblem.NOT_FOUND,
        message=f"there is no Deployment {ref.name} in namespace {ref.namespace}; "
        f"check target.name of the policy",
    )


def _no_container(ref: TargetRef, deployment: Object) -> Problem:
    names = ", ".join(c["name"] for c in deployment["spec"]["template"]["spec"]["containers"])
    asked = (
        f"has no container {ref.container}"
        if ref.container
        else "has several containers and none of them is named vllm"
    )
    return Problem(
        reason=TargetProblem.CONTAINER_NOT_FOUND,
        message=f"Deployment {ref.namespace}/{ref.name} {asked}; "
        f"set target.container to one of: {names}",
    )


def _owned(ref: TargetRef, deployment: Object) -> Problem | None:
    owner = controller_of(deployment)
    if owner is None:
        return None
    kind, name = owner.get("kind"), owner.get("name")
    return Problem(
        reason=TargetProblem.OWNED_BY_OTHER,
        message=f"Deployment {ref.namespace}/{ref.name} is managed by {kind} {name}, which would "
        f"undo a change of it. Set speculation there; Specpilot does not steer {kind} objects",
    )


def _paused(ref: TargetRef, deployment: Object) -> Problem | None:
    if not deployment["spec"].get("paused"):
        return None
    who = ", ".join(sorted(owners(deployment, *PAUSED))) or "somebody"
    return Problem(
        reason=TargetProblem.PAUSED_BY_USER,
        message=f"Deployment {ref.namespace}/{ref.name} was paused by {who}; resume it with "
        f"`kubectl -n {ref.namespace} rollout resume deployment/{ref.name}`",
    )
