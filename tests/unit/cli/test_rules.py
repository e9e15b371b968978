"""`specpilot rules`: what a user types and reads."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from specpilot.cli.main import EXPECTED, app
from specpilot.domain.evaluation import CompiledRuleSet
from specpilot.domain.linting import Code
from specpilot.domain.rules import Rule, RuleSet
from specpilot.resources.packs import pack, pack_path
from specpilot.store import RuleOwner, Store

ROOT = Path(__file__).parents[3]

RULES = """\
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {name: chat}
spec:
  description: Off when busy.
  parameters: {busy: 32}
  rules:
    - name: off-when-busy
      when: batch_size > params.busy
      for: 5m
      setting: "off"
    - name: on-when-quiet
      when: batch_size < 4
      for: 15m
      setting: eagle3
"""

FLEET = """\
apiVersion: specpilot.io/v1alpha1
kind: LocalFleet
metadata: {name: chat}
spec: {replicas: 1, command: [vllm]}
"""

TABLE = """\
ruleSet: ../chat.yaml
tables:
  - name: busy
    rows:
      - {reason: begins, readings: {batch_size: 40}, expect: "false"}
      - reason: held for long enough
        after: 5m
        expect: {verdict: "true", rule: off-when-busy, setting: "off"}
"""


class Run:
    """Types a command in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self._runner = CliRunner()

    def raw(self, *words: str, stdin: str = "") -> Result:
        env = {"SPECPILOT_STATE": str(self.state), "SPECPILOT_DATABASE_URL": "", "COLUMNS": "200"}
        return self._runner.invoke(app, ["rules", *words], input=stdin, env=env)

    def __call__(self, *words: str, stdin: str = "", code: int = 0) -> str:
        result = self.raw(*words, stdin=stdin)
        if isinstance(result.exception, EXPECTED):
            assert code == 1, result.exception
            return str(result.exception)
        assert result.exit_code == code, result.output + repr(result.exception)
        return result.output if code else result.stdout

    def file(self, name: str, text: str = RULES) -> str:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(tmp_path)


# --- apply, list, show, history


def test_a_rule_set_is_applied_once_and_a_change_is_a_new_version(run: Run) -> None:
    path = run.file("chat.yaml")
    first = run("apply", path, "--author", "ann")
    assert first.startswith("local/chat@1 applied ")
    assert run("apply", path) == first.replace("applied", "unchanged")
    run.file("chat.yaml", RULES.replace("32", "16"))
    assert run("apply", path).startswith("local/chat@2 applied ")
    (listed,) = json.loads(run("list", "--json"))
    assert (listed["namespace"], listed["name"], listed["version"]) == ("local", "chat", 2)
    newest, oldest = json.loads(run("history", "chat", "--json"))
    assert (oldest["version"], oldest["author"], oldest["owner"]) == (1, "ann", "cli")
    assert oldest["source"] == path
    assert oldest["hash"] == first.split()[-1]
    assert newest["time"] >= oldest["time"]


def test_what_was_applied_is_in_the_audit_log(run: Run) -> None:
    run("apply", run.file("chat.yaml"), "--author", "ann")
    with (
        closing(Store.open(f"sqlite:///{run.state}/specpilot.sqlite")) as store,
        store.read() as unit,
    ):
        (record,) = unit.audit.records(limit=10)
        assert unit.audit.verify().ok
    assert (record.draft.action, record.draft.actor) == ("RuleSetApplied", "ann")
    assert "chat version 1" in record.draft.message


def test_one_bad_rule_set_and_nothing_is_applied(run: Run) -> None:
    good = run.file("good.yaml")
    bad = run.file("bad.yaml", RULES.replace("name: chat", "name: bad").replace("batch", "bach"))
    said = run("apply", good, bad, code=1)
    assert "did you mean batch_size" in said
    assert not run.state.exists()


def test_faults_of_every_file_are_said_at_once(run: Run) -> None:
    one = run.file("one.yaml", RULES.replace("for: 5m", "for: 5"))
    other = run.file("other.yaml", RULES.replace("kind: RuleSet", "kind: RuelSet"))
    said = run("apply", one, other, code=1)
    assert "spec.rules[0].for" in said
    assert "did you mean RuleSet" in said


@pytest.mark.parametrize(
    ("owner", "says", "reason"),
    [
        (RuleOwner.RESOURCE, "edit it with kubectl", "a CR owns it"),
        (RuleOwner.FILE, "edit the file and apply it again", "`specpilot apply` owns it"),
    ],
)
def test_what_belongs_to_another_is_refused(
    run: Run, owner: RuleOwner, says: str, reason: str
) -> None:
    rule_set = RuleSet(name="chat", rules=(Rule(name="a", when="batch_size > 1", setting="off"),))
    run.state.mkdir()
    with (
        closing(Store.open(f"sqlite:///{run.state}/specpilot.sqlite")) as store,
        store.begin() as unit,
    ):
        unit.rules.apply(
            namespace="local",
            rule_set=rule_set,
            owner=owner,
            author="a",
            source="s",
            at=datetime(2026, 1, 5, tzinfo=UTC),
        )
    assert says in run("apply", run.file("chat.yaml"), code=1), reason
    assert [v["version"] for v in json.loads(run("history", "chat", "--json"))] == [1]


@pytest.mark.parametrize(
    ("text", "more", "says", "reason"),
    [
        (FLEET, (), "specpilot apply -f", "another kind"),
        ("", (), "there is no document", "an empty file"),
        (RULES.replace("{name: chat}", "{name: chat, namespace: a}"), ("-n", "b"),
         "'a' is not --namespace b", "two namespaces"),
        (f"{RULES}---\n{RULES}", (), "has the same name", "one name for two"),
    ],
)  # fmt: skip
def test_what_cannot_be_applied(
    run: Run, text: str, more: tuple[str, ...], says: str, reason: str
) -> None:
    assert says in run("apply", run.file("x.yaml", text), *more, code=1), reason


def test_apply_says_which_policies_the_rules_do_not_fit(run: Run) -> None:
    example = (ROOT / "examples" / "local.yaml").read_text(encoding="utf-8")
    policy = next(d for d in example.split("---") if "kind: SpeculationPolicy" in d)
    runner = CliRunner()
    env = {"SPECPILOT_STATE": str(run.state)}
    assert runner.invoke(app, ["apply", "-f", "-"], input=policy, env=env).exit_code == 0
    other = RULES.replace("name: chat", "name: hit-rate")
    result = run.raw("apply", run.file("other.yaml", other))
    assert "policy chat cannot use version 1: rule hit-rate/on-when-quiet" in result.stderr
    (version,) = json.loads(run("history", "hit-rate", "--json"))
    assert version["policies"] == ["chat (follows)"]


def test_the_namespace_of_a_file_is_kept_and_told_apart(run: Run) -> None:
    run("apply", run.file("chat.yaml"))
    run("apply", run.file("b.yaml", RULES.replace("32", "16")), "-n", "b")
    said = run("show", "chat", code=2)
    assert "b/chat@1" in said
    assert "local/chat@1" in said
    assert "params.busy = 16" in run("show", "b/chat")
    assert [v["namespace"] for v in json.loads(run("list", "--json", "-n", "b"))] == ["b"]
    assert "could be several" in run("history", "chat", code=2)
    assert "kubectl get specpol -n b" in run("history", "b/chat")


def test_what_is_shown_as_yaml_can_be_applied_and_means_the_same(run: Run) -> None:
    text = (ROOT / "rules" / "drift.yaml").read_text(encoding="utf-8")
    first = run("apply", run.file("drift.yaml", text))
    shown = run("show", "drift@1", "--yaml")
    assert run("apply", run.file("again.yaml", shown)) == first.replace("applied", "unchanged")
    assert json.loads(run("show", "drift@1", "--json"))["spec"] == yaml.safe_load(shown)["spec"]


# --- which rule set is meant


def test_a_word_may_mean_a_file_a_pack_or_a_stored_version(run: Run) -> None:
    changed = pack_path("hit-rate").read_text(encoding="utf-8").replace("9m", "8m")
    assert "held for 9m" in run("show", "hit-rate"), "nothing else has the name"
    run("apply", str(pack_path("hit-rate")))
    assert "local/hit-rate@1" in run("show", "hit-rate"), "both mean the same"
    run("apply", run.file("mine.yaml", changed))
    said = run("show", "hit-rate", code=2)
    assert "write pack:hit-rate or local/hit-rate@2" in " ".join(said.replace("│", "").split())
    assert "held for 9m" in run("show", "pack:hit-rate")
    assert "held for 8m" in run("show", "local/hit-rate")
    assert "held for 9m" in run("show", "hit-rate@1")
    assert "held for 8m" in run("show", "mine.yaml")


def test_a_file_of_several_rule_sets_needs_a_name(run: Run) -> None:
    path = run.file("two.yaml", f"{RULES}---\n{RULES.replace('name: chat', 'name: code')}")
    assert "two.yaml#NAME" in "".join(run("show", path, code=2).replace("│", "").split())
    assert "two.yaml#code" in run("show", f"{path}#code")
    assert "holds no RuleSet docs" in run("show", f"{path}#docs", code=2)


@pytest.mark.parametrize(
    ("word", "says", "reason"),
    [
        ("hit-rat", "no shipped pack (there are batch-guard", "nothing of the name"),
        ("pack:hit-rat", "did you mean hit-rate?", "no such pack"),
        ("chat@1", "there is no database yet", "nothing is stored yet"),
        ("./none.yaml", "No such file", "no such file"),
    ],
)
def test_what_means_nothing(run: Run, word: str, says: str, reason: str) -> None:
    result = run.raw("show", word)
    said = " ".join(f"{result.output} {result.exception}".replace("│", "").split())
    assert says in said, reason
    assert result.exit_code != 0


# --- diff


def test_a_difference_is_told_field_by_field(run: Run) -> None:
    path = run.file("chat.yaml")
    run("apply", path)
    run.file("chat.yaml", RULES.replace("for: 5m", "for: 9m").replace("32", "16"))
    run("apply", path)
    said = run("diff", "chat@1", "chat@2")
    assert "parameters.busy: 32 -> 16" in said
    assert "rule off-when-busy changed" in said
    assert "for: 5m -> 9m" in said
    assert "mean the same" in run("diff", "chat@2", path)
    assert "off-when-busy" in run("diff", "chat@1", "chat@2", "--exit-code", code=1)
    (change,) = json.loads(run("diff", "chat@1", "chat@2", "--json"))["rules"]
    assert (change["rule"], change["kind"]) == ("off-when-busy", "changed")


SLIP = RULES.replace("batch_size < 4", "batch_size < 4 && acceptance_rate < 60")


def test_apply_says_what_lint_finds_and_applies_all_the_same(run: Run) -> None:
    result = run.raw("apply", run.file("chat.yaml", SLIP))
    assert (result.exit_code, result.stdout.split()[1]) == (0, "applied")
    line = SLIP.splitlines().index("      when: batch_size < 4 && acceptance_rate < 60") + 1
    found = f"chat.yaml:{line}: SP205 warning: on-when-quiet: when: acceptance_rate < 60"
    assert found in result.stderr
    said = "applied; lint: 1 error, 1 warning, see `specpilot rules lint`"
    assert result.stderr.splitlines()[-1] == said
    assert run.raw("apply", run.file("sound.yaml")).stderr == ""


def test_apply_counts_lines_over_all_documents_of_a_file(run: Run) -> None:
    text = f"{RULES}---\n{SLIP.replace('name: chat', 'name: other')}"
    result = run.raw("apply", run.file("both.yaml", text))
    line = text.splitlines().index("      when: batch_size < 4 && acceptance_rate < 60") + 1
    assert f"both.yaml:{line}: SP205 warning" in result.stderr


def test_apply_strict_applies_nothing_that_lint_objects_to(run: Run) -> None:
    result = run.raw("apply", "--strict", run.file("chat.yaml", SLIP))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nothing applied; lint: 1 error, 1 warning" in result.stderr
    assert not run.state.exists()
    assert " applied " in run("apply", "--strict", run.file("sound.yaml"))


def test_a_shipped_pack_is_applied_by_its_whole_name(run: Run) -> None:
    assert "write pack:hit-rate" in run("apply", "hit-rate", code=1)
    assert run("apply", "pack:hit-rate", "-n", "prod").startswith("prod/hit-rate@1 applied ")
    (version,) = json.loads(run("history", "prod/hit-rate", "--json"))
    assert version["source"] == "pack:hit-rate"
    assert version["hash"] == pack("hit-rate").content_hash()
    assert "no such pack" in run("apply", "pack:hitrate", code=1)


# --- lint


def test_lint_of_what_is_not_there_is_no_finding(run: Run) -> None:
    assert "nope.yaml: No such file" in run("lint", "nope.yaml", code=2)


def test_lint_passes_sound_rules_and_every_pack(run: Run) -> None:
    assert "0 errors" in run("lint", run.file("chat.yaml"), "--strict")
    assert "0 errors, 0 warnings" in run("lint", str(ROOT / "rules"), "--strict")
    assert "0 errors" in run("lint", "pack:drift")


def test_lint_fails_on_an_error_and_on_warnings_only_when_strict(run: Run) -> None:
    bad = run.file("bad.yaml", RULES.replace("batch_size < 4", "batch_size < 64"))
    said = run("lint", bad, code=1)
    assert f"{bad}:13: SP302 error: on-when-quiet: when: both are true at batch_size" in said
    hasty = run.file("hasty.yaml", RULES.replace("      for: 5m\n", ""))
    assert "SP401 warning" in run("lint", hasty)
    run("lint", hasty, "--strict", code=1)
    run("lint", hasty, "--strict", "--ignore", "SP401")
    assert "no such code" in run("lint", hasty, "--ignore", "SP000", code=2)


def test_lint_as_json_has_the_witness(run: Run) -> None:
    bad = run.file("bad.yaml", RULES.replace("batch_size < 4", "batch_size < 64"))
    (finding,) = json.loads(run("lint", bad, "--json", code=1))
    assert finding["code"] == Code.OVERLAP
    assert (finding["file"], finding["line"]) == (bad, 13)
    assert 32 < finding["witness"]["readings"]["batch_size"] < 64
    assert finding["witness"]["active"] == ["eagle3", "off"]


def test_lint_with_the_parameters_of_a_policy(run: Run) -> None:
    said = run("lint", "pack:latency-guard", "-p", "maxTpotP99=0.03")
    assert "SP402 warning: off-when-tokens-are-late" in said
    assert "write NAME=NUMBER" in run("lint", "pack:drift", "-p", "margin", code=2)


# --- test


def test_tables_are_run_beside_their_rule_set(run: Run) -> None:
    run.file("chat.yaml")
    path = run.file("tests/chat.yaml", TABLE)
    assert "1 tables, 2 rows: 2 as expected, 0 not" in run("test", path)
    assert run("test", str(Path(path).parent)) == run("test", path)


def test_a_table_that_fails_shows_the_row_and_its_reason(run: Run) -> None:
    run.file("chat.yaml", RULES.replace("for: 5m", "for: 9m"))
    said = run("test", run.file("tests/chat.yaml", TABLE), code=1)
    assert "row 2, 0:05:00 after the first: held for long enough" in said
    assert "verdict: expected 'true', got 'false'" in said
    assert "held 5m of 9m" in said
    rows = json.loads(run("test", "tests/chat.yaml", "--json", code=1))
    assert [r["ok"] for r in rows] == [True, False]


def test_a_table_without_its_rule_set_is_refused(run: Run) -> None:
    said = run("test", run.file("tests/chat.yaml", TABLE), code=1)
    assert "ruleSet: there is no rule set at" in said


# --- evaluate


def lines(said: str) -> list[dict[str, str | None]]:
    return [json.loads(line) for line in said.splitlines()]


def test_a_verdict_per_row(run: Run) -> None:
    readings = run.file("r.csv", "batch_size,params.busy\n40,32\n,32\n10,32\n40,64\n2,\n")
    found = lines(run("evaluate", run.file("chat.yaml"), "--readings", readings, "--json"))
    assert [(f["verdict"], f["rule"], f["setting"]) for f in found] == [
        ("true", "off-when-busy", "off"),
        ("unknown", None, None),
        ("false", None, None),
        ("false", None, None),
        ("true", "on-when-quiet", "eagle3"),
    ]
    assert all(set(f) == {"verdict", "rule", "setting", "why"} for f in found)
    assert "batch_size 40 > 32" in str(found[0]["why"])
    assert "batch_size is Unknown" in str(found[1]["why"])


def test_with_times_a_condition_must_hold(run: Run) -> None:
    rows = "".join(f"{60 * n},40\n" for n in range(7))
    path = run.file("chat.yaml")
    found = lines(
        run("evaluate", path, "--readings", "-", "--json", stdin=f"time,batch_size\n{rows}")
    )
    assert [f["verdict"] for f in found] == ["false"] * 5 + ["true"] * 2
    assert "held 4m of 5m" in str(found[4]["why"])


def test_a_gap_between_rows_begins_anew_and_is_told(run: Run) -> None:
    path = run.file("chat.yaml")
    result = run.raw("evaluate", path, "--readings", "-", stdin="time,batch_size\n0,40\n600,40\n")
    assert "false" in result.stdout.splitlines()[1]
    assert "1 gaps between rows" in result.stderr


def test_without_a_time_the_time_of_day_is_unknown(run: Run) -> None:
    path = run.file("chat.yaml", RULES.replace("batch_size < 4", "time.hour < 6"))
    stdin = "batch_size\n1\n"
    (found,) = lines(run("evaluate", path, "--readings", "-", "--json", stdin=stdin))
    assert found["verdict"] == "unknown"
    assert "time.hour is Unknown" in str(found["why"])


def test_a_setting_that_is_not_told_is_unknown(run: Run) -> None:
    path = run.file("chat.yaml", RULES.replace("batch_size < 4", "setting.depth == 0"))
    said = run("evaluate", path, "--readings", "-", "--json", stdin="batch_size\n1\n")
    assert [f["verdict"] for f in lines(said)] == ["unknown"]
    said = run("evaluate", path, "--readings", "-", "--json", stdin="setting.name\noff\n")
    assert lines(said)[0]["rule"] == "on-when-quiet"


def test_rows_that_cannot_be_are_judged_as_unknown_and_counted(run: Run) -> None:
    path = run.file("chat.yaml", RULES.replace("batch_size < 4", "acceptance_rate < 0.5"))
    stdin = "setting.name,acceptance_rate\noff,0.1\noff,0.2\neagle3,0.3\n"
    result = run.raw("evaluate", path, "--readings", "-", "--json", stdin=stdin)
    assert [f["verdict"] for f in lines(result.stdout)] == ["unknown", "unknown", "true"]
    assert result.stderr.count("warning") == 1
    assert "acceptance_rate in 2" in result.stderr


@pytest.mark.parametrize("command", ["evaluate", "replay"])
@pytest.mark.parametrize("text", ["", "\n\n", "time,batch_size\n"])
def test_a_file_without_rows_is_bad_usage(run: Run, command: str, text: str) -> None:
    path = run.file("chat.yaml")
    said = run(command, path, "--readings", "-", stdin=text, code=2)
    assert "standard input has no row of readings" in said


def test_an_unknown_column_names_the_nearest(run: Run) -> None:
    path = run.file("chat.yaml")
    said = run("evaluate", path, "--readings", "-", stdin="batch_sise\n1\n", code=1)
    assert "did you mean batch_size?" in said


def test_only_one_thing_can_be_standard_input(run: Run) -> None:
    assert "standard input" in run("evaluate", "-", "--readings", "-", code=2)


def test_rows_are_judged_as_the_operator_would_judge_them(run: Run) -> None:
    rules = CompiledRuleSet(pack("batch-guard"))
    assert rules.signals == {"batch_size", "queue_depth"}
    stdin = "".join(f'{{"batch_size": {n}, "queue_depth": 0}}\n' for n in (10, 40, 80))
    found = lines(run("evaluate", "batch-guard", "--readings", "-", "--json", stdin=stdin))
    assert [f["setting"] for f in found] == ["speculating", None, "off"]


def many(count: int) -> Iterator[str]:
    yield "mean_acceptance_length,batch_size,drafts,queue_depth\n"
    for n in range(count):
        yield f"{1 + n % 30 / 10},{n % 80},5000,{n % 3}\n"


def test_a_thousand_rows_a_second(run: Run) -> None:
    path = run.file("many.csv", "".join(many(4000)))
    start = time.process_time()
    said = run("evaluate", "hit-rate", "--readings", path, "--json")
    took = time.process_time() - start
    assert said.count("\n") == 4000
    assert took < 4, f"4000 rows took {took:.1f} s of one core"


# --- rules that the operator adds

LIMITED = """\
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {name: chat, namespace: prod}
spec:
  target: {kind: Deployment, name: chat}
  settings:
    - {name: eagle3, method: eagle3, model: org/head, numSpeculativeTokens: 3,
       disableAboveBatchSize: 8}
  rules: {ruleSet: chat}
  telemetry: {window: 2m}
"""


def test_a_generated_rule_is_shown_with_what_it_does_and_why(run: Run) -> None:
    rules, limited = run.file("chat.yaml", RULES), run.file("policy.yaml", LIMITED)
    words = ("show", rules, "--policy", limited, "--engine-version", "0.24.0")
    said = run(*words, "--data-parallel", "2")
    assert "1. disableAboveBatchSize:eagle3 (generated): asks for off when held for 6m" in said
    assert 'when   setting.name == "eagle3" && batch_size > 8' in said
    assert (
        "why    disableAboveBatchSize is not rendered: ranks of data parallelism may hang" in said
    )
    assert "then   eagle3 comes back below a batch of 6.4 (gate BatchLimit)" in said
    assert "2. off-when-busy: asks for off" in said
    (found,) = json.loads(run(*words, "--data-parallel", "2", "--json"))["generated"]
    assert found["keeps"] == {"setting": "eagle3", "disableAboveBatchSize": 8}
    assert (found["setting"], found["for"]) == ("off", "6m")


def test_where_the_engine_keeps_a_limit_there_is_no_such_rule(run: Run) -> None:
    rules, limited = run.file("chat.yaml", RULES), run.file("policy.yaml", LIMITED)
    words = ("show", rules, "--policy", limited, "--engine-version", "0.24.0")
    said = run(*words)
    assert "generated" not in said
    assert "vLLM 0.24.0 keeps disableAboveBatchSize 8 of eagle3 itself" in said
    assert json.loads(run(*words, "--json"))["generated"] == []


def test_without_an_engine_a_limit_is_left_to_rules_and_yaml_is_what_can_be_applied(
    run: Run,
) -> None:
    rules, limited = run.file("chat.yaml", RULES), run.file("policy.yaml", LIMITED)
    assert "(generated)" in run("show", rules, "--policy", limited)
    assert "generated rules cannot" in run("show", rules, "--policy", limited, "--yaml", code=2)


def test_lint_for_a_policy_knows_the_rules_that_the_operator_adds(run: Run) -> None:
    rules = run.file("chat.yaml", RULES.replace("batch_size < 4", "batch_size > 8"))
    limited = run.file("policy.yaml", LIMITED)
    alone = {f["code"] for f in json.loads(run("lint", rules, "--json", code=1))}
    assert not alone & {Code.NEVER_COMES, Code.SHADOWED}
    words = ("lint", rules, "--policy", limited, "--json", "--engine-version")
    found = {f["code"]: f for f in json.loads(run(*words, "0.17.0", code=1))}
    assert found[Code.NEVER_COMES]["rules"] == ["on-when-quiet"]
    assert found[Code.NEVER_COMES]["line"], "with its place in the file"
    kept = {f["code"] for f in json.loads(run(*words, "0.24.0", code=1))}
    assert kept == alone, "the engine keeps the limit"
