"""A command line means the same to the simulator as to the engine: see ``argument_table.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from specpilot.sim.arguments import parse
from specpilot.sim.launch import LaunchRefused
from tests.engine.argument_table import ROWS, STARTED, Row, write_files
from tests.engine.asking import ask
from tests.engine.metrics import scrape
from tests.engine.servers import Subject, started

pytestmark = pytest.mark.timeout(1200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a command line."""

    exit_code: int
    output: str = ""
    method: str = ""
    depth: int = 0


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("arguments"))


@pytest.fixture(scope="module")
def verdicts(subject: Subject, files: Path) -> dict[str, Verdict]:
    """What the subject says of every row, short of loading a model."""
    asked = ask_simulator if subject.name == "simulator" else ask_engine
    lines = [[*subject.arguments, *row.arguments(files=files, draft=subject.draft)] for row in ROWS]
    return dict(zip([row.name for row in ROWS], asked(subject, lines), strict=True))


def ask_simulator(subject: Subject, lines: list[list[str]]) -> Iterator[Verdict]:
    for line in lines:
        try:
            launch = parse(["serve", "tiny", *line], environment={})
        except LaunchRefused as refusal:
            yield Verdict(exit_code=refusal.code, output=refusal.message)
        else:
            found = launch.speculation
            yield Verdict(
                exit_code=0,
                method=found.method if found else "",
                depth=found.depth if found else 0,
            )


def ask_engine(subject: Subject, lines: list[list[str]]) -> Iterator[Verdict]:
    for answer in ask(subject, lines):
        found = answer["speculation"] or {}
        yield Verdict(
            exit_code=answer["exit_code"],
            output=answer["output"],
            method=found.get("method", ""),
            depth=found.get("num_speculative_tokens", 0),
        )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_command_line(row: Row, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[row.name]
    assert verdict.exit_code == row.exit_code, f"{row.reason}: {verdict.output[-2000:]}"
    assert (verdict.method, verdict.depth) == (row.method, row.depth), row.reason
    assert re.search(row.says, verdict.output), verdict.output[-2000:]


def test_what_a_command_line_means_is_what_happens(
    subject: Subject, files: Path, tmp_path: Path
) -> None:
    lines = [row.arguments(files=files, draft=subject.draft) for row in STARTED]
    # Two at a time: each real server takes four gigabytes and all of a core while it starts.
    for pair in (slice(0, 2), slice(2, 4)):
        with started(subject, *lines[pair], folder=tmp_path) as servers:
            for row, server in zip(STARTED[pair], servers, strict=True):
                assert server.settle() == (row.exit_code or None), server.describe()
                assert re.search(row.says, server.output), server.describe()
                if row.exit_code == 0:
                    speculates = "vllm:spec_decode_num_drafts" in scrape(server)
                    assert speculates == bool(row.method), row.reason
