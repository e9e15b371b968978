"""The one-time change for the annotation channel: what it is, and where there is none."""

import copy
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.domain.settings import Declared
from specpilot.fleets.kubernetes.wire import ENTRY, WireError, plan
from specpilot.fleets.kubernetes.wiring import ARGUMENT, VARIABLE, annotations, running
from tests.unit.fleets_kubernetes.fakes import Object, deployment, engine, owner

NGRAM = '{"method":"ngram","num_speculative_tokens":4}'


def bare(*args: str, **changes: Any) -> Object:
    """An engine that knows nothing of Specpilot."""
    return engine(args=["serve", "m", *args], env=[], **changes)


def patched(root: Object, operations: list[Object]) -> Object:
    """Apply a JSON patch; what is needed of RFC 6902 here."""
    root = copy.deepcopy(root)
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        node: Any = root
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node[part]
        key: Any = int(last) if isinstance(node, list) and last != "-" else last
        match operation["op"]:
            case "test":
                assert node[key] == operation["value"]
            case "remove":
                del node[key]
            case "add" if key == "-":
                node.append(operation["value"])
            case "add" | "replace":
                node[key] = operation["value"]
    return root


@dataclass(frozen=True)
class Case:
    reason: str
    container: Object
    args: list[str]
    removed: tuple[str, ...] = ()
    setting: str = ""
    env: list[Object] = field(default_factory=lambda: [dict(ENTRY)])


OTHER = {"name": "HF_TOKEN", "value": "x"}
CASES = [
    Case("nothing there yet", bare(), ["serve", "m", ARGUMENT]),
    Case(
        "other variables stay",
        {**bare(), "env": [OTHER]},
        ["serve", "m", ARGUMENT],
        env=[OTHER, dict(ENTRY)],
    ),
    Case(
        "a variable of the name that reads something else",
        {**bare(), "env": [{"name": VARIABLE, "value": ""}]},
        ["serve", "m", ARGUMENT],
    ),
    Case(
        "a literal setting would win",
        bare("--speculative-config", NGRAM, "--seed=1"),
        ["serve", "m", "--seed=1", ARGUMENT],
        removed=("--speculative-config", NGRAM),
        setting=NGRAM,
    ),
    Case(
        "shadowed although wired",
        bare(ARGUMENT, f"--speculative-config={NGRAM}"),
        ["serve", "m", ARGUMENT],
        removed=(f"--speculative-config={NGRAM}",),
        setting="",
    ),
    Case(
        "aliases",
        bare("--spec-method", "ngram", "--spec-tokens=4"),
        ["serve", "m", ARGUMENT],
        removed=("--spec-method", "ngram", "--spec-tokens=4"),
        setting=NGRAM,
    ),
    Case(
        "a config file loses against the command line",
        bare("--config", "/etc/vllm.yaml"),
        ["serve", "m", "--config", "/etc/vllm.yaml", ARGUMENT],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_wiring(case: Case) -> None:
    root = deployment(case.container)
    made = plan(root)
    [wired] = made.containers
    after = patched(root, made.operations)
    [container] = after["spec"]["template"]["spec"]["containers"]
    assert container["args"] == case.args
    assert container["env"] == case.env
    if case.reason != "shadowed although wired":
        assert wired.removed == case.removed
        assert wired.setting == case.setting
    assert plan(after).containers == (), "wired once, there is nothing left to do"
    wanted = Declared(setting="ngram", config=NGRAM, change_id="c")
    assert running({"annotations": annotations(wanted)}, container) == wanted


def test_everything_in_command() -> None:
    root = deployment(engine(command=["vllm", "serve", "m"], args=[], env=[]))
    made = plan(root)
    [container] = patched(root, made.operations)["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["vllm", "serve", "m", ARGUMENT]


def test_what_was_set_runs_on_from_the_annotation() -> None:
    root = deployment(bare(f"--speculative-config={NGRAM}"))
    made = plan(root)
    after = patched(root, [*made.operations, *made.seed()])
    template = after["spec"]["template"]
    [container] = template["spec"]["containers"]
    assert running(template["metadata"], container).config == NGRAM


@dataclass(frozen=True)
class Refused:
    reason: str
    root: Object
    said: str
    version: str = ""


REFUSED = [
    Refused(
        "a script",
        deployment(engine(command=["sh", "-c", "vllm serve m"], args=[], env=[])),
        "in single quotes",
    ),
    Refused(
        "an old engine",
        deployment(bare(image="vllm/vllm-openai:v0.9.2")),
        "does not start with an empty --speculative-config",
    ),
    Refused("an old engine by word", deployment(bare(image="a/b:1")), "run 0.10.1", "0.8.1"),
    Refused(
        "owned",
        deployment(bare(), metadata={"ownerReferences": [owner("InferenceService", "llama", "u")]}),
        "managed by InferenceService llama",
    ),
    Refused(
        "nothing to add to",
        deployment({"name": "vllm", "image": "vllm/vllm-openai:v0.32.0"}),
        "has neither command nor args",
    ),
    Refused("another kind", {"kind": "DaemonSet", "metadata": {"name": "x"}}, "DaemonSet"),
    Refused(
        "several containers",
        deployment(bare(name="a"), bare(name="b")),
        "set target.container to one of: a, b",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.reason)
def test_refused(case: Refused) -> None:
    with pytest.raises(WireError) as caught:
        plan(case.root, version=case.version)
    assert case.said in str(caught.value)


def test_a_group_is_wired_as_a_whole() -> None:
    container = bare("--nnodes=2")
    worker = bare("--nnodes=2", "--headless")
    template = {"metadata": {}, "spec": {"containers": [container]}}
    root = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "chat", "namespace": "serving"},
        "spec": {
            "leaderWorkerTemplate": {
                "leaderTemplate": template,
                "workerTemplate": {"metadata": {}, "spec": {"containers": [worker]}},
            }
        },
    }
    made = plan(root)
    assert [w.template[-1] for w in made.containers] == ["leaderTemplate", "workerTemplate"]
    assert plan(patched(root, made.operations)).containers == ()


def test_commands(tmp_path: Any) -> None:
    """Each format carries the same change, offline."""
    path = tmp_path / "chat.yaml"
    root = deployment(
        bare(f"--speculative-config={NGRAM}"),
        metadata={"annotations": {"meta.helm.sh/release-name": "chat"}},
    )
    path.write_text(yaml.safe_dump_all([{"kind": "Service", "metadata": {"name": "s"}}, root]))
    run = CliRunner().invoke
    done = run(app, ["wire", "deploy/chat", "-f", str(path), "-o", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["removed"] == [f"--speculative-config={NGRAM}"]
    assert found["setting"] == NGRAM
    assert found["managedBy"] == "the Helm release chat"
    assert not found["wired"]
    [after] = patched(root, found["operations"])["spec"]["template"]["spec"]["containers"]

    strategic = yaml.safe_load(run(app, ["wire", "-f", str(path)]).stdout)
    [container] = strategic["spec"]["template"]["spec"]["containers"]
    assert container["args"] == after["args"]
    [kustomize] = yaml.safe_load(run(app, ["wire", "-f", str(path), "-o", "kustomize"]).stdout)[
        "patches"
    ]
    assert yaml.safe_load(kustomize["patch"]) == found["operations"]
    assert kustomize["target"]["kind"] == "Deployment"
    helm = yaml.safe_load(run(app, ["wire", "-f", str(path), "-o", "helm"]).stdout)
    assert helm["vllm"]["args"] == after["args"]


@pytest.mark.parametrize(
    ("words", "said", "reason"),
    [
        (
            ["wire", "pod/x"],
            "write KIND/NAME, such as deployment/chat",
            "not steered",
        ),
        (["wire", "chat"], "write KIND/NAME", "no kind"),
        (["wire", "-f", "-", "--apply"], "leave -f out", "a file cannot be applied"),
    ],
)
def test_what_the_command_refuses(words: list[str], said: str, reason: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2, reason
    assert said in " ".join(done.output.replace("│", " ").split()), reason
