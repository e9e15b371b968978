"""How settings travel: into arguments, and into the field of an owner that nobody has met."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.domain.ports import FleetError
from specpilot.domain.settings import Declared, JsonValue, canonical_json
from specpilot.domain.targets import Channel as ChannelName
from specpilot.domain.targets import Problem, TargetProblem, TargetRef, TargetState
from specpilot.engines import arguments, parse, without_speculation
from specpilot.fleets.kubernetes import KubernetesFleet
from specpilot.fleets.kubernetes.changes import Changes, pointer
from specpilot.fleets.kubernetes.channels.arguments import ArgumentsChannel
from specpilot.fleets.kubernetes.channels.base import View
from specpilot.fleets.kubernetes.channels.patching import PatchChannel
from specpilot.fleets.kubernetes.objects import user_template
from specpilot.fleets.kubernetes.request import Resource
from specpilot.fleets.kubernetes.wiring import (
    CHANGE_ANNOTATION,
    PREVIOUS_ANNOTATION,
    annotations,
    running,
)
from specpilot.fleets.kubernetes.workloads import WORKLOADS
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Look, Path, Workload, dig
from tests.unit.fleets_kubernetes.fakes import Object, deployment, engine, owner, pod, serve
from tests.unit.fleets_kubernetes.test_wire import patched

JSON = '{"method":"ngram","num_speculative_tokens":4}'
NGRAM = Declared(setting="ngram", config=JSON, change_id="c-1")
OFF = Declared(setting="off", change_id="c-2")
ARGS = ArgumentsChannel()


def view(container: Object, *, version: str = "0.32.0") -> View:
    return View(
        workload=WORKLOADS["Deployment"],
        root=deployment(container),
        container="vllm",
        version=version,
    )


def plain(*args: str, **changes: Any) -> Object:
    return engine(args=["serve", "m", *args], env=[], **changes)


# --- arguments


@dataclass(frozen=True)
class Unfit:
    reason: str
    container: Object
    said: str
    version: str = "0.32.0"


UNFIT = [
    Unfit("the version is not known", plain(), "version is not known", ""),
    Unfit("nothing to patch", engine(args=[], env=[]), "neither command nor args"),
    Unfit("wired already", engine(), "leave rollout.channel out"),
    Unfit(
        "a script",
        engine(command=["sh", "-c", "vllm serve m"], args=[], env=[]),
        "started by a shell script",
    ),
    Unfit(
        "a file that may say more",
        plain("--config", "/etc/x.yaml"),
        "--config /etc/x.yaml may set speculation",
    ),
    Unfit(
        "what no version reads",
        plain("--speculative-config={broken"),
        "is not JSON",
    ),
]


@pytest.mark.parametrize("case", UNFIT, ids=lambda case: case.reason)
def test_arguments_that_cannot_be_patched(case: Unfit) -> None:
    problem = ARGS.problem(view(case.container, version=case.version))
    assert problem is not None
    assert problem.reason is TargetProblem.CHANNEL_DOES_NOT_FIT
    assert 'Deployment serving/chat, container "vllm"' in problem.message
    assert case.said in problem.message


@pytest.mark.parametrize(
    ("container", "reason"),
    [
        (plain(), "nothing there yet"),
        (plain("--seed=1", f"--speculative-config={JSON}"), "a setting of the user's own"),
        (engine(command=["vllm", "serve", "m"], args=[], env=[]), "everything in command"),
        (
            engine(command=["vllm", "serve", "m", "-sc", JSON], args=["--seed=1"], env=[]),
            "a setting in the other list",
        ),
    ],
)
@pytest.mark.parametrize("wanted", [NGRAM, OFF, Declared()])
def test_what_is_written_is_read_back(container: Object, reason: str, wanted: Declared) -> None:
    before = view(container)
    assert ARGS.problem(before) is None
    letters = ARGS.letters(before, Family(root=before.root), wanted)
    request = ARGS.request(before, letters, hold=None, manager="specpilot")
    body: Any = request.body if request is not None else []
    root = {**before.root}
    after = View(
        workload=before.workload,
        root=patched(root, list(body)),
        container="vllm",
        version=before.version,
    )
    assert ARGS.declared(after) == wanted, reason
    assert ARGS.edits(after) == ARGS.edits(before), "what is the user's is as it was"
    _, found = after.engine()
    line = [*found.get("command", []), *found.get("args", [])]
    _, given_ = before.engine()
    own = [*given_.get("command", []), *given_.get("args", [])]
    assert without_speculation(line) == without_speculation(own)
    assert ARGS.request(after, ARGS.present(after), hold=None, manager="specpilot") is None


@given(text=st.text(alphabet="$()ab", max_size=8))
def test_a_dollar_in_a_value_is_no_variable(text: str) -> None:
    """The kubelet expands $(NAME) in arguments and takes $$ for a dollar."""
    config = canonical_json({"method": "draft_model", "model": text, "num_speculative_tokens": 2})
    before = view(plain())
    letters = ARGS.letters(
        before, Family(root=before.root), Declared(setting="x", config=config, change_id="c")
    )
    [words] = [v for path, v in letters.values.items() if path[-1] == "args"]
    assert isinstance(words, list)
    assert parse([str(w) for w in words], version="0.32.0", env={"a": "no"}).config == config


@pytest.mark.parametrize(
    ("version", "config", "said"),
    [
        ("", JSON, "version is not known just now"),
        ("0.8.1", '{"method":"suffix","suffix_decoding_max_tree_depth":3}', "has no flag for"),
    ],
)
def test_no_arguments_of_another_version_are_written(version: str, config: str, said: str) -> None:
    before = view(plain(), version=version)
    wanted = Declared(setting="x", config=config, change_id="c")
    with pytest.raises(FleetError, match=said):
        ARGS.letters(before, Family(root=before.root), wanted)


def test_the_claim_of_an_annotation_holds_only_as_long_as_the_arguments_say_it() -> None:
    noted = {"annotations": annotations(NGRAM)}
    assert running(noted, plain(f"--speculative-config={JSON}")) == NGRAM
    assert running(noted, plain()) == Declared()
    root = deployment(plain(), annotations=annotations(NGRAM))
    seen = View(workload=WORKLOADS["Deployment"], root=root, container="vllm", version="0.32.0")
    assert ARGS.taken_over(seen, manager="specpilot")
    tidy = ARGS.tidied(seen, ARGS.present(seen))
    assert tidy.annotations == {}


# --- patches


def test_a_map_is_made_only_where_nobody_has_made_one_meanwhile() -> None:
    root = {"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"a": 1}}
    made = Changes(root)
    made.to(("spec", "b", "c~/d"), "x")
    made.to(("spec", "b", "e"), "y")
    made.to(("spec", "a"), 2)
    assert made.tests()[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert [o["path"] for o in made.operations] == [
        "/spec/b",
        "/spec/b/c~0~1d",
        "/spec/b/e",
        "/spec/a",
    ]
    after = patched(root, [*made.tests(), *made.operations])
    assert after["spec"] == {"a": 2, "b": {"c~/d": "x", "e": "y"}}
    unmade = Changes(after)
    unmade.to(("spec", "b", "e"), None)
    unmade.to(("spec", "missing", "too"), None)
    assert unmade.tests()[0]["path"] == "/metadata/uid"
    assert patched(after, [*unmade.tests(), *unmade.operations])["spec"]["b"] == {"c~/d": "x"}


@given(path=st.lists(st.text(alphabet="~/ab01", min_size=1, max_size=4), min_size=1, max_size=3))
def test_pointers_are_read_back(path: list[str]) -> None:
    parts = pointer(tuple(path)).split("/")[1:]
    assert [p.replace("~1", "/").replace("~0", "~") for p in parts] == path


# --- an owner's field, by an adapter as a reader would write it


class ModelArgs(PatchChannel):
    """`spec.args` of a Model, whose annotations do not reach its pods."""

    name = ChannelName.OWNER
    why = "the Model's own args are passed on to its pods"
    reaches_pods = False

    def problem(self, view: View) -> Problem | None:
        return None

    def home(self, view: View) -> Path:
        return ("metadata", "annotations")

    def values(self, view: View) -> dict[Path, JsonValue]:
        return {("spec", "args"): dig(view.root, ("spec", "args"))}

    def config_of(self, view: View, values: Mapping[Path, JsonValue]) -> str | None:
        [words] = values.values()
        line = parse([str(w) for w in words] if isinstance(words, list) else [])
        return None if line.problem else line.config

    def values_for(self, view: View, config: str) -> dict[Path, JsonValue]:
        kept = without_speculation(dig(view.root, ("spec", "args")) or [])
        return {("spec", "args"): [*kept, *arguments(config, version=view.version)]}

    def edits(self, view: View) -> str:
        kept = without_speculation(dig(view.root, ("spec", "args")) or [])
        return user_template({"spec": {**view.root["spec"], "args": kept}})


class ModelWorkload(Workload):
    resource = Resource(group="kubeai.org", version="v1", plural="models", kind="Model")
    templates = ()
    container = "server"
    hold_field = ("spec", "paused")
    owner_channel = ModelArgs()

    def how_to_release(self, root: Object) -> str:
        return "unpause it"

    def rolling(self, family: Family) -> str:
        return ""

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        return True

    def hold(self, root: Object, look: Look, *, canaries: int) -> JsonValue:
        return True


def model(*args: str, noted: Mapping[str, str]) -> Object:
    return {
        "kind": "Model",
        "metadata": {
            "name": "chat",
            "namespace": "serving",
            "uid": "m-1",
            "resourceVersion": "1",
            "annotations": dict(noted),
        },
        "spec": {"replicas": 2, "args": list(args)},
    }


def of_model(name: str, *args: str) -> Object:
    return pod(
        name,
        container={"name": "server", "image": "vllm/vllm-openai:v0.32.0", "args": list(args)},
        metadata={"ownerReferences": [owner("Model", "chat", "m-1")]},
    )


@dataclass(frozen=True)
class Held:
    found: Family

    def family(self, workload: Workload, namespace: str, name: str) -> Family:
        del workload, namespace, name
        return self.found

    def pods_everywhere(self) -> None:
        return None


def observe(root: Object, *pods: Object) -> TargetState:
    with serve(lambda _, reply: reply.failure(500, "", "not to be asked")) as server:
        fleet = KubernetesFleet(
            server.api(),
            source=Held(Family(root=root, pods=pods)),
            workloads={"Model": ModelWorkload()},
        )
        return fleet.observe(TargetRef(kind="Model", namespace="serving", name="chat"))


def test_pods_that_carry_no_annotations_are_named_by_what_the_owner_claims() -> None:
    workload = ModelWorkload()
    before = model("--seed=1", noted=annotations(OFF))
    seen = View(workload=workload, root=before, container="server", version="0.32.0")
    letters = ModelArgs().letters(seen, Family(root=before), NGRAM)
    assert set(letters.annotations) >= {CHANGE_ANNOTATION, PREVIOUS_ANNOTATION}
    request = ModelArgs().request(seen, letters, hold=None, manager="specpilot")
    assert request is not None
    assert request.path == "/apis/kubeai.org/v1/namespaces/serving/models/chat"
    body: Any = request.body
    after = patched(before, list(body))
    assert after["spec"]["args"] == ["--seed=1", f"--speculative-config={JSON}"]

    state = observe(
        after,
        of_model("new", "--seed=1", f"--speculative-config={JSON}"),
        of_model("old", "--seed=1"),
    )
    assert state.problem is None
    assert state.declared == NGRAM
    assert state.engine_version == "0.32.0"
    assert [r.id for r in state.arm(NGRAM)] == ["new"]
    assert [r.id for r in state.arm(OFF)] == ["old"], "what was before is known by name too"
    assert state.channel.startswith("Owner: ")


def test_the_owners_other_arguments_are_its_users() -> None:
    one = observe(model("--seed=1", noted={}))
    assert observe(model("--seed=1", f"--speculative-config={JSON}", noted={})).user_template == (
        one.user_template
    )
    assert observe(model("--seed=2", noted={})).user_template != one.user_template
