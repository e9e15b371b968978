"""Files that wait are begun before files that compute, and no entry names what is gone."""

import itertools
from pathlib import Path, PurePath

import pytest

from tests.order import FIRST, ordered, rank

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("directory", FIRST)
def test_each_directory_is_there_and_is_the_first_that_fits(directory: str) -> None:
    assert (ROOT / directory).is_dir()
    assert FIRST[rank(PurePath(directory, "test_a.py"))] == directory, "an earlier one hides it"


def test_every_test_file_has_a_place() -> None:
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [str(path) for path in files if rank(path) == len(FIRST)] == []


def test_what_belongs_to_a_file_stays_together_and_in_its_order() -> None:
    files = [PurePath("tests/unit/cli/test_b.py"), PurePath("tests/scenarios/test_a.py")]
    items = [(path, (path.name, number)) for path in files for number in range(3)]
    found = ordered(items)
    assert [name for name, _ in itertools.groupby(found, key=lambda item: item[0])] == [
        "test_a.py",
        "test_b.py",
    ]
    assert [number for _, number in found] == [0, 1, 2, 0, 1, 2]
