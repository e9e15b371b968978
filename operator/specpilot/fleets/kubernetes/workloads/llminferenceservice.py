"""KServe LLMInferenceService: `VLLM_ADDITIONAL_ARGS` of the container `main`, or its own args.

What is easy to get wrong:

- The presets start the engine by `eval "exec vllm serve ... ${VLLM_ADDITIONAL_ARGS} $@"`: the shell
  takes the text apart a second time, so JSON goes into literal single quotes.
- `args` of the container come after the variable and win; and without a `command` beside them they
  take the place of a preset's. So they are used only where the object has the whole command itself.
- The pod spec is compared for equality: anything written into the Deployment is undone.
- The strategy of its Deployment cannot be set. It is 25 % / 25 %, with which one replica on the
  last GPU waits for a second one for ever: that is said before it starts.
- `spec.prefill` is a second workload whose handshake depends on the method, `spec.worker` makes
  groups over several nodes, `spec.speculator` sets speculation itself: all three are refused.

Written from KServe's source, and tested with a Deployment made as its controller makes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from specpilot.domain.settings import JsonValue
from specpilot.engines import arguments, without_speculation
from specpilot.fleets.kubernetes.channels import quoted
from specpilot.fleets.kubernetes.channels.base import View
from specpilot.fleets.kubernetes.channels.owner import (
    ListChannel,
    OwnerChannel,
    config_of_words,
    or_absent,
    unfit_list,
)
from specpilot.fleets.kubernetes.request import Object, Resource
from specpilot.fleets.kubernetes.wiring import argv, literal_env
from specpilot.fleets.kubernetes.workloads.base import Family, Path, dig
from specpilot.fleets.kubernetes.workloads.owned import OwnedWorkload

LLM_INFERENCE_SERVICES = Resource(
    group="serving.kserve.io",
    version="v1alpha1",
    plural="llminferenceservices",
    kind="LLMInferenceService",
)
CONTAINER = "main"
ADDITIONAL = "VLLM_ADDITIONAL_ARGS"

_CONTAINERS: Path = ("spec", "template", "containers")
_COMPONENT = "kserve.io/component"

_REFUSED = {
    "worker": (
        "spans several nodes (spec.worker); leader and workers would have to change together, "
        "which is not supported"
    ),
    "prefill": (
        "has a prefill workload (spec.prefill); the handshake of KV transfer depends on the "
        "method, and no roll changes both sides at one moment"
    ),
    "speculator": "sets speculation by spec.speculator; take that out to have it steered",
}


def _main(root: Object) -> Path | None:
    for index, container in enumerate(dig(root, _CONTAINERS) or ()):
        if container.get("name") == CONTAINER:
            return (*_CONTAINERS, index)
    return None


class _OwnArguments(ListChannel):
    """Args beside a command of the object's own."""

    why = "its container main has a command of its own"

    def place(self, root: Object) -> Path | None:
        main = _main(root)
        return None if main is None else (*main, "args")

    def no_place(self, root: Object) -> str:
        return f"has no container {CONTAINER}"


class _AdditionalArguments(OwnerChannel):
    """The variable's text, in the list of variables."""

    why = f"KServe writes the pods; {ADDITIONAL} is what its preset adds to the command"

    def unfit(self, view: View) -> str:
        main = dig(view.root, _main(view.root) or ()) or {}
        entry = _entry(main.get("env")) or {}
        if entry.get("valueFrom"):
            return f"takes {ADDITIONAL} from elsewhere (valueFrom); write its text as a value"
        try:
            words = [word.text for word in quoted.split(str(entry.get("value") or ""))]
        except ValueError as error:
            return f"{ADDITIONAL} is not understood: {error}"
        if without_speculation(main.get("args") or ()) != list(main.get("args") or ()):
            return (
                f"has speculation in the args of {CONTAINER}, which would win over {ADDITIONAL}; "
                f"move it there"
            )
        return unfit_list(words, version=view.version) or self._unread(view)

    @staticmethod
    def _unread(view: View) -> str:
        """Words when the pods have been started by a preset that does not read the variable."""
        engines = [
            engine
            for pod in view.pods
            for engine in pod["spec"].get("containers") or ()
            if engine.get("name") == view.container
        ]
        if not engines or any(_reads_additional(engine) for engine in engines):
            return ""
        return (
            f"its pods do not read {ADDITIONAL}: its preset (LLMInferenceServiceConfig) starts "
            f"vllm directly. Write command and args of container {CONTAINER} into spec.template, "
            f"and the args are used"
        )

    def values(self, view: View) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        main = _main(view.root)
        return {} if main is None else {(*main, "env"): dig(view.root, (*main, "env"))}

    def config_of(self, view: View, values: Mapping[Path, JsonValue]) -> str | None:
        """See `PatchChannel`."""
        try:
            words = [word.text for word in quoted.split(_text(values))]
        except ValueError:
            return None
        return config_of_words(words, version=view.version)

    def rest(self, view: View, values: Mapping[Path, JsonValue]) -> JsonValue:
        """See `PatchChannel`."""
        others = [e for e in _entries(values) if e.get("name") != ADDITIONAL]
        return [*others, quoted.without_flags(_text(values))]

    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        values = self.values(view)
        kept = quoted.without_flags(_text(values))
        text = quoted.with_flags(kept, arguments(config, version=view.version))
        # As in every value of a variable, the kubelet takes $(NAME) for another one.
        text = text if text == kept else text.replace("$(", "$$(")
        found = _with(_entries(values), text)
        return {path: or_absent(found, values[path]) for path in values}

    def line(self, engine: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `OwnerChannel`: what eval makes of the variable and of the script's arguments."""
        if not _reads_additional(engine):
            return engine
        line = argv(engine)
        script = next(i for i, word in enumerate(line) if ADDITIONAL in word)
        more = " ".join([literal_env(engine).get(ADDITIONAL, ""), *line[script + 2 :]])
        return {"command": ["sh", "-c", f"vllm serve {more}"]}


class MainContainer(OwnerChannel):
    """One of the two, by what the object has."""

    why = "KServe writes the pods; what it adds to the engine's command is in container main"

    _own = _OwnArguments()
    _additional = _AdditionalArguments()

    def _of(self, view: View) -> OwnerChannel:
        main = dig(view.root, _main(view.root) or ()) or {}
        return self._own if main.get("command") else self._additional

    def unfit(self, view: View) -> str:
        """See `OwnerChannel`."""
        if _main(view.root) is None:
            return (
                f"has no container {CONTAINER} in spec.template; add one, and KServe merges it "
                f"with its preset:\nspec:\n  template:\n    containers:\n"
                f"      - name: {CONTAINER}\n"
                f"        env:\n          - {{name: {ADDITIONAL}, value: ''}}"
            )
        return self._of(view).unfit(view)

    def values(self, view: View) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        return self._of(view).values(view)

    def config_of(self, view: View, values: Mapping[Path, JsonValue]) -> str | None:
        """See `PatchChannel`."""
        return self._of(view).config_of(view, values)

    def rest(self, view: View, values: Mapping[Path, JsonValue]) -> JsonValue:
        """See `PatchChannel`."""
        return self._of(view).rest(view, values)

    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        """See `PatchChannel`."""
        return self._of(view).values_for(view, config)

    def line(self, engine: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `OwnerChannel`."""
        return self._additional.line(engine)


class LLMInferenceServiceWorkload(OwnedWorkload):
    """See the module."""

    resource = LLM_INFERENCE_SERVICES
    container = CONTAINER
    or_without_surge = "; its strategy cannot be set"
    owner_channel = MainContainer()

    def unsuitable(self, root: Object) -> str:
        """See `Workload`."""
        spec = root.get("spec") or {}
        return next((words for key, words in _REFUSED.items() if spec.get(key)), "")

    def is_engine(self, root: Object, member: Object) -> bool:
        """See `OwnedWorkload`: its scheduler has a Deployment with a container main too."""
        metadata = member["metadata"]
        labelled = (metadata.get("labels") or {}).get(_COMPONENT)
        return labelled == "workload" or metadata["name"] == f"{root['metadata']['name']}-kserve"

    def desired(self, family: Family) -> int:
        """See `Workload`: an autoscaler writes in the Deployment, which KServe leaves alone."""
        engines = self.engines(family)
        found = dig(engines[0], ("spec", "replicas")) if len(engines) == 1 else None
        return self.replicas_wanted(family.root) if found is None else int(found)


def _reads_additional(engine: Mapping[str, Any]) -> bool:
    return any(ADDITIONAL in word and "eval" in word for word in argv(engine))


def _entries(values: Mapping[Path, JsonValue]) -> list[dict[str, Any]]:
    return [
        entry
        for value in values.values()
        for entry in (value if isinstance(value, list) else ())
        if isinstance(entry, dict)
    ]


def _entry(env: Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any] | None:
    return next((e for e in env or () if e.get("name") == ADDITIONAL), None)


def _text(values: Mapping[Path, JsonValue]) -> str:
    entry = _entry(_entries(values)) or {}
    return str(entry.get("value") or "")


def _with(entries: Sequence[dict[str, Any]], text: str) -> list[JsonValue]:
    """The variables with another text for ours; in its place, else at the end."""
    if _entry(entries) is None:
        return [*entries, {"name": ADDITIONAL, "value": text}] if text else [*entries]
    return [{**e, "value": text} if e.get("name") == ADDITIONAL else e for e in entries]
