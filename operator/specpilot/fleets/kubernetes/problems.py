"""Why a workload cannot be steered, whatever its kind, in the words that its user needs."""

from collections.abc import Collection, Mapping

from specpilot.domain.targets import Problem, TargetProblem, TargetRef
from specpilot.fleets.kubernetes.api import ApiError
from specpilot.fleets.kubernetes.objects import controller_of, owners
from specpilot.fleets.kubernetes.request import Object, Resource
from specpilot.fleets.kubernetes.workloads.base import Workload, dig


def unsupported(ref: TargetRef, *, kinds: Collection[str]) -> Problem:
    """There is no adapter for the kind."""
    return Problem(
        reason=TargetProblem.UNSUPPORTED_KIND,
        message=f"target.kind {ref.kind} is not supported here; supported are "
        f"{', '.join(sorted(kinds))}",
    )


def no_such_channel(ref: TargetRef) -> Problem:
    """The channel asked for does not exist for the kind."""
    return Problem(
        reason=TargetProblem.CHANNEL_DOES_NOT_FIT,
        message=f"rollout.channel {ref.channel} does not exist for a {ref.kind}; "
        f"leave it out, and the one that fits is taken",
    )


def not_found(ref: TargetRef) -> Problem:
    """There is no such object."""
    return Problem(
        reason=TargetProblem.NOT_FOUND,
        message=f"there is no {ref.kind} {ref.name} in namespace {ref.namespace}; "
        f"check target.name of the policy",
    )


def no_container(ref: TargetRef, workload: Workload, root: Object) -> Problem:
    """No container of its template is known to run the engine."""
    templates = workload.pod_templates(root)[:1]
    names = ", ".join(c["name"] for _, t in templates for c in t["spec"]["containers"])
    asked = (
        f"has no container {ref.container}"
        if ref.container
        else "has several containers and none of them is named vllm"
    )
    return Problem(
        reason=TargetProblem.CONTAINER_NOT_FOUND,
        message=f"{ref.kind} {ref.namespace}/{ref.name} {asked}; "
        f"set target.container to one of: {names}",
    )


def owned(ref: TargetRef, root: Object, *, kinds: Mapping[str, Workload]) -> Problem | None:
    """Another controller owns it, and would undo a change of it."""
    owner = controller_of(root)
    if owner is None:
        return None
    kind, name = str(owner.get("kind")), str(owner.get("name"))
    group = str(owner.get("apiVersion") or "").rpartition("/")[0]
    above = [w for w in kinds.values() if any(_is(r, group, kind) for r in w.between)]
    if kind in kinds and _is(kinds[kind].resource, group, kind):
        remedy = f"Steer that: write target: {{kind: {kind}, name: {name}}}"
    elif len(above) == 1:
        remedy = f"Steer the {above[0].resource.kind} that {kind} {name} belongs to"
    else:
        remedy = f"Set speculation there; Specpilot does not steer {kind} objects"
    return Problem(
        reason=TargetProblem.OWNED_BY_OTHER,
        message=f"{ref.kind} {ref.namespace}/{ref.name} is managed by {kind} {name}, which "
        f"would undo a change of it. {remedy}",
    )


def _is(resource: Resource, group: str, kind: str) -> bool:
    return (resource.group, resource.kind) == (group, kind)


def forbidden(ref: TargetRef, workload: Workload, error: ApiError) -> Problem:
    """Rights are missing; the server's words name the verb and the resource."""
    kind = workload.resource.kind
    groups = {r.group for r in (workload.resource, *workload.between) if not r.builtin}
    remedy = (
        f"add {kind} to the chart's value owners (API groups {', '.join(sorted(groups))})"
        if workload.owner_channel is not None
        else "install the chart with rbac.create, or give that right to its ServiceAccount"
    )
    return Problem(reason=TargetProblem.UNREACHABLE, message=f"{ref}: {error}; {remedy}")


def held_by_user(ref: TargetRef, workload: Workload, root: Object) -> Problem | None:
    """Its user holds its rolls."""
    if not workload.hold_field or not workload.holds(dig(root, workload.hold_field)):
        return None
    who = ", ".join(sorted(owners(root, *workload.hold_field))) or "somebody"
    return Problem(
        reason=TargetProblem.PAUSED_BY_USER,
        message=f"{ref.kind} {ref.namespace}/{ref.name} was paused by {who}; "
        f"{workload.how_to_release(root)}",
    )
