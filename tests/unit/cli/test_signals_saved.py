"""`specpilot signals --recording`: what a person mixes up, and what two pages cannot tell."""

import os
from pathlib import Path

import pytest

from tests import recordings
from tests.unit.cli.signals_command import LOAD, PAGE, answer, refusal, signals


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recordings.unpack(tmp_path_factory.mktemp("recordings"))


# --- the order of pages


def test_files_are_taken_in_the_order_given(tmp_path: Path) -> None:
    first, middle, last = (recordings.series()[i] for i in (8, 12, 18))
    paths = [tmp_path / name for name in ("b.prom", "d.prom", "a.prom")]
    for path, scrape in zip(paths, (first, middle, last), strict=True):
        path.write_bytes(scrape.page)
    found = answer("--recording", *paths, "--interval", "5")["signals"]
    assert found["drafts"]["value"] == last.noted["drafts"] - first.noted["drafts"]
    assert found["drafts"]["window_s"] == 10


@pytest.mark.parametrize("name", recordings.names("*-after.prom"))
def test_a_true_pair_is_taken_without_a_word(name: str, folder: Path) -> None:
    before, after = folder / name.replace("-after", "-before"), folder / name
    assert not signals("--recording", before, after, "--seconds", "10").stderr


@pytest.mark.parametrize(
    ("first", "second", "words", "reason"),
    [
        ("LOAD-after.prom", "LOAD-before.prom", "{dir}/{0} {dir}/{1}", "files the wrong way round"),
        ("x-after-1.prom", "x-before-2.prom", "{dir}", "a folder, which sorts a before b"),
        ("AFTER.prom", "before.prom", "{dir}", "capitals sort first"),
        ("after.prom", "during.prom", "{dir}", "during comes first too"),
    ],
)
def test_names_tell_before_from_after(
    first: str, second: str, words: str, reason: str, tmp_path: Path
) -> None:
    truth = recordings.truth(LOAD)["result"]
    (tmp_path / first).write_bytes(recordings.read(f"{LOAD}-after.prom"))
    (tmp_path / second).write_bytes(recordings.read(f"{LOAD}-before.prom"))
    pages = words.format(first, second, dir=tmp_path).split()
    found = answer("--recording", *pages, "--seconds", "10")["signals"]
    assert found["drafts"]["value"] == truth["drafts"], reason


@pytest.mark.parametrize(
    ("timing", "remedy"),
    [
        ("{dir}/a.prom {dir}/b.prom --seconds 30", "swap them, the earlier page first"),
        ("{dir} --seconds 30", "swap them, the earlier page first by name"),
        ("{dir} --interval 30", "those of a folder by their names"),
        ("{dir} --mtime", "swap their times"),
    ],
)
def test_pages_in_the_wrong_order_are_refused(timing: str, remedy: str, tmp_path: Path) -> None:
    for name, stage, at in (("a", "after", 1.7e9), ("b", "before", 1.7e9 + 9)):
        path = tmp_path / f"{name}.prom"
        path.write_bytes(recordings.read(f"{LOAD}-{stage}.prom"))
        os.utime(path, (at, at))
    said = refusal("--recording", *timing.format(dir=tmp_path).split())
    assert f"{tmp_path}/b.prom counts less than {tmp_path}/a.prom" in said
    assert "process is the same" in said
    assert remedy in said


def test_a_process_does_not_start_before_the_one_it_follows(tmp_path: Path) -> None:
    start = b"process_start_time_seconds %d\n" + PAGE
    (tmp_path / "a.prom").write_bytes(start % 1_800_000_100)
    (tmp_path / "b.prom").write_bytes(start % 1_800_000_000)
    pages = tmp_path / "a.prom", tmp_path / "b.prom"
    assert "started before that of" in refusal("--recording", *pages, "--seconds", "5")
    assert answer("--recording", *reversed(pages), "--seconds", "5"), "a restart"


def test_pages_that_do_not_tell_their_process_are_warned_about(tmp_path: Path) -> None:
    stem = "0.8.5-ngram-v0-repetitive-c4"
    pages = [tmp_path / "a.prom", tmp_path / "b.prom"]
    for path, stage in zip(pages, ("after", "before"), strict=True):
        path.write_bytes(recordings.read(f"{stem}-{stage}.prom"))
    result = signals("--recording", *pages, "--seconds", "10")
    assert result.exit_code == 0, "it may have restarted"
    assert "is the earlier page not the first?" in result.stderr


# --- what a pair cannot tell


def test_two_looks_tell_no_mean_of_a_gauge(folder: Path) -> None:
    before, after = folder / f"{LOAD}-before.prom", folder / f"{LOAD}-after.prom"
    words = "--recording", before, after, "--seconds", "10"
    found = answer(*words)["signals"]
    means = ("batch_size", "queue_depth", "kv_cache_usage", "tokens_per_second_per_request")
    for name in means:
        assert (found[name]["value"], found[name]["reason"]) == (None, "TooFewSamples"), name
    assert found["tokens_per_second"]["value"] > 0, "counters need no third look"
    assert "two looks cannot tell a mean; save pages in between" in signals(*words).stdout


def test_three_looks_tell_a_mean_of_a_gauge(folder: Path) -> None:
    pages = [folder / f"{LOAD}-{stage}.prom" for stage in ("before", "during", "after")]
    found = answer("--recording", *pages, "--interval", "10")["signals"]
    assert found["batch_size"]["value"] > 0
    assert found["batch_size"]["count"] == 3


def test_an_idle_series_does_not_blame_the_number_of_looks(tmp_path: Path) -> None:
    for i in range(4):
        page = recordings.read("0.32.0-ngram-idle-zero-requests.prom")
        (tmp_path / f"{i}.prom").write_bytes(page)
    words = "--recording", tmp_path, "--interval", "5"
    assert answer(*words)["signals"]["batch_size"]["value"] == 0
    shown = signals(*words).stdout
    assert "no request was seen running" in shown
    assert "two looks" not in shown


def test_where_speculation_is_unknown_it_is_not_called_off(folder: Path) -> None:
    shown = signals("--recording", folder / "0.8.5-ngram-v0-idle-zero-requests.prom").stdout
    assert "speculation: unknown" in shown
    assert "whether the engine speculates is not known" in shown
    assert "is off" not in shown
    off = signals("--recording", folder / "0.32.0-nospec-random-c4-after.prom").stdout
    assert "speculation: off" in off
    assert "speculation is off on these replicas" in off


def test_what_the_operator_keeps_is_said(folder: Path) -> None:
    shown = signals("--recording", folder / f"{LOAD}-after.prom").stdout
    assert "NoData: kept by the operator and not measured here" in shown
    assert "specpilot explain" in shown
    assert "  cost_ratio, acceptance_baseline" in shown


# --- pages that broke off


@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("at_a_line", [True, False])
def test_a_page_cut_off_is_refused(
    stage: str, share: float, at_a_line: bool, tmp_path: Path
) -> None:
    for each in ("before", "after"):
        page = recordings.read(f"{LOAD}-{each}.prom")
        if each == stage:
            page = page[: page.index(b"\n", int(len(page) * share)) + (1 if at_a_line else -1)]
        (tmp_path / f"{each}.prom").write_bytes(page)
    said = refusal("--recording", tmp_path, "--seconds", "10")
    assert f"{stage}.prom looks cut off" in said
    assert "fetch it again" in said
