"""Channel C: a field of the object that owns the pods (KServe, KubeAI, RayService ...).

Whoever owns the pods writes their templates, and would undo anything written there. So a setting is
written into the owner's own field, beside what the user has there, and what stood there before is
noted to the letter: no revision can be read back from an owner. What the pods then run is read from
the pods.
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from specpilot.domain.settings import UNRECOGNISED, Declared, JsonValue, canonical_json
from specpilot.domain.targets import Channel as ChannelName
from specpilot.domain.targets import Problem, TargetProblem
from specpilot.engines import CommandLineError, arguments, without_speculation
from specpilot.fleets.kubernetes.channels.base import View
from specpilot.fleets.kubernetes.channels.patching import NO_VERSION, PatchChannel, as_argument
from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.wiring import ANNOTATIONS, argv, read_line, running
from specpilot.fleets.kubernetes.workloads.base import Path, dig


class OwnerChannel(PatchChannel):
    """A setting in a field of the owner.

    Attributes:
        why: Why this field, in words for the status.
    """

    name = ChannelName.OWNER
    keeps_values = True
    reaches_pods = False

    def home(self, view: View) -> Path:
        """See `PatchChannel`."""
        return ("metadata", "annotations")

    @abstractmethod
    def unfit(self, view: View) -> str:
        """Why the field cannot be written, in words with the next step; "" when it can."""

    def problem(self, view: View) -> Problem | None:
        """See `Channel`."""
        unknown = NO_VERSION if self.needs_version and not view.version else ""
        message = self.unfit(view) or unknown or self._elsewhere(view)
        if not message:
            return None
        return Problem(
            reason=TargetProblem.CHANNEL_DOES_NOT_FIT, message=f"{view.words}: {message}"
        )

    def edits(self, view: View) -> str:
        """See `Channel`: the whole spec without the setting, the hold and what scales."""
        spec: Object = json.loads(json.dumps({"spec": view.root.get("spec") or {}}))
        values = self.values(view)
        try:
            rest = self.rest(view, values)
        except ValueError:
            rest = None  # then the values count as they stand
        else:
            for path in values:
                _drop(spec, path)
        for path in (view.workload.hold_field, view.workload.replicas_at(view.root)):
            _drop(spec, path)
        for key in ANNOTATIONS:
            _drop(spec, (*self.home(view), key))
        text = canonical_json([_without_empty(spec), rest])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def line(self, engine: Mapping[str, Any]) -> Mapping[str, Any]:
        """A pod's container as its command line is to be read."""
        return engine

    def runs(self, view: View, pod: Object, engine: Mapping[str, Any]) -> Declared:
        """See `Channel`."""
        container = self.line(engine)
        if read_line(container, version=view.version).problem:
            return Declared(setting=UNRECOGNISED)
        return running(pod["metadata"], container, version=view.version, claims=self.claims(view))

    def _elsewhere(self, view: View) -> str:
        """Words about what the pods run that this object does not say."""
        engines = [
            (pod, engine)
            for pod in view.pods
            if not pod["metadata"].get("deletionTimestamp")
            for engine in pod["spec"].get("containers") or ()
            if engine.get("name") == view.container
        ]
        lines = [read_line(self.line(engine), version=view.version) for _, engine in engines]
        unread = next((line.problem for line in lines if line.problem), "")
        if unread:
            return f"what its pods run cannot be read, so no change could be verified: {unread}"
        if self.config_of(view, self.values(view)) != "" or self.present(view).annotations:
            return ""
        found = {self.runs(view, pod, engine).config for pod, engine in engines}
        if not found or "" in found:
            return ""
        return (
            f"its pods run {', '.join(sorted(found))}, which does not come from this object but "
            f"from a runtime, a preset or another default, and could not be switched off here; "
            f"take it out there"
        )


class ListChannel(OwnerChannel):
    """A list of the engine's arguments, to which the owner adds its own.

    Such a list ends up after the owner's arguments, and the last flag wins.
    """

    @abstractmethod
    def place(self, root: Object) -> Path | None:
        """Where the list is or would be; None when the object has no place for it."""

    @abstractmethod
    def no_place(self, root: Object) -> str:
        """What the user does where there is no place."""

    def unfit(self, view: View) -> str:
        """See `OwnerChannel`."""
        place = self.place(view.root)
        if place is None:
            return self.no_place(view.root)
        try:
            # The command beside the list may be a shell, and its script in the list.
            without_speculation(argv(dig(view.root, place[:-1]) or {}))
        except CommandLineError as error:
            return str(error)
        return unfit_list(self._words(self.values(view)), version=view.version)

    def values(self, view: View) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        place = self.place(view.root)
        return {} if place is None else {place: dig(view.root, place)}

    def config_of(self, view: View, values: Mapping[Path, JsonValue]) -> str | None:
        """See `PatchChannel`."""
        return config_of_words(self._words(values), version=view.version)

    def rest(self, view: View, values: Mapping[Path, JsonValue]) -> JsonValue:
        """See `PatchChannel`."""
        return list(without_speculation(self._words(values)))

    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        values = self.values(view)
        kept = without_speculation(self._words(values))
        added = [as_argument(word) for word in arguments(config, version=view.version)]
        words: list[JsonValue] = [*kept, *added]
        return {path: or_absent(words, values[path]) for path in values}

    @staticmethod
    def _words(values: Mapping[Path, JsonValue]) -> list[str]:
        return [
            str(word)
            for value in values.values()
            for word in (value if isinstance(value, list) else ())
        ]


def config_of_words(words: Sequence[str], *, version: str) -> str | None:
    """The speculative config that arguments after `vllm serve` say; None when not understood."""
    line = read_line({"command": ["vllm", "serve"], "args": list(words)}, version=version)
    return None if line.problem else line.config


def unfit_list(words: Sequence[str], *, version: str) -> str:
    """Why no setting can be put among such arguments, "" when one can."""
    line = read_line({"command": ["vllm", "serve"], "args": list(words)}, version=version)
    if line.problem:
        return line.problem
    try:
        rest = without_speculation(words)
    except CommandLineError as error:
        return str(error)
    left = read_line({"command": ["vllm", "serve"], "args": rest}, version=version)
    return left.problem


def or_absent(items: list[JsonValue], present: JsonValue) -> JsonValue:
    """The list; None when it is empty and nothing stands there, so that nothing is made."""
    return None if not items and present is None else items


def _drop(obj: Any, path: Path) -> None:
    """Take a field out of an object, where it is."""
    parent = dig(obj, path[:-1]) if len(path) > 1 else None
    if isinstance(parent, dict):
        parent.pop(path[-1], None)


def _without_empty(value: Any) -> Any:
    """The value without empty parts: a map that we emptied is no edit of the user's."""
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    return value
