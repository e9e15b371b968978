"""Channel B: the engine's own arguments, for containers that cannot read the annotation.

It needs nothing of the user's manifest and works with every engine version, but a list of arguments
has one owner, and it is the user. So it is used only where the policy asks for it
(`rollout.channel: Args`), and whoever applies the manifest again takes the setting back, which
counts as a contest.
"""

from collections.abc import Mapping
from typing import Any

from specpilot.domain.settings import Declared, JsonValue
from specpilot.domain.targets import Channel as ChannelName
from specpilot.domain.targets import Problem, TargetProblem
from specpilot.engines import CommandLineError, arguments, without_speculation
from specpilot.fleets.kubernetes.channels.base import Letters, View
from specpilot.fleets.kubernetes.channels.patching import NO_VERSION, PatchChannel, as_argument
from specpilot.fleets.kubernetes.objects import our_annotations, user_templates
from specpilot.fleets.kubernetes.replicas import pick_container
from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.wiring import VARIABLE, follower_fault, read_line
from specpilot.fleets.kubernetes.workloads.base import Family, Path, dig

_LISTS = ("command", "args")


class ArgumentsChannel(PatchChannel):
    """See the module."""

    name = ChannelName.ARGS
    why = "rollout.channel asks for the container's arguments to be patched"

    def problem(self, view: View) -> Problem | None:
        """See `Channel`."""
        _, container = view.engine()
        message = _unfit(container, version=view.version)
        for _, template in view.templates()[1:]:
            follower = pick_container(template["spec"]["containers"], view.container)
            if follower is not None and follower_fault(follower, workload=view.words):
                message = (
                    "its workers run the engine too, and their arguments are not patched together "
                    "with the leader's; leave rollout.channel out and take the annotation in both"
                )
        if not message:
            return None
        return Problem(
            reason=TargetProblem.CHANNEL_DOES_NOT_FIT,
            message=f'{view.words}, container "{container["name"]}": {message}',
        )

    def home(self, view: View) -> Path:
        """See `PatchChannel`."""
        path, _ = view.templates()[0]
        return (*path, "metadata", "annotations")

    def values(self, view: View) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        path, container = view.engine()
        return {(*path, name): container.get(name) for name in _LISTS}

    def config_of(self, view: View, values: Mapping[Path, JsonValue]) -> str | None:
        """See `PatchChannel`."""
        _, container = view.engine()
        lists = {str(path[-1]): value for path, value in values.items()}
        line = read_line({**container, **lists}, version=view.version)
        return None if line.problem or line.wired else line.config

    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        path, container = view.engine()
        found = _stripped(container)
        last = "args" if container.get("args") else "command"
        added = [as_argument(word) for word in arguments(config, version=view.version)]
        if added:
            found[last] = [*(found[last] or []), *added]
        return {(*path, name): list(found[name] or []) or None for name in _LISTS}

    def stripped(self, view: View, values: Mapping[Path, JsonValue]) -> JsonValue:
        """Both lists of some values without speculation.

        Raises:
            ValueError: They are not understood.
        """
        _, container = view.engine()
        lists = {str(path[-1]): value for path, value in values.items()}
        return {
            name: list(found or ()) for name, found in _stripped({**container, **lists}).items()
        }

    def edits(self, view: View) -> str:
        """See `Channel`."""
        return user_templates(_without(t, view.container) for _, t in view.templates())

    def earlier(self, view: View, family: Family, wanted: Declared) -> Letters | None:
        """See `PatchChannel`."""
        base = self.edits(view)
        for revision in family.between():
            template = dig(revision, ("spec", "template"))
            if template is None or template["spec"].get("containers") is None:
                continue
            found = self._of(view, template["spec"], template.get("metadata") or {})
            same = found is not None and user_templates([_without(template, view.container)])
            if found is not None and same == base and self.meaning(view, found) == wanted:
                return found
        _, container = view.engine()
        for pod in family.pods:
            found = self._of(view, pod["spec"], pod["metadata"])
            # A pod is more than its template, but these lists are as the template had them.
            if (
                found is not None
                and self.meaning(view, found) == wanted
                and _stripped_of(found) == _stripped(container)
            ):
                return found
        return None

    @staticmethod
    def _of(view: View, spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Letters | None:
        """Letters of another template or of a pod, for the paths of this one."""
        path, _ = view.engine()
        container = pick_container(spec["containers"], view.container)
        if container is None:
            return None
        return Letters(
            annotations=our_annotations(metadata),
            values={(*path, name): container.get(name) for name in _LISTS},
        )


def _stripped(container: Mapping[str, Any]) -> dict[str, list[str] | None]:
    """Both lists without speculation.

    Raises:
        CommandLineError: See `without_speculation`.
    """
    whole = [*(container.get("command") or ()), *(container.get("args") or ())]
    without_speculation(whole)  # a shell in one list may have its script in the other
    return {name: without_speculation(container.get(name) or ()) or None for name in _LISTS}


def _stripped_of(letters: Letters) -> dict[str, list[str] | None] | None:
    try:
        return _stripped({str(path[-1]): value for path, value in letters.values.items()})
    except CommandLineError:
        return None


def _without(template: Mapping[str, Any], container: str) -> Object:
    """A template without the speculation in its engine's arguments."""
    spec = template["spec"]
    containers = []
    for found in spec["containers"]:
        if found.get("name") == container:
            try:
                lists = {k: v for k, v in _stripped(found).items() if v}
            except CommandLineError:
                containers.append(found)
                continue
            others = {k: v for k, v in found.items() if k not in _LISTS}
            containers.append({**others, **lists})
        else:
            containers.append(found)
    return {**template, "spec": {**spec, "containers": containers}}


def _unfit(container: Mapping[str, Any], *, version: str) -> str:
    """Why the arguments cannot be patched, "" when they can."""
    if not version:
        return NO_VERSION
    if not container.get("command") and not container.get("args"):
        return "it has neither command nor args that could be patched; write args in the manifest"
    line = read_line(container, version=version)
    if line.wired:
        return (
            f"it takes its speculation from $({VARIABLE}) already; leave rollout.channel out, and "
            f"the annotation is used"
        )
    if line.problem:
        return line.problem
    try:
        lists = _stripped(container)
    except CommandLineError as error:
        return str(error)
    rest = read_line({**container, **lists}, version=version)
    if rest.config or rest.problem:
        return (
            "speculation does not come from its arguments alone: without them it is "
            f"{rest.config or rest.problem}; take that out"
        )
    return ""
