"""The command line on the embedded store: what a user types and reads."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.resources import ResourceError

EXAMPLE = Path(__file__).parents[3] / "examples" / "local.yaml"


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    def __init__(self, state: Path) -> None:
        self.state = state
        self._runner = CliRunner()

    def __call__(self, *words: str, ok: bool = True, stdin: str = "") -> str:
        result = self._runner.invoke(
            app, list(words), input=stdin, env={"SPECPILOT_STATE": str(self.state)}
        )
        if isinstance(result.exception, ResourceError):
            assert not ok
            return str(result.exception)
        assert (result.exit_code == 0) is ok, result.output
        return result.output


def test_apply_then_get_then_delete(run: Run) -> None:
    said = run("apply", "-f", str(EXAMPLE))
    assert "speculationpolicy/chat created" in said
    assert "unchanged" in run("apply", "-f", str(EXAMPLE))
    assert "chat" in run("get", "specpol")
    (policy,) = json.loads(run("get", "specpol", "-o", "json"))
    assert policy["spec"]["target"] == {"kind": "Local", "name": "chat"}
    assert "deleted" in run("delete", "specpol", "chat")
    assert "no SpeculationPolicy yet" in run("get", "policies")


def test_one_bad_document_and_nothing_is_applied(run: Run) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("batch_size < 2", "batchsize < 2")
    said = run("apply", "-f", "-", stdin=text, ok=False)
    assert "did you mean batch_size" in said
    assert "no SpeculationPolicy yet" in run("get", "specpol")


def test_every_applied_resource_is_in_the_audit_log_and_the_chain_holds(run: Run) -> None:
    run("apply", "-f", str(EXAMPLE))
    records = [json.loads(line) for line in run("audit", "list", "--json").splitlines()]
    assert [r["action"] for r in records] == [
        "LocalFleetCreated",
        "RuleSetCreated",
        "SpeculationPolicyCreated",
        "AlertChannelCreated",
    ]
    assert "the chain holds: 4 records" in run("audit", "verify")


def test_explain_says_when_nothing_was_evaluated_yet(run: Run) -> None:
    run("apply", "-f", str(EXAMPLE))
    assert "is `specpilot local` running?" in run("explain", "chat")


@pytest.mark.parametrize(
    ("words", "says", "reason"),
    [
        (("get", "specpols"), "no such kind", "a kind that is none lists the kinds"),
        (("explain", "nobody"), "there is none", "a name that is none lists the names"),
        (("approve", "nothing"), "there is no flag change nothing", "approving what is not there"),
        (("local",), "begin with", "starting with nothing applied says how to begin"),
    ],
)
def test_mistakes_get_a_remedy(run: Run, words: tuple[str, ...], says: str, reason: str) -> None:
    said = run(*words, ok=False)
    assert says in " ".join(said.replace("│", " ").split()), f"{reason}: {said}"


def test_a_fleet_named_on_the_command_line_is_checked_like_a_file(run: Run) -> None:
    said = run("local", "--name", "chat", "--replicas", "0", "--", "vllm", "serve", "m", ok=False)
    assert "spec.replicas" in said
    assert "no LocalFleet yet" in run("get", "localfleets")
