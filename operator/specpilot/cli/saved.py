"""Whether a saved page can be measured, and whether two of them are in the order of time.

A live scrape is whole and comes after the one before. A file may be the error page of a proxy, a
download that broke off, or the page that another one follows: each of them would be measured
without a complaint, and the numbers would look like any others.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import typer

from specpilot.telemetry.exposition import PROCESS_START, Key, Page
from specpilot.telemetry.names import HTTP

_SHOWN = 60
_SAMPLE = re.compile(
    rb"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})?[ \t]+"
    rb"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|[iI]nf|[nN]a[nN])(?:[ \t]+-?\d+)?[ \t]*"
)
_INSIDE_A_FAMILY = re.compile(rb"# HELP |[a-zA-Z_:][a-zA-Z0-9_:]*_bucket[ {]")
"""How no page ends: a family goes on after its HELP, a histogram after its buckets."""

_PACKED = {
    b"\x1f\x8b": "compressed; unpack it with `gunzip`, or save it with `curl --compressed`",
    b"\x28\xb5\x2f\xfd": "compressed; unpack it with `unzstd`, or save it with `curl --compressed`",
    b"\xff\xfe": "UTF-16, as PowerShell's `>` writes it; save it with `curl.exe -sf URL -o FILE`",
}
"""How pages begin that are whole and cannot be read, and what to do."""

_STAGE = re.compile(r"(?<![a-z])(before|during|after)(?![a-z])", re.IGNORECASE)
_STAGES = ("before", "during", "after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One file: its page and when it was scraped, in seconds since some start or the epoch."""

    name: str
    at: float
    text: bytes
    page: Page


def refused(words: str, *, option: str = "--recording") -> typer.BadParameter:
    """The error for input that cannot be used."""
    return typer.BadParameter(words, param_hint=option)


def by_stage(files: Sequence[Path]) -> list[Path]:
    """Files called before, during and after in that order; others as they are."""
    found = [_STAGE.findall(file.stem) for file in files]
    ranks = [_STAGES.index(words[-1].lower()) if words else -1 for words in found]
    if -1 in ranks or len(set(ranks)) != len(ranks):
        return list(files)
    return [file for _, file in sorted(zip(ranks, files, strict=True))]


def check_page(text: bytes, *, name: str) -> None:
    """See that a text is a whole page of metrics.

    Raises:
        BadParameter: It is something else, or breaks off.
    """
    lines = [line.rstrip(b"\r") for line in text.split(b"\n") if line.strip()]
    said = [line for line in lines if not line.startswith(b"#")]
    samples = sum(_SAMPLE.fullmatch(line) is not None for line in said)
    # Headers that `curl -i` puts before the page do no harm; a text with a number does not pass.
    if 2 * samples <= len(said):
        for magic, what in _PACKED.items():
            if text.startswith(magic):
                raise refused(f"{name} is {what}")
        begin = text[:_SHOWN].decode(errors="replace").strip().splitlines()
        seen = f"it begins with {begin[0]!r}" if begin else "it is empty"
        raise refused(f"{name} is no page of /metrics: {seen}; save it with `curl -sf URL/metrics`")
    if not text.endswith(b"\n"):
        raise _cut(name, "it ends in the middle of a line")
    if _INSIDE_A_FAMILY.match(lines[-1]):
        raise _cut(name, f"nothing follows {lines[-1][:_SHOWN].decode(errors='replace')!r}")


def check_together(saved: Sequence[Saved], *, remedy: str) -> None:
    """See that pages of one process are whole and count upwards.

    Args:
        saved: Pages in order of time, as the user has it.
        remedy: How to mend the order.

    Raises:
        BadParameter: They do not; names the files.
    """
    for one, other in pairwise(saved):
        for page, fuller in ((one, other), (other, one)):
            if _one_process(one, other) and (missing := _keys(fuller) - _keys(page)):
                series = min(f"{name} {part}".strip() for name, part in missing)
                raise _cut(page.name, f"it lacks {series}, which {fuller.name} has")
    for one, other in pairwise(saved):
        old, new = one.page.values, other.page.values
        if old.get(PROCESS_START, 0.0) > new.get(PROCESS_START, old.get(PROCESS_START, 0.0)) + 1:
            raise refused(
                f"{other.name} is of a process that started before that of {one.name}; {remedy}"
            )
        if _one_process(one, other) and (fell := _fell(one, other)):
            name = f"{fell[0]} {fell[1]}".strip()
            raise refused(
                f"{other.name} counts less than {one.name}, yet the process is the same ({name}: "
                f"{new[fell]:.10g} after {old[fell]:.10g}); {remedy}"
            )


def doubts(saved: Sequence[Saved]) -> list[str]:
    """What looks wrong but can be measured."""
    return [
        f"{other.name} counts less than {one.name}: was the engine started anew between them, or "
        "is the earlier page not the first?"
        for one, other in pairwise(saved)
        if not {PROCESS_START} & (_keys(one) | _keys(other)) and _fell(one, other)
    ]


def _keys(saved: Saved) -> frozenset[Key]:
    gauges = {(name, "") for name in saved.page.gauges}
    late = {(name, "") for name in HTTP}
    return frozenset((saved.page.values.keys() | gauges) - late)


def _one_process(one: Saved, other: Saved) -> bool:
    """Whether both say that they are of the same process; V0 and several API servers do not."""
    start = one.page.values.get(PROCESS_START)
    return start is not None and start == other.page.values.get(PROCESS_START)


def _fell(one: Saved, other: Saved) -> Key | None:
    """A number that is smaller in the other page, though it can only grow.

    The sum of a histogram is left out: what it adds up may be negative.
    """
    old, new = one.page.values, other.page.values
    grows = (key for key in old if key != PROCESS_START and key[1] != "sum")
    return next((key for key in grows if key in new and new[key] < old[key]), None)


def _cut(name: str, why: str) -> typer.BadParameter:
    return refused(f"{name} looks cut off: {why}; fetch it again")
