"""Argo Rollouts: its controller takes the user's own steps, and Specpilot only stops and starts it.

A canary is the user's first step. `spec.paused` holds the roll there for as long as the comparison
takes. Going on lets go of it; a pause step without a duration waits for somebody's word, and that
is then given, as `kubectl argo rollouts promote` does. Steps with a duration take their time, and
analyses of the user's own run as ever: when one fails, the controller aborts, and what is seen here
is a canary that does not become ready.

What is easy to get wrong:

- Going back to the stable ReplicaSet in mid-update is quick, but after the last step it would be an
  update like any other, with all its pauses. So the way back is promoted in full.
- `status.observedGeneration` is text.
- An inconclusive analysis waits for a person, and is left to one.
- The controller puts what it has written back into the cache of its watch, over anything newer that
  came meanwhile. A word that is said the moment it pauses can so be lost, and then it rests for
  ever: a resync looks at the same cache. Any change of the object makes it look again.
"""

from specpilot.domain.settings import JsonValue
from specpilot.fleets.kubernetes.objects import our_annotations
from specpilot.fleets.kubernetes.request import (
    REPLICA_SETS,
    Object,
    Request,
    Resource,
    merge_patch,
)
from specpilot.fleets.kubernetes.workloads.base import Family, Look, dig
from specpilot.fleets.kubernetes.workloads.strategies import SurgingWorkload, counted

ROLLOUTS = Resource(group="argoproj.io", version="v1alpha1", plural="rollouts", kind="Rollout")

_CANARY = ("spec", "strategy", "canary")
_DEFAULT_DEADLINE_S = 600
_AT_PAUSE_STEP = "CanaryPauseStep"
_NONE = "0"


class RolloutWorkload(SurgingWorkload):
    """See the module."""

    resource = ROLLOUTS
    between = (REPLICA_SETS,)
    hold_field = ("spec", "paused")
    strategy = _CANARY

    def unsuitable(self, root: Object) -> str:
        """See `Workload`."""
        if reference := dig(root, ("spec", "workloadRef")):
            return (
                f"takes its pod template from {reference.get('kind')} {reference.get('name')} "
                "(spec.workloadRef); write the template into the Rollout itself"
            )
        if dig(root, _CANARY) is None:
            return (
                "has no spec.strategy.canary: blue-green starts all replicas anew beside the old "
                "ones, and no comparison under the same load is possible; use the canary strategy"
            )
        return ""

    def progress_deadline_s(self, root: Object) -> float:
        """See `Workload`."""
        seconds = dig(root, ("spec", "progressDeadlineSeconds"))
        return float(_DEFAULT_DEADLINE_S if seconds is None else seconds)

    def how_to_release(self, root: Object) -> str:
        """See `Workload`."""
        namespace, name = root["metadata"]["namespace"], root["metadata"]["name"]
        return f"resume it with `kubectl argo rollouts promote {name} -n {namespace}`"

    def observed(self, root: Object) -> bool:
        """See `Workload`."""
        seen = dig(root, ("status", "observedGeneration"))
        return str(seen or "") == str(root["metadata"].get("generation") or "")

    def rolling(self, family: Family) -> str:
        """See `Workload`."""
        root = family.root
        status = root.get("status") or {}
        words = self.not_observed(root)
        if status.get("abort"):
            words.append(f"its controller has aborted the update: {status.get('message') or '?'}")
        elif status.get("phase") == "Degraded":
            words.append(f"Degraded: {status.get('message') or '?'}")
        elif _updates(root):
            steps = dig(root, (*_CANARY, "steps")) or []
            words.append(f"{status.get('currentStepIndex') or 0} of {len(steps)} steps are done")
        return "; ".join([*words, *counted(root, wanted=self.replicas_wanted(root))])

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        """Pause once the new ReplicaSet is told to have enough: its pods follow even then.

        It is found by our annotations, which name the change: a Rollout may add metadata of its
        own to the templates of its ReplicaSets. An update that its controller has aborted is let
        go of: while it is paused, the controller could not take the canary away.
        """
        if dig(root, ("status", "abort")):
            return None
        ours = our_annotations(dig(root, ("spec", "template", "metadata")) or {})
        given = sum(
            int(rs["spec"].get("replicas") or 0)
            for rs in look().of(REPLICA_SETS)
            if our_annotations(dig(rs, ("spec", "template", "metadata")) or {}) == ours
        )
        return True if given >= canaries else None

    def unblock(self, root: Object, look: Look, *, back: bool) -> tuple[Request, ...]:
        """Say the word that a pause step waits for; on the way back skip them all."""
        status = root.get("status") or {}
        if not self.observed(root) or not _updates(root):
            return ()
        if back:
            return () if status.get("promoteFull") else (_status(root, {"promoteFull": True}),)
        paused = {c.get("reason") for c in status.get("pauseConditions") or ()}
        if paused != {_AT_PAUSE_STEP} or not _waits_for_word(root):
            return ()
        return (_status(root, {"pauseConditions": None}),)

    def wake(self, root: Object) -> tuple[Request, ...]:
        """Take back that it has observed what it has not acted on; it then says so once more."""
        status = root.get("status") or {}
        unheard = (
            _waits_for_word(root)
            and status.get("controllerPause")
            and not status.get("pauseConditions")
            and not dig(root, self.hold_field)
        )
        skipped = status.get("promoteFull") and _step(root) is not None
        if self.observed(root) and not (_updates(root) and (unheard or skipped)):
            return ()
        # Another value than the last, for a patch that changes nothing is told to nobody.
        again = "" if status.get("observedGeneration") == _NONE else _NONE
        return (_status(root, {"observedGeneration": again}),)


def _updates(root: Object) -> bool:
    """Whether its latest template is not the stable one yet."""
    status = root.get("status") or {}
    return bool(status.get("currentPodHash") != status.get("stableRS"))


def _step(root: Object) -> Object | None:
    """The step it stands at; None after the last."""
    steps: list[Object] = dig(root, (*_CANARY, "steps")) or []
    index = int(dig(root, ("status", "currentStepIndex")) or 0)
    return steps[index] if index < len(steps) else None


def _waits_for_word(root: Object) -> bool:
    """Whether it stands at a pause step without an end."""
    step = _step(root) or {}
    return "pause" in step and not (step["pause"] or {}).get("duration")


def _status(root: Object, status: Object) -> Request:
    metadata = root["metadata"]
    return merge_patch(
        ROLLOUTS,
        {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status},
        namespace=metadata["namespace"],
        name=metadata["name"],
        subresource="status",
    )
