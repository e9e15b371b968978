"""Pages saved from `/metrics`, measured as if they were scraped now.

What a user has is a handful of files: one page, one before and one after a load, or a folder that a
loop of `curl` has filled. The pages do not say when they were scraped, and every rate depends on
it: so the time has to come from the user, and nothing is guessed.
"""

import csv
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import typer

from specpilot.cli.readings import plain
from specpilot.domain.readings import Reading, Readings, UnknownReason
from specpilot.telemetry.derive import derive
from specpilot.telemetry.exposition import PROCESS_START, Page, parse
from specpilot.telemetry.history import History
from specpilot.telemetry.names import Counter
from specpilot.telemetry.windows import Arm

_TIMES = ("times.csv", "summary.csv")
_SUFFIX = ".prom"
_PAIR = 2
_EPOCH_FROM = 1e9
"""A time from here on is a date (September 2001 and later), one below counts from a start."""
_YEAR = 366 * 86400.0
_SHOWN = 60

_SERIES = re.compile(rb"^[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^\n]*\})?[ \t]+[^ \t\r\n]", re.MULTILINE)
_ONLY_V0 = re.compile(rb"^vllm:lora_requests_info\{(?![^\n]*engine=)", re.MULTILINE)
"""The V1 engine labels every series with the number of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What the user says of the times; at most one of them.

    Attributes:
        interval_s: Seconds between pages, in the order of their names.
        seconds: Seconds between two pages, in the order given.
        mtime: The files were written when they were scraped.
    """

    interval_s: float | None = None
    seconds: float | None = None
    mtime: bool = False

    @property
    def given(self) -> bool:
        """Whether anything was said."""
        return self.interval_s is not None or self.seconds is not None or self.mtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One file: its page and when it was scraped, in seconds since some start or the epoch."""

    name: str
    at: float
    text: bytes
    page: Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Pages of one replica in order of time."""

    saved: tuple[Saved, ...]

    @property
    def dated(self) -> bool:
        """Whether the times are dates."""
        return self.saved[-1].at >= _EPOCH_FROM

    @property
    def end(self) -> datetime:
        """When the newest page was scraped."""
        return datetime.fromtimestamp(self.saved[-1].at, UTC)


def load(paths: Sequence[Path], timing: Timing) -> Recording:
    """Read saved pages and place them in time.

    Args:
        paths: One folder of `.prom` files, or files; `-` is stdin.
        timing: What the user says of the times.

    Raises:
        BadParameter: Something is missing or cannot be used; names the file and the remedy.
    """
    _check(timing)
    folder = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    files = _pages_of(folder) if folder is not None else list(paths)
    if timing.interval_s is not None:
        files.sort(key=_natural)
    if len(files) != len(set(files)):
        twice = next(str(file) for file in files if files.count(file) > 1)
        raise _refused(f"{twice} is given twice; give each page once")
    if timing.seconds is not None and len(files) != _PAIR:
        raise _refused(
            f"is the time between two pages, but there {_count(len(files))}; name the page before "
            "and the one after, or use --interval",
            option="--seconds",
        )
    texts = [_text(file) for file in files]
    times = _times(files, folder, timing)
    order = sorted(range(len(files)), key=lambda i: times[i])
    saved = tuple(
        Saved(name=files[i].name, at=times[i], text=texts[i], page=parse(texts[i])) for i in order
    )
    for one, other in pairwise(saved):
        if one.at == other.at:
            raise _refused(
                f"{one.name} and {other.name} have the same time; copying files does that to "
                "--mtime: say --interval SECONDS, or write a times.csv"
            )
    return Recording(saved=saved)


def warnings(recording: Recording) -> list[str]:
    """What looks wrong but can be measured."""
    found = []
    for one, other in pairwise(recording.saved):
        old, new = one.page.values, other.page.values
        same = PROCESS_START in old and old[PROCESS_START] == new.get(PROCESS_START)
        if same and any(new.get((c, ""), math.inf) < old.get((c, ""), 0.0) for c in Counter):
            found.append(
                f"{other.name} counts less than {one.name}, yet the process is the same: are the "
                "pages of one replica, and the earlier one first?"
            )
    return found


def measure(recording: Recording) -> Readings:
    """The signals from the first page to the last: the same code as for a live scrape."""
    saved = recording.saved
    start, end = saved[0].at, saved[-1].at
    gaps = [other.at - one.at for one, other in pairwise(saved)]
    history = History(keep_s=math.inf)
    for each in saved:
        history.add(each.at, each.page)
    window = history.window(
        start,
        end,
        replica="the recorded replica",
        interval_s=median(gaps) if gaps else 0.0,
        declared_on=False,
    )
    assert window is not None, "a recording has at least one page"
    arm = Arm(source="saved pages", end=recording.end, window_s=end - start, replicas=(window,))
    ready = Reading(
        signal="replicas_ready",
        reason=UnknownReason.NOT_EXPORTED,
        message="pages do not say how many replicas serve; use --policy for a running target",
        window_s=end - start,
    )
    return Readings.of([*derive(arm, ready=1).values(), ready])


def speculation(recording: Recording) -> str:
    """`on`, `off`, or `unknown` where no page can tell.

    The series exist from the start while an engine speculates. The V0 engine exports them some
    seconds after the first request only, so that its pages without them do not tell.
    """
    pages = [each.page for each in recording.saved]
    newest = next((page for page in reversed(pages) if page.engine), None)
    if newest is None:
        return "unknown"
    if newest.legacy or (Counter.DRAFTS, "") in newest.values:
        return "on"
    counts = any((counter, "") in newest.values for counter in Counter)
    v0 = any(_ONLY_V0.search(each.text) for each in recording.saved)
    return "off" if counts and not v0 else "unknown"


def report(recording: Recording) -> dict[str, Any]:
    """All of it as plain data. An interface: scripts rely on its keys."""
    return {
        "signals": plain(measure(recording), dated=recording.dated),
        # vLLM answers with its version on /version alone; no page has it.
        "engine": {"version": None, "speculation": speculation(recording)},
    }


def _check(timing: Timing) -> None:
    for option, value in (("--interval", timing.interval_s), ("--seconds", timing.seconds)):
        if value is not None and not 0 < value <= _YEAR:
            raise _refused(
                f"{value:g} is no time between pages; give seconds above 0", option=option
            )
    if sum((timing.interval_s is not None, timing.seconds is not None, timing.mtime)) > 1:
        raise _refused("give one of --interval, --seconds and --mtime", option="--interval")


def _pages_of(folder: Path) -> list[Path]:
    try:
        found = sorted((p for p in folder.iterdir() if p.suffix == _SUFFIX), key=_natural)
    except OSError as error:
        raise _refused(f"{folder}: {error.strerror}") from error
    if not found:
        raise _refused(f"there is no {_SUFFIX} file in {folder}; name the files themselves")
    return found


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key by name in which 10 comes after 9, whatever the number of digits."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _text(path: Path) -> bytes:
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise _refused(f"{path}: {error.strerror}; name a file that can be read") from error
    if not _SERIES.search(text):
        begin = text[:_SHOWN].decode(errors="replace").splitlines()
        seen = f"it begins with {begin[0]!r}" if begin else "it is empty"
        raise _refused(f"{path} is no page of /metrics: {seen}; save it with `curl -s URL/metrics`")
    return text


def _times(files: Sequence[Path], folder: Path | None, timing: Timing) -> list[float]:
    step = timing.interval_s if timing.interval_s is not None else timing.seconds
    if step is not None:
        return [i * step for i in range(len(files))]
    if timing.mtime:
        if Path("-") in files:
            raise _refused("stdin has no modification time; use --interval", option="--mtime")
        return [file.stat().st_mtime for file in files]
    if folder is not None:
        for name in _TIMES:
            if (folder / name).exists():
                return _noted(folder / name, files)
    if len(files) == 1:
        return [0.0]
    if len(files) == _PAIR:
        raise _refused("two pages, but not how far apart they are; say --seconds SECONDS")
    raise _refused(
        f"{len(files)} pages, but not when they were scraped; put a {_TIMES[0]} with the columns "
        "file and t (seconds) beside them in their folder, or say --interval SECONDS, or --mtime "
        "when the files still have the times at which they were written"
    )


def _noted(table: Path, files: Sequence[Path]) -> list[float]:
    """Times from a table: by file where it has that column, else a row a page in order."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _refused(f"{table}: {error}; write it as UTF-8 with a header line") from error
    if not rows or "t" not in rows[0]:
        raise _refused(f"{table} has no column t; it needs one with seconds, a row a page")
    times = [_time(row["t"], where=f"{table}, row {i}") for i, row in enumerate(rows, start=1)]
    if "file" in rows[0]:
        by_name = {str(row["file"]): at for row, at in zip(rows, times, strict=True)}
        missing = [file.name for file in files if file.name not in by_name]
        if missing:
            raise _refused(f"{table} has no row for {missing[0]}; add one, or take the file away")
        return [by_name[file.name] for file in files]
    if len(rows) != len(files):
        raise _refused(
            f"{table} has {len(rows)} rows for {len(files)} pages; add a column file with their "
            "names, or give it a row a page"
        )
    return times


def _time(word: str | None, *, where: str) -> float:
    try:
        at = float(word or "")
    except ValueError:
        at = math.nan
    if not math.isfinite(at) or abs(at) > _EPOCH_FROM * 10:
        raise _refused(f"{where}: t is {word!r}; write seconds, since any start or the epoch")
    return at


def _count(number: int) -> str:
    return "is one page" if number == 1 else f"are {number}"


def _refused(words: str, *, option: str = "--recording") -> typer.BadParameter:
    return typer.BadParameter(words, param_hint=option)
