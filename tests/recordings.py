"""Metric texts of real vLLM servers, read from one archive; see `tests/data/README.md`.

They are the ground that telemetry, the command line and the simulator are held to. One archive
instead of two hundred files: 8 MB of pages that differ in a few numbers take 90 kB.
"""

from __future__ import annotations

import csv
import difflib
import fnmatch
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parent / "data" / "recordings.tar.xz"

SERIES = "0.32.0-ngram-seqs8-series"
"""The folder of the scrapes of one server, a second apart."""


@cache
def members() -> Mapping[str, bytes]:
    """Every file of the archive by name."""
    found = {}
    with tarfile.open(ARCHIVE, "r:xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None, f"{member.name} is no file"
            found[member.name] = file.read()
    return found


def names(pattern: str = "*") -> list[str]:
    """Names that match, sorted. `*` matches a slash too."""
    return sorted(fnmatch.filter(members(), pattern))


def read(name: str) -> bytes:
    """One file.

    Raises:
        KeyError: There is none of that name; says which are like it.
    """
    if name not in members():
        near = ", ".join(difflib.get_close_matches(name, members(), n=3))
        raise KeyError(f"{name} is not among the recordings; near it: {near or 'nothing'}")
    return members()[name]


def truth(stem: str) -> dict[str, Any]:
    """What was noted beside a recording: launch arguments, and the result of the load if known."""
    found: dict[str, Any] = json.loads(read(f"{stem}.json"))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One load on one server.

    Attributes:
        stem: `<version>-<server>-<load>-c<concurrency>`.
        before: The page before the load.
        after: The page after it.
        during: The page one second into it.
        result: What the load generator counted, empty where it was not noted.
    """

    stem: str
    before: bytes
    after: bytes
    during: bytes
    result: Mapping[str, Any]

    @property
    def version(self) -> str:
        """The engine's version."""
        return self.stem.partition("-")[0]

    @property
    def server(self) -> str:
        """`nospec`, `ngram`, `draft`, `dynamic` or `ngram-v0`."""
        return "ngram-v0" if "-ngram-v0-" in self.stem else self.stem.split("-")[1]

    @property
    def seconds(self) -> float:
        """How long the load took; 20 where it was not noted, since the pages do not say."""
        return float(self.result.get("secs", 20.0))


@cache
def loads() -> tuple[Recording, ...]:
    """Every load that has a page before it and one after."""
    stems = [name.removesuffix("-before.prom") for name in names("*-before.prom")]
    return tuple(
        Recording(
            stem=stem,
            before=read(f"{stem}-before.prom"),
            after=read(f"{stem}-after.prom"),
            during=read(f"{stem}-during.prom"),
            result=truth(stem).get("result", {}),
        )
        for stem in stems
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One scrape of the series: seconds since the first, the page, and what was noted of it."""

    t: float
    page: bytes
    noted: Mapping[str, float]


@cache
def series() -> tuple[Scrape, ...]:
    """The series in order of time."""
    rows = csv.DictReader(io.StringIO(read(f"{SERIES}/summary.csv").decode()))
    pages = [read(name) for name in names(f"{SERIES}/*.prom")]
    return tuple(
        Scrape(t=float(row["t"]), page=page, noted={k: float(v) for k, v in row.items()})
        for row, page in zip(rows, pages, strict=True)
    )


def unpack(folder: Path, pattern: str = "*") -> Path:
    """Write the files that match into a folder, for what reads files; returns the folder."""
    for name in names(pattern):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(read(name))
    return folder
