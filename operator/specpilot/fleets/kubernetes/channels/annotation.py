"""Channel A: three annotations of the pod template, read through the downward API (`wiring`).

They are written by server-side apply and shared with nobody, so no list of the user's is touched,
and giving them back leaves no trace.
"""

from specpilot.domain.settings import Declared, JsonValue
from specpilot.domain.targets import Channel as ChannelName
from specpilot.domain.targets import Problem
from specpilot.fleets.kubernetes.changes import Changes
from specpilot.fleets.kubernetes.channels.base import Channel, Letters, View
from specpilot.fleets.kubernetes.objects import (
    our_annotations,
    owners,
    template_of,
    user_template,
    user_templates,
)
from specpilot.fleets.kubernetes.replicas import pick_container
from specpilot.fleets.kubernetes.request import Object, Request, apply
from specpilot.fleets.kubernetes.wiring import (
    ANNOTATIONS,
    CONFIG_ANNOTATION,
    annotations,
    declared,
    fault,
    follower_fault,
    running,
)
from specpilot.fleets.kubernetes.workloads.base import (
    POD_TEMPLATE,
    Family,
    Path,
    Workload,
    dig,
    merged,
    nested,
)


def annotation_path(template: Path, key: str) -> Path:
    """Path of an annotation of a pod template."""
    return (*template, "metadata", "annotations", key)


class AnnotationChannel(Channel):
    """See the module."""

    name = ChannelName.ANNOTATION
    why = "the container reads the pod's annotation through the downward API"

    def owned_fields(self, workload: Workload) -> tuple[Path, ...]:
        """See `Channel`."""
        return tuple(annotation_path(t, key) for t in workload.templates for key in ANNOTATIONS)

    def problem(self, view: View) -> Problem | None:
        """See `Channel`."""
        _, container = view.engine()
        found = fault(container, workload=view.words, version=view.version)
        for _, template in view.templates()[1:]:
            follower = pick_container(template["spec"]["containers"], view.container)
            if found is None and follower is not None:
                found = follower_fault(follower, workload=view.words, version=view.version)
        return found

    def declared(self, view: View) -> Declared:
        """See `Channel`."""
        _, container = view.engine()
        _, template = view.templates()[0]
        return running(template.get("metadata") or {}, container, version=view.version)

    def edits(self, view: View) -> str:
        """See `Channel`."""
        if view.workload.templates == (POD_TEMPLATE,):
            _, rest = template_of(view.root)  # known already where it comes from a cache
            return rest
        return user_templates(template for _, template in view.templates())

    def present(self, view: View) -> Letters:
        """See `Channel`."""
        _, template = view.templates()[0]
        return Letters(annotations=our_annotations(template.get("metadata") or {}))

    def meaning(self, view: View, letters: Letters) -> Declared:
        """See `Channel`."""
        return declared(letters.annotations)

    def letters(self, view: View, family: Family, wanted: Declared) -> Letters:
        """See `Channel`."""
        _, template = view.templates()[0]
        rest = user_template(template)
        for revision in family.between():
            if dig(revision, ("spec", "template")) is None:
                continue
            found, others = template_of(revision)
            if others == rest and declared(found) == wanted:
                return Letters(annotations=found)
        for pod in family.pods:
            found = our_annotations(pod["metadata"])
            if declared(found) == wanted:
                return Letters(annotations=found)
        return Letters(annotations=annotations(wanted))

    @staticmethod
    def _removal(view: View, *, hold: JsonValue, manager: str) -> Request | None:
        changes = Changes(view.root)
        for path, template in view.templates():
            for key in our_annotations(template.get("metadata") or {}):
                if manager in owners(view.root, *annotation_path(path, key)):
                    changes.to(annotation_path(path, key), None)
        at = view.workload.hold_field
        if hold is not None or manager in owners(view.root, *at):
            changes.to(at, hold)
        return changes.request(view.workload.resource, manager=manager)

    def released(self, view: View) -> Letters:
        """See `Channel`."""
        return Letters()

    def taken_over(self, view: View, *, manager: str) -> bool:
        """See `Channel`."""
        path, _ = view.templates()[0]
        managers = owners(view.root, *annotation_path(path, CONFIG_ANNOTATION))
        return bool(managers) and manager not in managers

    def leftover(self, view: View, *, manager: str) -> bool:
        """See `Channel`: whoever writes their value over ours leaves our claims beside it."""
        return self.taken_over(view, manager=manager) and any(
            manager in owners(view.root, *annotation_path(path, key))
            for path, _ in view.templates()
            for key in ANNOTATIONS
        )

    def request(
        self, view: View, letters: Letters, *, hold: JsonValue, manager: str
    ) -> Request | None:
        """Apply the annotations and the hold; those that are left out are given back.

        Where nothing of ours stays in a custom resource, it is taken out by a patch: an apply that
        empties a map leaves null there, which the schema of such a resource refuses.
        """
        metadata = view.root["metadata"]
        if not letters.annotations and not view.workload.resource.builtin:
            return self._removal(view, hold=hold, manager=manager)
        body: Object = {
            "metadata": {
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                # Without it an apply would create what has been deleted meanwhile.
                "uid": metadata["uid"],
            }
        }
        if letters.annotations:  # an empty map would still be owned
            for path, _ in view.templates():
                at = (*path, "metadata", "annotations")
                body = merged(body, nested(at, dict(letters.annotations)))
        if hold is not None:
            body = merged(body, nested(view.workload.hold_field, hold))
        return apply(view.workload.resource, body, field_manager=manager)
