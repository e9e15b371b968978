"""The order in which files are handed to the workers of a parallel run: long waits first.

What needs a cluster or processes waits most of its time, and a file of it may take two minutes.
Begun last, it would be waited for by idle workers; begun first, its waiting is filled by the unit
tests, which compute. Those that simulate hours of steering come first among them.
"""

from collections.abc import Iterable
from pathlib import PurePath
from typing import TypeVar

FIRST = (
    "tests/scenarios",
    "tests/engine",
    "tests/integration/kubernetes",
    "tests/integration",
    "tests/cluster",
    "tests/unit/controller",
    "tests/unit/domain",
    "tests/unit/telemetry",
    "tests/unit",
)
"""Directories, those whose files take longest first; of two that fit, the first counts."""

T = TypeVar("T")


def rank(path: PurePath) -> int:
    """Place of a test file, relative to the checkout; smaller begins earlier."""
    places = (n for n, directory in enumerate(FIRST) if path.is_relative_to(directory))
    return next(places, len(FIRST))


def ordered(items: Iterable[tuple[PurePath, T]]) -> list[T]:
    """Order what belongs to files; what belongs to the same directory keeps its order."""
    return [item for _, item in sorted(items, key=lambda pair: rank(pair[0]))]
