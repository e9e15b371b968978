"""The one-time change that makes a workload take its speculation from the annotation (channel A).

What comes out is checked by the same eyes that check a workload before each flip: a change that
would not do is not handed out.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specpilot.domain.targets import TargetRef
from specpilot.engines import CommandLineError, without_speculation
from specpilot.fleets.kubernetes import problems
from specpilot.fleets.kubernetes.api import FIELD_MANAGER
from specpilot.fleets.kubernetes.changes import Changes, pointer
from specpilot.fleets.kubernetes.channels import View
from specpilot.fleets.kubernetes.channels.annotation import AnnotationChannel, annotation_path
from specpilot.fleets.kubernetes.gitops import keeper
from specpilot.fleets.kubernetes.observing import container_of
from specpilot.fleets.kubernetes.replicas import pick_container
from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.versions import version_of_image
from specpilot.fleets.kubernetes.wiring import (
    ARGUMENT,
    CONFIG_ANNOTATION,
    FIELD_PATH,
    VARIABLE,
    follower_fault,
    read_line,
)
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import Path, Workload, dig

ENTRY: Mapping[str, Any] = {
    "name": VARIABLE,
    "valueFrom": {"fieldRef": {"fieldPath": FIELD_PATH}},
}
"""The entry of `env` that reads the annotation."""

_CHANNEL = AnnotationChannel()


class WireError(ValueError):
    """It cannot be wired; the message says why and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wired:
    """One container, wired.

    Attributes:
        template: Path of its pod template.
        name: Its name.
        lists: `command` and `args` as they must be; those that stay are left out.
        removed: Arguments that are taken out, because they would win over the annotation.
        setting: What they say, as JSON; "" for none. It belongs into the policy.
        operations: The JSON patch (RFC 6902), `test` operations included.
    """

    template: Path
    name: str
    lists: Mapping[str, list[str]]
    removed: tuple[str, ...]
    setting: str
    operations: tuple[Object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The change of one workload; nothing in it when it is wired already.

    Attributes:
        workload: Its adapter.
        root: The object as it was.
        containers: Each container that has to be changed.
        managed_by: What puts the manifest there and would take a change of the object back
            (`Helm release chat`), "" when nothing tells.
    """

    workload: Workload
    root: Object
    containers: tuple[Wired, ...]
    managed_by: str = ""

    @property
    def operations(self) -> list[Object]:
        """The whole JSON patch."""
        return [operation for wired in self.containers for operation in wired.operations]

    def seed(self) -> list[Object]:
        """Operations that put the setting which was taken out into the annotation.

        For the object in the cluster alone: in a manifest that is applied again and again it would
        set Specpilot's own changes back each time.
        """
        changes = Changes(self.root)
        for wired in self.containers:
            if wired.setting:
                path = annotation_path(wired.template, CONFIG_ANNOTATION)
                changes.to(path, wired.setting)
        return changes.operations


def plan(root: Object, *, container: str = "", version: str = "") -> Plan:
    """Work out the change.

    Args:
        root: The workload, as a manifest has it or as the API server gave it.
        container: The container that runs the engine; "" means the only one, or the one named vllm.
        version: The engine's version; "" takes the image's tag.

    Raises:
        WireError: This workload cannot take its speculation from the annotation.
    """
    metadata = root.get("metadata") or {}
    ref = TargetRef(
        kind=str(root.get("kind") or ""),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        container=container,
    )
    workload = WORKLOADS.get(ref.kind)
    if workload is None:
        raise WireError(problems.unsupported(ref, kinds=WORKLOADS).message)
    if workload.owner_channel is not None:
        raise WireError(
            f"{ref.kind} {ref.name} needs no wiring: settings are written into its own field"
        )
    owned = problems.owned(ref, root, kinds=WORKLOADS)
    if owned is not None:
        raise WireError(owned.message)
    if not workload.pod_templates(root):
        raise WireError(f"{ref.kind} {ref.name} has no pod template in the manifest")
    name = container_of(ref, workload, root)
    if name is None:
        raise WireError(problems.no_container(ref, workload, root).message)
    view = View(workload=workload, root=root, container=name)
    [_, engine] = view.engine()
    version = version or version_of_image(str(engine.get("image") or ""))
    found = []
    for index, (path, template) in enumerate(view.templates()):
        chosen = pick_container(template["spec"]["containers"], name)
        if chosen is None or (
            index and follower_fault(chosen, workload=view.words, version=version) is None
        ):
            continue
        wired = _wire(path, template, chosen, version=version, words=view.words)
        if wired is not None:
            found.append(wired)
    result = Plan(
        workload=workload, root=root, containers=tuple(found), managed_by=_managed_by(root)
    )
    _check(view, result, version=version)
    return result


def _wire(
    path: Path,
    template: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    version: str,
    words: str,
) -> Wired | None:
    name = str(container["name"])
    where = f'{words}, container "{name}"'
    before = {key: list(container.get(key) or ()) for key in ("command", "args")}
    if not any(before.values()):
        raise WireError(
            f"{where} has neither command nor args: what its image adds by itself cannot be seen. "
            f"Write args in the manifest, and wire it then"
        )
    line = read_line(container, version=version)
    try:
        without_speculation([*before["command"], *before["args"]])
        after = {key: without_speculation(words) for key, words in before.items()}
    except CommandLineError as error:
        raise WireError(
            f"{where}: {error}. In a script it can be written by hand: add the env entry "
            f"{VARIABLE} with the fieldPath {FIELD_PATH}, and to `vllm serve` in the script "
            f"{ARGUMENT.split('=', maxsplit=1)[0]}='$({VARIABLE})' in single quotes"
        ) from None
    after["args" if before["args"] else "command"].append(ARGUMENT)
    index = [c["name"] for c in template["spec"]["containers"]].index(name)
    at = (*path, "spec", "containers", index)
    operations = [*_env(at, container)]
    for key, wanted in after.items():
        operations += _list((*at, key), before[key], wanted)
    if not operations:
        return None
    removed = [w for key in before for w in _missing(before[key], after[key])]
    return Wired(
        template=path,
        name=name,
        lists={key: wanted for key, wanted in after.items() if wanted != before[key]},
        removed=tuple(w for w in removed if w != ARGUMENT),
        setting="" if line.wired or line.problem else line.config,
        operations=tuple(operations),
    )


def _env(at: Path, container: Mapping[str, Any]) -> list[Object]:
    entries = list(container.get("env") or ())
    if ENTRY in entries:
        return []
    if not entries:
        return [{"op": "add", "path": pointer((*at, "env")), "value": [dict(ENTRY)]}]
    same = next((i for i, entry in enumerate(entries) if entry.get("name") == VARIABLE), None)
    if same is None:
        return [{"op": "add", "path": pointer((*at, "env", "-")), "value": dict(ENTRY)}]
    where = pointer((*at, "env", same))
    return [
        {"op": "test", "path": where, "value": entries[same]},
        {"op": "replace", "path": where, "value": dict(ENTRY)},
    ]


def _list(path: Path, before: list[str], after: list[str]) -> list[Object]:
    if before == after:
        return []
    if after[:-1] == before:
        return [{"op": "add", "path": pointer((*path, "-")), "value": after[-1]}]
    if not after:
        return [
            {"op": "test", "path": pointer(path), "value": before},
            {"op": "remove", "path": pointer(path)},
        ]
    return [
        {"op": "test", "path": pointer(path), "value": before},
        {"op": "replace", "path": pointer(path), "value": after},
    ]


def _missing(before: list[str], after: list[str]) -> list[str]:
    """What is in one list and not in the other, in order, of lists whose rest is in order."""
    rest = list(after)
    found = []
    for word in before:
        if rest and rest[0] == word:
            rest.pop(0)
        else:
            found.append(word)
    return found


def _check(view: View, made: Plan, *, version: str) -> None:
    """Look at the outcome as it is looked at before each flip."""
    root = copy.deepcopy(made.root)
    for wired in made.containers:
        for container in dig(root, (*wired.template, "spec", "containers")):
            if container["name"] == wired.name:
                container.update(wired.lists)
                kept = [e for e in container.get("env") or () if e.get("name") != VARIABLE]
                container["env"] = [*kept, dict(ENTRY)]
    problem = _CHANNEL.problem(
        View(workload=view.workload, root=root, container=view.container, version=version)
    )
    if problem is not None:
        raise WireError(problem.message)


def _managed_by(root: Object) -> str:
    found = keeper(root, field_manager=FIELD_MANAGER)
    return "" if found is None else f"the {found.tool} {found.name}"
