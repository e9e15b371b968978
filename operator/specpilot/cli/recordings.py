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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from specpilot.cli.readings import plain
from specpilot.cli.saved import Saved, by_stage, check_page, check_together, doubts, refused
from specpilot.domain.readings import Reading, Readings, UnknownReason, unknown
from specpilot.domain.signals import POSITIONS, position_signal
from specpilot.telemetry.derive import derive
from specpilot.telemetry.exposition import parse
from specpilot.telemetry.history import History
from specpilot.telemetry.names import Counter
from specpilot.telemetry.windows import Arm

_TIMES = ("times.csv", "summary.csv")
_SUFFIX = ".prom"
_PAIR = 2
_EPOCH_FROM = 1e9
"""A time from here on is a date (September 2001 and later), one below counts from a start."""
_YEAR = 366 * 86400.0
_LOOKS = 3
"""So many looks a mean of a gauge needs. A load between two looks at an idle engine leaves no trace
in it, while a live scrape goes on until the third look."""
_MEANS_OF_LOOKS = (
    "batch_size",
    "queue_depth",
    "kv_cache_usage",
    "tokens_per_second_per_request",
)
_OF_SPECULATION = (
    "acceptance_rate",
    "mean_acceptance_length",
    *(position_signal(position) for position in range(POSITIONS)),
    "drafts",
    "draft_tokens",
)

_ONLY_V0 = re.compile(rb"^vllm:lora_requests_info\{(?![^\n]*engine=)", re.MULTILINE)
"""The V1 engine labels every series with the number of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What the user says of the times; at most one of them.

    Attributes:
        interval_s: Seconds between pages: of a folder in the order of their names, of files in the
            order given.
        seconds: Seconds between two pages, in the order given unless their names say before and
            after.
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
    if timing.seconds is not None or (timing.interval_s is not None and folder is not None):
        files = by_stage(files)
    if len(files) != len(set(files)):
        twice = next(str(file) for file in files if files.count(file) > 1)
        raise refused(f"{twice} is given twice; give each page once")
    if timing.seconds is not None and len(files) != _PAIR:
        raise refused(
            f"is the time between two pages, but there {_count(len(files))}; name the page before "
            "and the one after, or use --interval",
            option="--seconds",
        )
    texts = [_text(file) for file in files]
    times = _times(files, folder, timing)
    order = sorted(range(len(files)), key=lambda i: times[i])
    saved = tuple(
        Saved(name=str(files[i]), at=times[i], text=texts[i], page=parse(texts[i])) for i in order
    )
    for one, other in pairwise(saved):
        if one.at == other.at:
            raise refused(
                f"{one.name} and {other.name} have the same time; copying files does that to "
                "--mtime: say --interval SECONDS, or write a times.csv"
            )
    check_together(saved, remedy=_remedy(timing, folder))
    return Recording(saved=saved)


def warnings(recording: Recording) -> list[str]:
    """What looks wrong but can be measured."""
    return doubts(recording.saved)


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
    found = (_as_pages_know(each, recording) for each in derive(arm, ready=1).values())
    return Readings.of([*found, ready])


def _as_pages_know(reading: Reading, recording: Recording) -> Reading:
    """A reading, less what only looks at a running engine can tell."""
    name = reading.signal
    if name in _MEANS_OF_LOOKS:
        nothing_seen = (
            reading.reason is UnknownReason.TOO_FEW_SAMPLES and len(recording.saved) == _PAIR
        )
        return _few_looks(reading) if nothing_seen else without_guess(reading)
    if (
        name in _OF_SPECULATION
        and reading.reason is UnknownReason.NOT_EXPORTED
        and recording.saved[-1].page.engine
        and speculation(recording) == "unknown"
    ):
        words = (
            "saved pages: whether the engine speculates is not known; the V0 engine, and several "
            "API servers, show these series after their first requests only"
        )
        return replace(reading, message=words)
    return reading


def without_guess(reading: Reading) -> Reading:
    """A reading of pages; a mean of a gauge over fewer than three of them is Unknown."""
    few = reading.known and (reading.count or 0.0) < _LOOKS
    return _few_looks(reading) if few and reading.signal in _MEANS_OF_LOOKS else reading


def _few_looks(reading: Reading) -> Reading:
    words = "saved pages: two looks cannot tell a mean; save pages in between"
    found = unknown(reading.signal, UnknownReason.TOO_FEW_SAMPLES, words)
    return replace(found, at=reading.at, window_s=reading.window_s)


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
            raise refused(
                f"{value:g} is no time between pages; give seconds above 0", option=option
            )
    if sum((timing.interval_s is not None, timing.seconds is not None, timing.mtime)) > 1:
        raise refused("give one of --interval, --seconds and --mtime", option="--interval")


def _pages_of(folder: Path) -> list[Path]:
    try:
        found = sorted((p for p in folder.iterdir() if p.suffix == _SUFFIX), key=_natural)
    except OSError as error:
        raise refused(f"{folder}: {error.strerror}") from error
    if not found:
        raise refused(f"there is no {_SUFFIX} file in {folder}; name the files themselves")
    return found


def _remedy(timing: Timing, folder: Path | None) -> str:
    """What to do about an order that cannot be right."""
    if timing.seconds is not None:
        name = " by name on the command line" if folder is not None else ""
        remedy = f"swap them, the earlier page first{name}"
    elif timing.interval_s is not None:
        remedy = "swap them: files are taken as given, those of a folder by their names"
    else:
        remedy = "swap their times"
    return f"{remedy}, and see that both are of one replica"


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key by name in which 10 comes after 9, whatever the number of digits."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _text(path: Path) -> bytes:
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise refused(f"{path}: {error.strerror}; name a file that can be read") from error
    check_page(text, name=str(path))
    return text


def _times(files: Sequence[Path], folder: Path | None, timing: Timing) -> list[float]:
    step = timing.interval_s if timing.interval_s is not None else timing.seconds
    if step is not None:
        return [i * step for i in range(len(files))]
    if timing.mtime:
        if Path("-") in files:
            raise refused("stdin has no modification time; use --interval", option="--mtime")
        return [file.stat().st_mtime for file in files]
    if folder is not None:
        for name in _TIMES:
            if (folder / name).exists():
                return _noted(folder / name, files)
    if len(files) == 1:
        return [0.0]
    if len(files) == _PAIR:
        raise refused("two pages, but not how far apart they are; say --seconds SECONDS")
    raise refused(
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
        raise refused(f"{table}: {error}; write it as UTF-8 with a header line") from error
    if not rows or "t" not in rows[0]:
        raise refused(f"{table} has no column t; it needs one with seconds, a row a page")
    times = [_time(row["t"], where=f"{table}, row {i}") for i, row in enumerate(rows, start=1)]
    if "file" in rows[0]:
        by_name = {str(row["file"]): at for row, at in zip(rows, times, strict=True)}
        missing = [file.name for file in files if file.name not in by_name]
        if missing:
            raise refused(f"{table} has no row for {missing[0]}; add one, or take the file away")
        return [by_name[file.name] for file in files]
    if len(rows) != len(files):
        raise refused(
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
        raise refused(f"{where}: t is {word!r}; write seconds, since any start or the epoch")
    return at


def _count(number: int) -> str:
    return "is one page" if number == 1 else f"are {number}"
