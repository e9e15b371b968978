"""The command line on the embedded store: what a user types and reads."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.resources import ResourceError
from specpilot.store import Store

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
        (("get", "specpolls"), "no such kind", "a kind that is none lists the kinds"),
        (("explain", "nobody"), "there is chat", "a name that is none lists the names"),
        (("approve", "nothing"), "there is no flag change nothing", "approving what is not there"),
        (("local",), "begin with", "starting with nothing applied says how to begin"),
    ],
)
def test_mistakes_get_a_remedy(run: Run, words: tuple[str, ...], says: str, reason: str) -> None:
    if words[0] != "local":
        run("apply", "-f", str(EXAMPLE))
    said = run(*words, ok=False)
    assert says in " ".join(said.replace("│", " ").split()), f"{reason}: {said}"


def test_a_fleet_named_on_the_command_line_is_checked_like_a_file(run: Run) -> None:
    said = run("local", "--name", "chat", "--replicas", "0", "--", "vllm", "serve", "m", ok=False)
    assert "spec.replicas" in said
    assert "no LocalFleet yet" in run("get", "localfleets")


HEAD = "apiVersion: specpilot.io/v1alpha1\nkind: RuleSet\nmetadata: {name: r}\n"
RULE = "  rules: [{name: a, when: batch_size > 1, setting: 'off'}]\n"


@pytest.mark.parametrize(
    ("text", "says", "reason"),
    [
        (b"", "no document", "an empty file is no success"),
        (b"# nothing\n---\n", "no document", "nor is one with comments only"),
        (b"caf\xe9: 1", "not UTF-8", "another encoding"),
        (b"[" * 3000, "nested too deeply", "nesting without end"),
        (HEAD.encode() + b"spec:\n  parameters: {x: .nan}\n" + RULE.encode(), "finite", "NaN"),
        (HEAD.replace("r}", "r, labels: [a]}").encode() + b"spec:\n" + RULE.encode(),
         "metadata.labels", "labels that are a list"),
        (HEAD.replace("r}", "../../x}").encode() + b"spec:\n" + RULE.encode(),
         "metadata.name", "a name that is a path"),
        (HEAD.encode() + b"spec:\n"
         + RULE.replace("'off'}", "'off', for: 99999999999999h}").encode(),
         "longer than a year", "a duration beyond all bounds"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_applied_say_why(
    run: Run, tmp_path: Path, text: bytes, says: str, reason: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_bytes(text)
    assert says in run("apply", "-f", str(path), ok=False), reason
    assert "no RuleSet yet" in run("get", "rulesets"), reason


def test_names_of_what_is_not_there_are_warned_about(run: Run) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("ruleSet: hit-rate", "ruleSet: hitrate")
    assert "there is no RuleSet called hitrate" in run("apply", "-f", "-", stdin=text)


def test_a_fleet_that_cannot_run_here_is_refused_when_it_is_applied(run: Run) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace(
        "--shutdown-timeout", "--spec-method=ngram, --shutdown-timeout"
    )
    assert "--spec-method" in run("apply", "-f", "-", stdin=text, ok=False)


def test_brackets_in_what_an_engine_said_are_shown_as_they_are(run: Run) -> None:
    run("apply", "-f", str(EXAMPLE))
    said = "exit 1; last line of log: [type=value_error] [/INST]"
    url = f"sqlite:///{run.state / 'specpilot.sqlite'}"
    with closing(Store.open(url)) as store, store.begin() as unit:
        unit.resources.put_status(
            kind="SpeculationPolicy",
            namespace="local",
            name="chat",
            status={"verdict": said, "mode": "Auto"},
        )
    shown = " ".join(run("get", "specpol").split())
    assert "[type=value_error]" in shown
    assert "[/INST]" in shown
    assert said in run("explain", "chat")


@pytest.mark.parametrize(
    "words", [("get", "specpol"), ("explain", "chat"), ("audit", "verify"), ("approve", "x")]
)
def test_reading_where_nothing_was_ever_written_is_a_mistake(
    run: Run, words: tuple[str, ...]
) -> None:
    said = " ".join(run(*words, ok=False).replace("│", " ").split())
    assert "is --state right?" in said
    assert not (run.state / "specpilot.sqlite").exists()
