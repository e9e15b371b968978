"""`specpilot signals --recording`: what a user has, what a script reads, what is refused."""

import gzip
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from specpilot.cli.recordings import Timing, load, measure
from specpilot.domain.readings import UnknownReason
from specpilot.domain.signals import SIGNALS
from tests import recordings
from tests.unit.cli.signals_command import LOAD, PAGE, answer, refusal, signals


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recordings.unpack(tmp_path_factory.mktemp("recordings"))


def test_a_pair_of_pages_gives_what_the_load_generator_counted(folder: Path) -> None:
    truth = recordings.truth(LOAD)["result"]
    before, after = folder / f"{LOAD}-before.prom", folder / f"{LOAD}-after.prom"
    found = answer("--recording", before, after, "--seconds", str(truth["secs"]))["signals"]
    assert found["drafts"]["value"] == truth["drafts"]
    assert found["acceptance_rate"] == {
        "value": truth["accepted"] / truth["draft_tokens"],
        "reason": None,
        "unit": "ratio",
        "count": truth["drafts"],
        "window_s": truth["secs"],
        "at": None,
        "low": None,
        "high": None,
    }
    assert found["tokens_per_second"]["value"] == truth["gen_metric"] / truth["secs"]
    assert found["ttft_p50"]["low"] < found["ttft_p50"]["value"] < found["ttft_p50"]["high"]


def test_a_folder_with_times_is_one_measurement(folder: Path) -> None:
    last = recordings.series()[-1]
    found = answer("--recording", folder / recordings.SERIES)
    assert found["signals"]["drafts"]["value"] == last.noted["drafts"]
    assert found["signals"]["drafts"]["window_s"] == last.t
    assert found["engine"] == {"version": None, "speculation": "on"}


@pytest.mark.parametrize(
    ("page", "speculation", "reason"),
    [
        ("0.32.0-nospec-random-c4-after", "off", "V1 exports the series exactly while it is on"),
        ("0.32.0-ngram-idle-zero-requests", "on", "at 0 from the start"),
        ("0.32.0-dynamic-repetitive-c16-after", "on", "also while K is 0"),
        ("0.10.2-nospec-mixed-c4-after", "off", "V1, older"),
        ("0.8.5-ngram-v0-repetitive-c4-after", "on", "V0, by its own series"),
        ("0.8.5-ngram-v0-repetitive-c2-during", "unknown", "V0 shows them after some seconds only"),
        ("0.8.5-ngram-v0-idle-zero-requests", "unknown", "V0 shows nothing before a request"),
    ],
)
def test_whether_it_speculates(page: str, speculation: str, reason: str, folder: Path) -> None:
    found = answer("--recording", folder / f"{page}.prom")
    assert found["engine"]["speculation"] == speculation, reason


def test_pages_without_series_of_the_engine_name_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "quiet.prom"
    path.write_text('python_info{version="3.12"} 1\n')
    found = answer("--recording", path)
    assert found["engine"]["speculation"] == "unknown"
    assert found["signals"]["batch_size"]["reason"] == "NotExported"
    assert "--disable-log-stats" in signals("--recording", path).stdout


# --- the form that scripts rely on

KEYS = {"value", "reason", "unit", "count", "window_s", "at", "low", "high"}
NUMBER = (int, float)


@pytest.mark.parametrize("name", recordings.names("*-after.prom") + recordings.names("*idle*.prom"))
def test_every_answer_has_the_promised_form(name: str, folder: Path) -> None:
    before = folder / name.replace("-after", "-before")
    pages = [before, folder / name] if before.name != name else [before]
    more = ["--seconds", "10"] if len(pages) > 1 else []
    check_form(answer("--recording", *pages, *more))


def check_form(found: dict[str, Any]) -> None:
    assert list(found) == ["signals", "engine"]
    assert list(found["signals"]) == list(SIGNALS), "every signal of the catalogue, no other"
    for signal, reading in found["signals"].items():
        assert set(reading) == KEYS
        assert reading["unit"] == SIGNALS[signal].unit
        assert (reading["value"] is None) == (reading["reason"] is not None)
        assert reading["reason"] is None or reading["reason"] in set(UnknownReason)
        for key in ("value", "count", "window_s", "low", "high"):
            assert reading[key] is None or isinstance(reading[key], NUMBER), (signal, key)
        assert reading["at"] is None or isinstance(reading["at"], str)
    assert set(found["engine"]) == {"version", "speculation"}
    assert found["engine"]["speculation"] in {"on", "off", "unknown"}


# --- what a user has


def test_a_loop_of_curl_is_ordered_by_number(tmp_path: Path) -> None:
    """1.prom .. 12.prom sort as 1, 10, 11, 12, 2 by their letters."""
    chosen = recordings.series()[8:20]
    for i, scrape in enumerate(chosen, start=1):
        (tmp_path / f"{i}.prom").write_bytes(scrape.page)
    found = answer("--recording", tmp_path, "--interval", "1")["signals"]
    assert found["drafts"]["value"] == chosen[-1].noted["drafts"] - chosen[0].noted["drafts"]
    assert found["drafts"]["window_s"] == 11


def test_times_are_taken_by_name_where_the_table_has_names(tmp_path: Path) -> None:
    first, last = recordings.series()[8], recordings.series()[18]
    (tmp_path / "b.prom").write_bytes(first.page)
    (tmp_path / "a.prom").write_bytes(last.page)
    (tmp_path / "times.csv").write_text("file,t\na.prom,1795971310.5\nb.prom,1795971300.5\n")
    found = answer("--recording", tmp_path)["signals"]
    assert found["drafts"]["value"] == last.noted["drafts"] - first.noted["drafts"]
    assert found["drafts"]["at"] == "2026-11-29T16:55:10.500000+00:00", "seconds since 1970: a date"


def test_modification_times_count_when_asked_for(tmp_path: Path) -> None:
    for name, scrape, at in (("x", 8, 1.7e9), ("a", 18, 1.7e9 + 10)):
        path = tmp_path / f"{name}.prom"
        path.write_bytes(recordings.series()[scrape].page)
        os.utime(path, (at, at))
    found = answer("--recording", tmp_path, "--mtime")["signals"]
    assert found["drafts"]["window_s"] == 10
    assert found["drafts"]["at"].startswith("2023-11-14T22:13:30")


def test_a_page_may_come_from_a_pipe() -> None:
    page = recordings.read("0.32.0-nospec-random-c4-after.prom")
    assert answer("--recording", "-", stdin=page)["engine"]["speculation"] == "off"


def test_a_person_gets_a_table_with_the_reasons_below(folder: Path) -> None:
    before, after = folder / f"{LOAD}-before.prom", folder / f"{LOAD}-after.prom"
    shown = signals("--recording", before, after, "--seconds", "28.568").stdout
    assert "2 pages over 28.568 s; speculation: on" in shown
    for name in SIGNALS:
        if "_pos_" not in name:
            assert name in shown
    assert "acceptance_rate_pos_4..15" in shown, "what is unknown for one reason shares a row"
    assert "no draft is longer than 4 tokens" in shown


def test_the_same_code_as_the_live_scrape(folder: Path) -> None:
    """`--json` shows what `measure` gives, to the last digit."""
    before, after = folder / f"{LOAD}-before.prom", folder / f"{LOAD}-after.prom"
    found = answer("--recording", before, after, "--seconds", "10")["signals"]
    readings = measure(load([before, after], Timing(seconds=10)))
    assert {n: r["value"] for n, r in found.items()} == {n: readings.value(n) for n in SIGNALS}


# --- what is refused


@dataclass(frozen=True)
class Bad:
    """Words of a command with `{dir}`, files to write first, and what the refusal says."""

    reason: str
    words: str
    says: str
    files: dict[str, bytes] = field(default_factory=dict)


TWO = {"a.prom": PAGE, "b.prom": PAGE}
BAD = [
    Bad("nothing to measure", "", "give either --policy"),
    Bad("two things to measure", "--policy x --recording {dir}/a.prom", "give either", TWO),
    Bad("a file that is not there", "--recording {dir}/no.prom", "no.prom: No such file"),
    Bad("a folder without pages", "--recording {dir}", "there is no .prom file in"),
    Bad("an empty file", "--recording {dir}/a.prom", "it is empty", {"a.prom": b""}),
    Bad("an error page", "--recording {dir}/a.prom", "it begins with '<html>'",
        {"a.prom": b"<html>\n<h1>404</h1>"}),
    Bad("HTML with a number", "--recording {dir}/a.prom", "is no page of /metrics",
        {"a.prom": b"<html>\nnginx 1.27\n<body>\nError 502\n</body>\n</html>\n"}),
    Bad("words", "--recording {dir}/a.prom", "is no page of /metrics",
        {"a.prom": b"Internal Server Error\nupstream is down\n"}),
    Bad("comments alone", "--recording {dir}/a.prom", "is no page of /metrics",
        {"a.prom": b"# HELP vllm:x y\n# TYPE vllm:x gauge\n"}),
    Bad("the middle of a line", "--recording {dir}/a.prom", "ends in the middle of a line",
        {"a.prom": PAGE[:-1]}),
    Bad("the middle of a histogram", "--recording {dir}/a.prom", "a.prom looks cut off",
        {"a.prom": PAGE + b'vllm:x_bucket{le="+Inf"} 4\n'}),
    Bad("a family without samples", "--recording {dir}/a.prom", "a.prom looks cut off",
        {"a.prom": PAGE + b"# HELP vllm:x of the\n"}),
    Bad("pages have no Prometheus", "--recording {dir}/a.prom --prometheus http://h:1",
        "leave it out", TWO),
    Bad("a picture", "--recording {dir}/a.prom", "is no page of /metrics", {"a.prom": bytes(99)}),
    Bad("compressed", "--recording {dir}/a.prom", "unpack it with `gunzip`",
        {"a.prom": gzip.compress(PAGE)}),
    Bad("redirected by PowerShell", "--recording {dir}/a.prom", "is UTF-16",
        {"a.prom": b"\xff\xfe" + PAGE.decode().encode("utf-16-le")}),
    Bad("a folder without times", "--recording {dir}", "two pages, but not how far apart", TWO),
    Bad("three pages without times", "--recording {dir}", "put a times.csv with the columns file",
        {**TWO, "c.prom": PAGE}),
    Bad("two files without times", "--recording {dir}/a.prom {dir}/b.prom", "--seconds", TWO),
    Bad("--seconds of one page", "--recording {dir}/a.prom --seconds 5", "there is one page", TWO),
    Bad("--seconds of three", "--recording {dir} --seconds 5", "there are 3",
        {**TWO, "c.prom": PAGE}),
    Bad("no time at all", "--recording {dir} --interval 0", "--interval: 0 is no time", TWO),
    Bad("time backwards", "--recording {dir} --seconds -3", "--seconds: -3 is no time", TWO),
    Bad("not a number", "--recording {dir} --interval nan", "nan is no time", TWO),
    Bad("without end", "--recording {dir} --interval inf", "inf is no time", TWO),
    Bad("words for a number", "--recording {dir} --interval five", "--interval", TWO),
    Bad("two kinds of times", "--recording {dir} --interval 5 --mtime", "give one of", TWO),
    Bad("a page twice", "--recording {dir}/a.prom {dir}/a.prom --seconds 5", "given twice", TWO),
    Bad("stdin has no mtime", "--recording - --mtime", "stdin has no modification time"),
    Bad("a table without t", "--recording {dir}", "has no column t",
        {**TWO, "times.csv": b"time\n1\n2\n"}),
    Bad("a table that is too short", "--recording {dir}", "1 rows for 2 pages",
        {**TWO, "times.csv": b"t\n1\n"}),
    Bad("a time that is none", "--recording {dir}", "row 2: t is 'soon'",
        {**TWO, "summary.csv": b"t\n1\nsoon\n"}),
    Bad("a time that is NaN", "--recording {dir}", "row 1: t is 'nan'",
        {**TWO, "summary.csv": b"t\nnan\n3\n"}),
    Bad("the same time twice", "--recording {dir}", "have the same time",
        {**TWO, "times.csv": b"t\n1\n1\n"}),
    Bad("a file that the table does not have", "--recording {dir}", "no row for b.prom",
        {**TWO, "times.csv": b"file,t\na.prom,1\nc.prom,2\n"}),
    Bad("a table in another encoding", "--recording {dir}", "as UTF-8",
        {**TWO, "times.csv": b"t\n\xff\n"}),
    Bad("pages are not watched", "--recording {dir}/a.prom --watch", "for a running target", TWO),
    Bad("pages have no namespace", "--recording {dir}/a.prom -n x", "for a running target", TWO),
    Bad("files of nothing", "--policy x {dir}/a.prom", "come after --recording", TWO),
    Bad("times of a running target", "--policy x --seconds 4", "are for saved pages"),
    Bad("Prometheus of this machine", "--policy x --prometheus http://h:1",
        "--prometheus: is for a policy of a cluster; say its namespace with -n"),
    Bad("its credentials", "--policy x --prometheus-username u", "say its namespace with -n"),
    Bad("GPUs of this machine", "--policy x --gpu-matchers a='b'", "say its namespace with -n"),
    Bad("GPUs of no Prometheus", "--policy x -n y --gpu-matchers a='b'",
        "--gpu-matchers: goes with --prometheus URL"),
    Bad("measuring for no time", "--policy x --for 0", "--for: 0 is no time to measure"),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.reason)
def test_bad_input_is_refused_with_a_remedy(bad: Bad, tmp_path: Path) -> None:
    for name, content in bad.files.items():
        (tmp_path / name).write_bytes(content)
    assert bad.says in refusal(*bad.words.format(dir=tmp_path).split(), stdin=PAGE)
