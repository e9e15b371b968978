"""The page of complaints says what is tested, and where."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "complaints.md").read_text(encoding="utf-8")
ISSUE = re.compile(r"(?P<project>[\w./-]*[\w-])? ?#(?P<number>\d{2,6})\b")


def issues(text: str) -> set[str]:
    """`flagger#883, #1754` names two of one project."""
    found, project = set(), ""
    for match in ISSUE.finditer(text):
        project = match["project"] or project
        found.add(f"{project}#{match['number']}")
    return found


@cache
def told() -> frozenset[str]:
    """What any test names."""
    files = TESTS.rglob("test_*.py")
    return frozenset(i for path in files for i in issues(path.read_text(encoding="utf-8")))


ROWS = [line.split("|") for line in PAGE.splitlines() if line.startswith("|") and "#" in line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].strip()[:40])
def test_each_complaint_is_named_by_a_test_and_each_test_exists(row: list[str]) -> None:
    _, complaint, answer, where, _ = row
    assert answer.strip()
    for name in re.findall(r"`([\w/]+\.py)`", where):
        paths = [TESTS / name, TESTS / "unit" / "controller" / name]
        assert any(path.is_file() for path in paths), name
    assert issues(complaint) - told() == set()
