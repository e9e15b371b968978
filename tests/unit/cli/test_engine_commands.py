"""`specpilot engines`, `render` and `parse`: what a user types and reads."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from specpilot.cli.main import app
from specpilot.resources import ResourceError, load
from specpilot.resources.settings import SettingSpec

NGRAM = '{"method":"ngram","num_speculative_tokens":4}'
LIMITED = "{method: ngram, numSpeculativeTokens: 4, disableAboveBatchSize: 32}"
SCHEDULE = [[1, 32, 4], [33, 1000000, 0]]


def invoke(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, list(words), input=stdin)


def run(*words: str, stdin: str = "", code: int = 0) -> str:
    result = invoke(*words, stdin=stdin)
    assert result.exit_code == code, result.output
    return result.stdout


def answer(*words: str, stdin: str = "", code: int = 0) -> Any:
    """The answer of a command with --json before any command line."""
    at = words.index("--") if "--" in words else len(words)
    return json.loads(run(*words[:at], "--json", *words[at:], stdin=stdin, code=code))


class TestEngines:
    def test_a_version_has_its_rows(self) -> None:
        rows = answer("engines", "--version", "0.9.2", "--topic", "key")
        fate = {r["engine"]: r["effect"] for r in rows if r["what"] == "disable_by_batch_size"}
        assert fate == {"V0": "works", "V1": "ignored"}
        assert all(r["source"] and r["certainty"] in {"verified", "inferred"} for r in rows)

    def test_each_row_is_a_line(self) -> None:
        lines = run("engines", "--version", "0.33.0").splitlines()
        assert any("num_speculative_tokens_per_batch_size" in line for line in lines)
        assert len(lines) == 1 + len(answer("engines", "--version", "0.33.0"))

    def test_a_newer_version_is_read_as_the_newest_and_said(self) -> None:
        result = invoke("engines", "--version", "0.40.0", "--json")
        assert "is newer than 0.33.0" in result.stderr
        assert "canary" in result.stderr
        assert json.loads(result.stdout) == answer("engines", "--version", "0.33.0")

    def test_what_is_no_version_is_refused(self) -> None:
        result = invoke("engines", "--version", "latest")
        assert result.exit_code == 2
        assert "is not a version" in result.output


class TestRender:
    @pytest.mark.parametrize(
        ("version", "more", "args", "effective", "instead"),
        [
            ("0.8.1", ["--engine", "v0"],
             ["--speculative-model", "[ngram]", "--speculative-disable-by-batch-size", "33",
              "--num-speculative-tokens", "4", "--ngram-prompt-lookup-max", "2"],
             {"disable_by_batch_size": 33}, None),
            ("0.9.2", ["--engine", "v0"], None, {"disable_by_batch_size": 33}, None),
            ("0.9.2", ["--engine", "v1"], None, {}, "batch-guard"),
            ("0.16.0", [], None, {}, "batch-guard"),
            ("0.24.0", ["--data-parallel", "1"], None,
             {"num_speculative_tokens_per_batch_size": SCHEDULE}, None),
            ("0.24.0", ["--data-parallel", "2"], None, {}, "batch-guard"),
            ("0.30.0", ["--runner", "v2", "--data-parallel", "1"], None, {}, "batch-guard"),
            ("0.33.0", ["--runner", "v2", "--data-parallel", "1"], None,
             {"num_speculative_tokens_per_batch_size": SCHEDULE}, None),
        ],
    )  # fmt: skip
    def test_a_batch_limit(
        self,
        version: str,
        more: list[str],
        args: list[str] | None,
        effective: dict[str, Any],
        instead: str | None,
    ) -> None:
        setting = LIMITED[:-1] + ", extra: {prompt_lookup_max: 2}}"
        got = answer("render", "--setting", setting, "--version", version, *more)
        plain = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2}
        assert got["effective"] == {**plain, **effective}
        assert got["refused"] is None
        assert (got["instead"] or "").endswith(f"({instead})" if instead else "")
        assert (got["rules"] is not None) == (instead is not None)
        if args is not None:
            assert got["args"] == args

    def test_the_generated_rules_can_be_applied(self) -> None:
        rules = answer("render", "-s", LIMITED, "--version", "0.17.0")["rules"]
        (document,) = load(yaml.safe_dump(rules))
        assert document.metadata.name == "batch-guard-setting"
        assert rules["spec"]["parameters"]["maxBatch"] == 32

    def test_stdout_is_the_arguments_alone(self) -> None:
        result = invoke("render", "-s", LIMITED, "--version", "0.17.0")
        assert shlex.split(result.stdout) == [f"--speculative-config={NGRAM}"]
        assert "instead: disableAboveBatchSize is not rendered" in result.stderr
        assert "kind: RuleSet" in result.stderr

    def test_a_refusal_says_why(self) -> None:
        words = ("render", "-s", "{method: medusa, model: m, numSpeculativeTokens: 2}")
        result = invoke(*words, "--version", "0.33.0")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "has no method medusa: it exists in" in result.stderr
        got = answer(*words, "--version", "0.33.0")
        assert (got["args"], got["effective"], got["rules"]) == ([], {}, None)
        assert "medusa" in got["refused"]
        assert "is held (SettingRefused)" in got["instead"]

    @pytest.mark.parametrize("off", ["off", "{name: off}", '{"name": "off"}'])
    def test_off(self, off: str) -> None:
        assert run("render", "-s", off, "--version", "0.32.0").strip() == ""

    def test_a_setting_of_a_policy(self, tmp_path: Path) -> None:
        file = tmp_path / "policy.yaml"
        policy = {
            "apiVersion": "specpilot.io/v1alpha1",
            "kind": "SpeculationPolicy",
            "metadata": {"name": "chat"},
            "spec": {
                "target": {"kind": "Deployment", "name": "vllm", "container": "vllm"},
                "settings": [{"name": "deep", "method": "ngram", "numSpeculativeTokens": 8}],
                "rules": {"ruleSet": "hit-rate"},
            },
        }
        file.write_text(yaml.safe_dump_all([{"kind": "ConfigMap"}, policy]))
        assert '"num_speculative_tokens":8' in run("render", "-f", str(file), "--name", "deep")
        said = invoke("render", "-f", str(file), "--name", "deeep")
        assert "there are off, deep" in said.output.replace("\n", " ")
        assert invoke("render", "-f", str(file)).exit_code == 2

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("{method: ngram, numSpeculativeToken: 4}", "did you mean numSpeculativeTokens?"),
            ("{method: ngram}", "needs numSpeculativeTokens"),
            ("[1]", "is no mapping"),
            ("{a", "mind the indentation"),
        ],
    )
    def test_what_is_no_setting_is_refused(self, text: str, says: str) -> None:
        result = invoke("render", "-s", text)
        assert isinstance(result.exception, ResourceError)
        assert says in str(result.exception)


MANIFEST = """
kind: Deployment
metadata: {name: chat, namespace: serving}
spec:
  template:
    spec:
      containers:
      - name: proxy
        image: envoy
      - name: vllm
        image: vllm/vllm-openai:v0.30.0
        args: [org/m, --config, /etc/e/e.yaml, --spec-tokens, $(DEPTH)]
        env:
        - {name: DEPTH, valueFrom: {configMapKeyRef: {name: engine, key: depth}}}
        - {name: VLLM_USE_V2_MODEL_RUNNER, value: "0"}
        volumeMounts: [{name: e, mountPath: /etc/e}]
      volumes: [{name: e, configMap: {name: engine}}]
---
kind: ConfigMap
metadata: {name: engine}
data:
  depth: "3"
  e.yaml: |
    speculative-config:
      method: eagle3
      model: org/head
      num_speculative_tokens_per_batch_size: [[1, 16, 3], [17, 1000000, 0]]
"""


class TestParse:
    def test_a_workload(self) -> None:
        got = answer("parse", "-f", "-", stdin=MANIFEST)
        assert (got["engine"], got["version"]) == ("Deployment/chat, container vllm", "0.30.0")
        assert got["problem"] is None
        assert got["effective"] == {
            "method": "eagle3", "model": "org/head", "num_speculative_tokens": 3,
            "num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 1000000, 0]],
        }  # fmt: skip
        assert got["sources"]["num_speculative_tokens"] == (
            "--spec-tokens, in args[4], $DEPTH from ConfigMap engine, key depth"
        )
        assert got["sources"]["method"] == (
            "--speculative-config, in args[2], file /etc/e/e.yaml from ConfigMap engine, key e.yaml"
        )
        assert got["channel"]["fits"] == "A"

    def test_the_runner_that_the_pod_asks_for_counts(self) -> None:
        second = MANIFEST.replace('value: "0"', 'value: "1"')
        got = answer("parse", "-f", "-", stdin=second)
        assert "num_speculative_tokens_per_batch_size" not in got["effective"]
        assert any("does nothing there" in note for note in got["notes"])

    def test_a_command_line(self) -> None:
        got = answer(
            "parse", "--version", "0.32.0", "--",
            "vllm", "serve", "m", "-sc", NGRAM, "--speculative-config", "null",
        )  # fmt: skip
        assert (got["speculates"], got["config"], got["effective"]) == (False, None, None)
        (shadow,) = got["shadows"]
        assert shadow["loser"] == "-sc, in args[4]"
        assert "the last one wins" in shadow["why"]

    def test_the_setting_can_go_into_a_policy(self) -> None:
        line = ("vllm", "serve", "m", "-sc", json.dumps({
            "method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2,
            "num_speculative_tokens_per_batch_size": SCHEDULE}))  # fmt: skip
        got = answer("parse", "--version", "0.33.0", "--", *line)
        assert got["setting"] == {
            "name": "running", "method": "ngram", "numSpeculativeTokens": 4,
            "disableAboveBatchSize": 32, "extra": {"prompt_lookup_max": 2},
        }  # fmt: skip
        spec = SettingSpec.model_validate_json(json.dumps(got["setting"]), strict=True)
        assert spec.setting().disable_above_batch_size == 32

    def test_an_engine_that_does_not_start_is_said(self) -> None:
        config = '{"method":"ngram","num_speculative_tokens":4,"disable_by_batch_size":8}'
        early = ("vllm", "serve", "m", "-sc", config)
        got = answer("parse", "--version", "0.17.0", "--", *early, code=1)
        assert "does not know -sc and does not start with it" in got["problem"]
        words = ("vllm", "serve", "m", "--speculative-config", config)
        got = answer("parse", "--version", "0.17.0", "--", *words)
        assert (got["starts"], got["effective"], got["speculates"]) == (False, None, None)
        assert "has no key disable_by_batch_size" in got["faults"][0]
        got = answer("parse", "--version", "0.16.0", "--", *words)
        assert (got["starts"], got["effective"]) == (True, json.loads(NGRAM))

    def test_what_is_not_understood_is_said_and_not_guessed(self) -> None:
        got = answer("parse", "--", "sh", "-c", "vllm serve m $EXTRA", code=1)
        assert (got["speculates"], got["effective"], got["config"]) == (None, None, None)
        assert "$EXTRA is not known" in got["problem"]
        assert got["channel"]["fits"] == "none"

    def test_a_checkpoint_that_speculates_by_itself(self, tmp_path: Path) -> None:
        line = ("--", "vllm", "serve", "org/m-speculator.eagle3")
        got = answer("parse", "--version", "0.32.0", *line)
        assert (got["speculates"], got["effective"]) == (None, None)
        assert "give its config.json by --model-config" in got["notes"][0]
        file = tmp_path / "config.json"
        file.write_text(json.dumps({
            "speculators_model_type": "eagle3",
            "speculators_config": {
                "proposal_methods": [{"speculative_tokens": 5}],
                "verifier": {"name_or_path": "org/m"},
            },
        }))  # fmt: skip
        locked = {"method": "eagle3", "model": "org/m-speculator.eagle3",
                  "num_speculative_tokens": 5}  # fmt: skip
        got = answer("parse", "--version", "0.32.0", "--model-config", str(file), *line)
        assert got["effective"] == locked
        got = answer(
            "parse", "--version", "0.32.0", "--model-config", str(file), *line,
            "-sc", '{"method":"ngram","num_speculative_tokens":2}',
        )  # fmt: skip
        assert got["effective"] == {**locked, "num_speculative_tokens": 2}
        file.write_text("{}")
        got = answer("parse", "--version", "0.32.0", "--model-config", str(file), *line)
        assert (got["speculates"], got["notes"]) == (False, [])

    def test_words(self) -> None:
        said = run("parse", "-f", "-", stdin=MANIFEST)
        assert said.splitlines()[0] == "Deployment/chat, container vllm (vLLM 0.30.0)"
        assert "  method: --speculative-config, in args[2], file /etc/e/e.yaml" in said
        assert "  channel A: once" in said

    def test_several_engines_are_a_list(self) -> None:
        spec = {"containers": [{"name": "vllm", "args": ["-sc", NGRAM]}]}
        group = {
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "x"},
            "spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": spec},
                                              "workerTemplate": {"spec": spec}}},
        }  # fmt: skip
        got = answer("parse", "-f", "-", "--version", "0.32.0", stdin=json.dumps(group))
        assert [each["effective"] for each in got] == [json.loads(NGRAM)] * 2

    @pytest.mark.parametrize(
        ("words", "stdin", "says"),
        [
            (("-f", "-"), "kind: ConfigMap\nmetadata: {name: x}", "no pod template in it"),
            (("-f", "-", "--container", "x"), MANIFEST, "no container of it runs vLLM"),
            (("-f", "-", "--object", "Pod/x"), MANIFEST, "there is Deployment/chat"),
        ],
    )
    def test_nothing_to_read_is_said(self, words: tuple[str, ...], stdin: str, says: str) -> None:
        result = invoke("parse", *words, stdin=stdin)
        assert isinstance(result.exception, ResourceError)
        assert says in str(result.exception)

    def test_neither_and_both_are_refused(self) -> None:
        assert invoke("parse").exit_code == 2
        assert invoke("parse", "-f", "x", "--", "vllm").exit_code == 2
