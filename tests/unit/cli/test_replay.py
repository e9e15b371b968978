"""`specpilot rules replay`: of a readings file and of saved pages."""

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from specpilot.cli.main import EXPECTED, app
from specpilot.cli.state import open_state
from specpilot.domain.economics import config_hash
from specpilot.engines import render
from tests import recordings
from tests.unit.domain.builders import NGRAM
from tests.unit.domain.test_recall import measurement

RULES = """\
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {name: chat}
spec:
  rules:
    - {name: off-when-busy, when: batch_size > 32, for: 2m, setting: "off"}
    - {name: on-when-quiet, when: batch_size < 4, setting: speculating}
"""

EAGER = RULES.replace("for: 2m, ", "").replace("name: chat", "name: eager")

POLICY = """\
apiVersion: specpilot.io/v1alpha1
kind: SpeculationPolicy
metadata: {name: chat, namespace: prod}
spec:
  target: {kind: Deployment, name: chat}
  settings:
    - {name: ngram, method: ngram, numSpeculativeTokens: 4}
  rules: {ruleSet: chat}
  limits: {cooldown: 30m, flipsPerHour: 1}
"""

# A minute a row: busy for five, then quiet.
ROWS = [(f"2026-01-05T08:{m:02}:00Z", 40 if m < 5 else 2) for m in range(45)]


def csv(rows: Sequence[tuple[str, object]] = ROWS, *, setting: str = "eagle3") -> str:
    lines = [f"{at},{batch},{setting}" for at, batch in rows]
    return "\n".join(["time,batch_size,setting.name", *lines, ""])


class Run:
    """Types `specpilot rules replay` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._runner = CliRunner()
        for name, text in (("chat", RULES), ("eager", EAGER), ("policy", POLICY)):
            (directory / f"{name}.yaml").write_text(text, encoding="utf-8")

    def raw(self, *words: str, stdin: str = "") -> Result:
        env = {
            "SPECPILOT_STATE": str(self.directory / "state"),
            "SPECPILOT_DATABASE_URL": "",
            "SPECPILOT_PROMETHEUS_URL": "",
            "COLUMNS": "200",
        }
        return self._runner.invoke(app, ["rules", "replay", *words], input=stdin, env=env)

    def __call__(self, *words: str, stdin: str = "") -> str:
        result = self.raw(*words, stdin=stdin)
        assert result.exit_code == 0, result.output + repr(result.exception)
        return result.stdout

    def json(self, *words: str, stdin: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*words, "--json", stdin=stdin))
        return found

    def refused(self, *words: str, stdin: str = "") -> str:
        result = self.raw(*words, stdin=stdin)
        if isinstance(result.exception, EXPECTED):
            return str(result.exception)
        assert result.exit_code == 2, result.output + repr(result.exception)
        return " ".join(result.output.replace("│", " ").split())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(tmp_path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = recordings.unpack(tmp_path_factory.mktemp("pages"), f"{recordings.SERIES}/*")
    return str(folder / recordings.SERIES)


def flips(replay: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(f["at"][11:16], f["from"], f["to"]) for f in replay["flips"]]


# --- readings files


def test_acceptance_while_off_is_unknown_and_noted(run: Run) -> None:
    text = "time,batch_size,setting.name,acceptance_rate\n0,40,off,0.5\n60,40,off,0.5\n"
    found = run.json("chat.yaml", "--readings", "-", stdin=text)
    assert any("acceptance_rate in 2" in note for note in found["notes"])


def test_a_file_of_readings(run: Run) -> None:
    found = run.json("chat.yaml", "--readings", "-", stdin=csv())
    (replay,) = found["replays"]
    assert (found["from"], found["to"]) == (
        "2026-01-05T08:00:00+00:00",
        "2026-01-05T08:44:00+00:00",
    )
    assert replay["rule_set"] == "chat.yaml"
    assert flips(replay) == [("08:02", "eagle3", "off"), ("08:12", "off", "eagle3")]
    assert replay["flips"][0]["evidence"] == [
        {"signal": "batch_size", "value": 40, "comparison": ">", "threshold": 32, "reason": None}
    ]
    assert [f["readings_of"] for f in replay["flips"]] == [None, "eagle3"]
    (held,) = replay["held_back"]
    assert (held["gate"], held["times"], held["to"]) == ("Cooldown", 7, "eagle3")
    assert replay["seconds"] == {"eagle3": 2 * 60 + 32 * 60, "off": 600}
    assert [s["counterfactual"] for s in replay["stretches"]] == [False, True, False]
    assert any("counterfactual" in note for note in found["notes"])


def test_json_lines_are_read_too(run: Run) -> None:
    lines = "".join(
        json.dumps({"time": at, "batch_size": batch, "setting.name": "eagle3"}) + "\n"
        for at, batch in ROWS
    )
    (replay,) = run.json("chat.yaml", "--readings", "-", stdin=lines)["replays"]
    assert len(replay["flips"]) == 2


def test_limits_and_settings_are_those_of_the_policy(run: Run) -> None:
    told = csv(setting="ngram")
    found = run.json("chat.yaml", "--readings", "-", "--policy", "policy.yaml", stdin=told)
    (replay,) = found["replays"]
    assert found["policy"] == "prod/chat"
    assert flips(replay) == [("08:02", "ngram", "off")]
    gates = [h["gate"] for h in replay["held_back"]]
    assert gates == ["Cooldown", "BudgetSpent"], "30 minutes, then one flip an hour"


def test_two_rule_sets_side_by_side(run: Run) -> None:
    words = ("chat.yaml", "--readings", "-", "--compare", "eager.yaml")
    one, other = run.json(*words, stdin=csv())["replays"]
    assert (one["rule_set"], other["rule_set"]) == ("chat.yaml", "eager.yaml")
    assert [f["at"][11:16] for f in (one["flips"][0], other["flips"][0])] == ["08:02", "08:00"]
    shown = run(*words, stdin=csv())
    assert [line.split()[0] for line in shown.splitlines() if "█" in line][:3] == [
        "really",
        "chat.yaml",
        "eager.yaml",
    ]


def test_a_person_sees_bands_flips_and_what_was_held_back(run: Run) -> None:
    shown = run("chat.yaml", "--readings", "-", stdin=csv())
    assert "chat.yaml: 2 flips, 1 proposal held back; eagle3 0:34:00, off 0:10:00" in shown
    band = next(line for line in shown.splitlines() if line.startswith("chat.yaml "))
    assert band.index("█") < band.index("░") < band.rindex("█")
    below = shown.splitlines()[shown.splitlines().index(band) + 1]
    assert [c == "╌" for c in below.ljust(len(band))] == [c == "░" for c in band]
    assert "counterfactual: readings are of eagle3" in shown
    assert "Cooldown" in shown
    assert "cooling down until 2026-01-05 08:12:00 UTC" in shown


def test_the_picture_can_be_written(run: Run) -> None:
    words = ("--svg", "out.svg", "--html", "out.html")
    run.json("chat.yaml", "--readings", "-", *words, stdin=csv())
    svg = (run.directory / "out.svg").read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    assert "off-when-busy" in svg
    assert "off-when-busy" in (run.directory / "out.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["--from", "2026-01-05T08:03:00Z"], ("08:03", "08:44"), id="from a time on"),
        pytest.param(["--to", "2026-01-05T08:10:00Z"], ("08:00", "08:10"), id="up to a time"),
        pytest.param(["--from", "10m"], ("08:34", "08:44"), id="the last minutes"),
        pytest.param(["--from", "10m", "--to", "20m"], ("08:14", "08:24"), id="minutes before"),
    ],
)
def test_a_part_of_the_series(run: Run, words: list[str], expected: tuple[str, str]) -> None:
    found = run.json("chat.yaml", "--readings", "-", *words, stdin=csv())
    assert (found["from"][11:16], found["to"][11:16]) == expected


def test_what_is_missing_is_noted(run: Run) -> None:
    words = ("hit-rate", "--readings", "-", "--policy", "policy.yaml")
    notes = run.json(*words, stdin=csv(ROWS[::3], setting="ngram"))["notes"]
    for expected in (
        "mean_acceptance_length is Unknown at every moment: NoData",
        "there is no column drafts",
        "14 gaps between moments are longer than the grace of a rule",
    ):
        assert any(expected in note for note in notes), f"{expected} is not in {notes}"


def test_a_setting_that_the_policy_lacks_is_noted(run: Run) -> None:
    text = RULES.replace("setting: speculating", "setting: eagle3")
    (run.directory / "chat.yaml").write_text(text, encoding="utf-8")
    words = ("chat.yaml", "--readings", "-", "--policy", "policy.yaml")
    notes = run.json(*words, stdin=csv(setting="ngram"))["notes"]
    assert "chat.yaml asks for eagle3, which prod/chat has not: it is never taken" in notes


def test_what_ran_can_be_said(run: Run) -> None:
    text = "\n".join(["time,batch_size", *(f"{at},{batch}" for at, batch in ROWS)])
    assert "say --ran" in run.refused("chat.yaml", "--readings", "-", stdin=text)
    found = run.json("chat.yaml", "--readings", "-", "--ran", "off", stdin=text)
    (replay,) = found["replays"]
    assert flips(replay) == [("08:05", "off", "speculating")]


# --- saved pages


def test_saved_pages_are_looked_at_step_by_step(run: Run, pages: str) -> None:
    rules = RULES.replace("batch_size > 32, for: 2m", "batch_size > 4").replace(
        "batch_size < 4", "batch_size < 1"
    )
    (run.directory / "chat.yaml").write_text(rules, encoding="utf-8")
    found = run.json("chat.yaml", "--recording", pages, "--step", "1s", "--window", "5s")
    (replay,) = found["replays"]
    assert found["dated"] is False
    assert replay["moments"] == len(recordings.series())
    (flip,) = replay["flips"]
    assert (flip["from"], flip["to"]) == ("speculating", "off"), "n-gram was seen to draft"
    # The first moment at which five seconds had more than four running on average.
    noted = recordings.series()
    means = [
        (s.t, sum(o.noted["running"] for o in noted if s.t - 5 <= o.t <= s.t) / 6) for s in noted
    ]
    first = next(t for t, mean in means if mean > 4)
    assert abs(float(flip["at"][17:19]) - first) <= 1
    shown = run("chat.yaml", "--recording", pages, "--step", "1s", "--window", "5s")
    assert f"+{float(flip['at'][17:19]):g} s" in shown, "not a date, for the pages have none"


def test_pages_with_dates_have_a_time_of_day(run: Run, pages: str) -> None:
    paths = sorted(Path(pages).glob("*.prom"))
    rules = RULES.replace("batch_size > 32, for: 2m", "time.hour == 10")
    (run.directory / "chat.yaml").write_text(rules, encoding="utf-8")
    folder = run.directory / "dated"
    folder.mkdir()
    start = 1767607200 - 20  # 10:00 UTC comes after twenty seconds
    table = ["file,t"]
    for number, path in enumerate(paths):
        (folder / path.name).write_bytes(path.read_bytes())
        table.append(f"{path.name},{start + number}")
    (folder / "times.csv").write_text("\n".join(table), encoding="utf-8")
    found = run.json("chat.yaml", "--recording", str(folder), "--step", "1s")
    assert found["dated"] is True
    assert found["replays"][0]["flips"][0]["at"] == "2026-01-05T10:00:00+00:00"


# --- what is refused


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param([], "say what to replay", id="no source"),
        pytest.param(
            ["--readings", "a.csv", "--recording", "b"], "one of --readings and", id="two sources"
        ),
        pytest.param(
            ["--prometheus-url", "http://127.0.0.1:1", "--from", "1h"],
            "name the policy",
            id="Prometheus without a target",
        ),
        pytest.param(
            ["--prometheus-url", "http://127.0.0.1:1", "--policy", "policy.yaml"],
            "say where to begin",
            id="Prometheus without a time",
        ),
        pytest.param(
            ["--readings", "-", "--from", "yesterday"], "'yesterday'", id="no time at all"
        ),
        pytest.param(
            ["--readings", "-", "--from", "2027-01-01T00:00:00Z"],
            "nothing of it is left",
            id="a time after the series",
        ),
        pytest.param(
            ["--readings", "-", "--step", "5"], "a duration such as", id="a step without unit"
        ),
        pytest.param(["--readings", "-", "--step", "0s"], "above 0", id="a step of nothing"),
        pytest.param(
            ["--readings", "-", "--policy", "policy.yaml", "--ran", "eagle9"],
            "no setting eagle9",
            id="a setting that the policy lacks",
        ),
        pytest.param(
            ["--readings", "-", "--policy", "chat.yaml"],
            "holds 0 SpeculationPolicies",
            id="a file of something else",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_remedy(
    run: Run, words: list[str], expected: str
) -> None:
    assert expected in run.refused("chat.yaml", *words, stdin=csv())


def test_rows_need_a_time(run: Run) -> None:
    assert "column 'time'" in run.refused("chat.yaml", "--readings", "-", stdin="batch_size\n40\n")


# --- what it would have gained or lost

STEADY = """\
apiVersion: specpilot.io/v1alpha1
kind: RuleSet
metadata: {name: steady}
spec:
  rules: [{name: stay, when: batch_size >= 0, setting: ngram}]
"""
SPEED = {"off": 30.0, "ngram": 36.0}


def speeds(*spells: tuple[str, int, float]) -> str:
    """A minute a row: so many minutes of a setting at a batch size."""
    lines = ["time,batch_size,setting.name,tokens_per_second,tokens_per_second_per_request"]
    minute = 0
    for setting, minutes, batch in spells:
        for _ in range(minutes):
            lines.append(
                f"{60 * minute},{batch},{setting},{SPEED[setting] * batch},{SPEED[setting]}"
            )
            minute += 1
    return "\n".join([*lines, ""])


@pytest.fixture
def steady(run: Run) -> str:
    path = run.directory / "steady.yaml"
    path.write_text(STEADY, encoding="utf-8")
    return str(path)


def test_a_gain_rests_on_stretches_in_which_the_other_setting_ran(run: Run, steady: str) -> None:
    text = speeds(("ngram", 40, 20.0), ("off", 40, 20.0))
    (found,) = run.json(steady, "--readings", "-", stdin=text)["replays"]
    gain = found["gain"]
    # The first five minutes of off reach back to ngram: not known.
    assert gain["seconds"] == {"same": 39 * 60, "measured": 0, "recorded": 35 * 60, "stated": 0}
    assert gain["not_known_seconds"] == 5 * 60
    assert gain["relative"] == pytest.approx(0.2)
    assert gain["tokens"] == pytest.approx(35 * 60 * 20 * (36 - 30))
    assert gain["tokens_per_second"] == pytest.approx(120)


def test_a_gain_is_told_in_every_picture(run: Run, steady: str) -> None:
    text = speeds(("ngram", 40, 20.0), ("off", 40, 20.0))
    words = ["--svg", "p.svg", "--html", "p.html", "--compare", "chat.yaml"]
    said = " ".join(run(steady, "--readings", "-", *words, stdin=text).split())
    assert "about +252,000 output tokens (+20.0%), +120.0 tokens/s over the 35 min" in said
    assert "35 min by stretches of the recording in which it ran at a like load" in said
    assert "not known: 5 min, what ran had changed within the window" in said
    assert "chat.yaml against" in said
    for name in ("p.svg", "p.html"):
        page = (run.directory / name).read_text(encoding="utf-8").replace("&#160;", " ")
        assert "+252,000" in page


def test_another_load_is_no_measurement(run: Run, steady: str) -> None:
    text = speeds(("ngram", 40, 20.0), ("off", 40, 60.0))
    found = run.json(steady, "--readings", "-", stdin=text)["replays"][0]["gain"]
    assert (found["tokens"], found["relative"], found["tokens_per_second"]) == (None, None, None)
    assert found["not_known_seconds"] == 40 * 60
    assert "not known" in run(steady, "--readings", "-", stdin=text)


def test_two_rule_sets_differ_by_what_both_are_known_to_be_worth(run: Run, steady: str) -> None:
    never = STEADY.replace("steady", "never").replace("setting: ngram", 'setting: "off"')
    (run.directory / "never.yaml").write_text(never, encoding="utf-8")
    text = speeds(("ngram", 40, 20.0), ("off", 40, 20.0))
    told = run.json("never.yaml", "--compare", steady, "--readings", "-", stdin=text)
    never_gain, steady_gain = (replay["gain"]["tokens"] for replay in told["replays"])
    assert never_gain == pytest.approx(-39 * 60 * 20 * 6)
    difference = told["difference"]
    assert difference["tokens"] == pytest.approx(steady_gain - never_gain)
    assert difference["judged_seconds"] == (39 + 35) * 60
    assert difference["not_known_seconds"] == 5 * 60


def test_the_same_throughout_is_neither_gain_nor_loss(run: Run, steady: str) -> None:
    assert "nothing gained or lost" in run(steady, "--readings", "-", stdin=speeds(("ngram", 9, 4)))


def test_costs_of_the_operator_are_used_where_its_database_is_here(run: Run, steady: str) -> None:
    config = config_hash(render(NGRAM, version="0.32.0").config)
    measured = measurement(batch=20, config=config, target="Deployment/prod/chat", speedup=1.25)
    with closing(open_state(run.directory / "state")) as store, store.begin() as unit:
        unit.measurements.add(measured)
    text = speeds(("off", 40, 20.0))
    words = [steady, "--readings", "-", "--policy", "policy.yaml"]
    gain = run.json(*words, stdin=text)["replays"][0]["gain"]
    assert gain["seconds"]["measured"] == 39 * 60
    assert gain["relative"] == pytest.approx(0.25)


def test_two_pages_tell_no_mean_of_a_gauge(run: Run, pages: str) -> None:
    """As live, where nothing is judged before the third look."""
    words = ["chat.yaml", "--recording", pages, "--step", "1s", "--window"]
    few = run.json(*words, "1s")
    assert few["replays"][0]["blind"] == few["replays"][0]["moments"]
    assert any("two looks cannot tell a mean" in note for note in few["notes"])
    assert not any("two looks" in note for note in run.json(*words, "2s")["notes"])


# --- batch limits that rules keep

LIMITED = POLICY.replace(
    "numSpeculativeTokens: 4", "numSpeculativeTokens: 4, disableAboveBatchSize: 8"
)
LIMITED = LIMITED.replace("flipsPerHour: 1", "flipsPerHour: 4")
AT_SIXTEEN = csv([(at, 16) for at, _ in ROWS], setting="ngram")
"""Nothing that RULES would do anything about."""


@pytest.mark.parametrize(
    ("words", "flips_", "reason"),
    [
        (("--engine-version", "0.17.0"), ["off"], "neither key nor schedule"),
        (("--engine-version", "0.24.0"), [], "a schedule, with the release's defaults"),
        (("--engine-version", "0.24.0", "--data-parallel", "2"), ["off"], "no schedule with two"),
        (("--engine-version", "0.9.1", "--engine", "v0"), [], "V0 keeps it"),
        (("--engine-version", "0.9.1", "--engine", "v1"), ["off"], "V1 does not"),
        (("--engine-version", "0.30.0", "--runner", "v1"), [], "runner 1 follows it"),
        (("--engine-version", "0.30.0"), ["off"], "runner 2 does not"),
        ((), ["off"], "nothing is known of the engine"),
    ],
)
def test_a_limit_takes_part_where_the_engine_does_not_keep_it(
    run: Run, words: tuple[str, ...], flips_: list[str], reason: str
) -> None:
    (run.directory / "limited.yaml").write_text(LIMITED, encoding="utf-8")
    found = run.json(
        "chat.yaml", "--policy", "limited.yaml", "--readings", "-", *words, stdin=AT_SIXTEEN
    )
    (replay,) = found["replays"]
    assert [to for _, _, to in flips(replay)] == flips_, reason
    said = [note for note in found["notes"] if "disableAboveBatchSize 8 of ngram" in note]
    assert len(said) == len(flips_)
    if flips_:
        assert replay["flips"][0]["rule"] == "disableAboveBatchSize:ngram"
        assert flips(replay)[0][0] == "08:15", "three windows of five minutes, as live"


def test_the_window_of_the_replay_is_what_a_limit_waits_for(run: Run) -> None:
    (run.directory / "limited.yaml").write_text(LIMITED, encoding="utf-8")
    words = ("chat.yaml", "--policy", "limited.yaml", "--readings", "-", "--window", "2m")
    (replay,) = run.json(*words, stdin=AT_SIXTEEN)["replays"]
    assert flips(replay)[0][0] == "08:06"


def test_the_engine_of_a_row_counts(run: Run) -> None:
    (run.directory / "limited.yaml").write_text(LIMITED, encoding="utf-8")
    text = AT_SIXTEEN.replace("setting.name", "setting.name,target.engine", 1)
    text = text.replace(",ngram\n", ",ngram,0.24.0\n")
    words = (
        "chat.yaml",
        "--policy",
        "limited.yaml",
        "--readings",
        "-",
        "--engine-version",
        "0.17.0",
    )
    (replay,) = run.json(*words, stdin=text)["replays"]
    assert flips(replay) == []
