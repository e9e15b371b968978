"""Where a replay's readings come from: rows of a file, or saved pages."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import typer

from specpilot.cli import recordings
from specpilot.cli.rules.source import lines_of, no_rows
from specpilot.controller.replaying import Moment, speculates
from specpilot.domain.context import TargetFacts
from specpilot.domain.policy import Policy
from specpilot.domain.readings import Readings
from specpilot.domain.rules import RuleSet
from specpilot.domain.settings import OFF_NAME
from specpilot.resources import Fault, ResourceError
from specpilot.resources.quantities import parse_duration
from specpilot.resources.readings_file import TIME, ReadingsRow, read_instant, read_rows
from specpilot.telemetry.derive import derive
from specpilot.telemetry.history import History
from specpilot.telemetry.windows import Arm

_RECORDED = "the recorded replica"

Bound = datetime | timedelta
"""A time, or how long before the end of the series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Moments in order of time.

    Attributes:
        source: What they are of, in words.
        moments: They.
        counts_drafts: Whether there is a signal `drafts` at all.
        failed: What could not be looked at, in words; "" where everything was.
        notes: What else a reader must know of where the readings come from.
        impossible: In how many rows a signal was given that nothing exports while off, by signal.
    """

    source: str
    moments: Sequence[Moment]
    counts_drafts: bool = True
    failed: str = ""
    notes: tuple[str, ...] = ()
    impossible: Mapping[str, int] = field(default_factory=dict)

    @property
    def dated(self) -> bool:
        """Whether the times are dates."""
        return self.moments[-1].dated


def bound(text: str, *, option: str) -> Bound | None:
    """Read `--from` or `--to`.

    Raises:
        BadParameter: It is neither a time nor a duration.
    """
    if not text:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        pass  # it should be a time, then
    try:
        return read_instant(text)
    except ValueError as error:
        message = f"{text!r}: {error}, or how long before the end (24h)"
        raise typer.BadParameter(message, param_hint=option) from None


def of_rows(path: str, *, rule_set: RuleSet, start: Bound | None, end: Bound | None) -> Series:
    """Rows of a readings file; each is a moment.

    Raises:
        ResourceError: A row cannot be read, or there is no column `time`.
        BadParameter: There are no rows, or nothing lies between start and end.
    """
    moments: list[Moment] = []
    impossible: Counter[str] = Counter()
    with lines_of(path) as lines:
        for row in read_rows(lines, rule_set=rule_set, source=path):
            moments.append(_of_row(row, path))
            impossible.update(row.impossible)
    if not moments:
        raise no_rows(path)
    return Series(
        source=path,
        moments=_cut(moments, start=start, end=end),
        counts_drafts=any("drafts" in m.readings.by_signal for m in moments),
        impossible=impossible,
    )


def _of_row(row: ReadingsRow, path: str) -> Moment:
    if row.time is None:
        message = "there is none, and a replay is over time; add it (Unix seconds will do)"
        raise ResourceError(Fault(where=path, field=f"column {TIME!r}", message=message))
    off = row.setting.name is None and row.setting.method == ""
    return Moment(
        at=row.time,
        readings=row.readings,
        ran=OFF_NAME if off else row.setting.name or "",
        target=row.target,
        parameters=row.parameters,
    )


def of_pages(
    recording: recordings.Recording,
    *,
    window: timedelta,
    step: timedelta,
    start: Bound | None,
    end: Bound | None,
) -> Series:
    """Saved pages of one replica, looked at as live ticks look at it: step by step."""
    moments = list(_looks(recording, window=window.total_seconds(), step=step.total_seconds()))
    count = len(recording.saved)
    return Series(
        source=f"{count} saved page{'s' if count > 1 else ''}",
        moments=_cut(moments, start=start, end=end),
    )


def _looks(recording: recordings.Recording, *, window: float, step: float) -> Iterator[Moment]:
    saved = recording.saved
    first, last = saved[0].at, saved[-1].at
    history = History(keep_s=math.inf)
    gap = (last - first) / max(1, len(saved) - 1)
    place = 0
    for look in range(int((last - first) / step) + 1):
        now = first + look * step
        while place < len(saved) and saved[place].at <= now:
            history.add(saved[place].at, saved[place].page)
            place += 1
        cut = history.window(
            now - window, now, replica=_RECORDED, interval_s=gap, declared_on=False
        )
        at = datetime.fromtimestamp(now, UTC)
        arm = Arm(
            source="saved pages",
            end=at,
            window_s=window,
            replicas=(cut,) if cut is not None else (),
        )
        yield Moment(
            at=at,
            readings=_of_few_looks(derive(arm, ready=1)),
            target=TargetFacts(ready=1),
            dated=recording.dated,
        )


def _of_few_looks(found: Readings) -> Readings:
    """The readings without means of gauges that two pages cannot tell; a live scrape goes on."""
    return Readings.of(recordings.without_guess(reading) for reading in found.values())


def _cut(moments: Sequence[Moment], *, start: Bound | None, end: Bound | None) -> Sequence[Moment]:
    last = moments[-1].at
    until = last - end if isinstance(end, timedelta) else end or last
    since = until - start if isinstance(start, timedelta) else start
    found = [m for m in moments if (since is None or m.at >= since) and m.at <= until]
    if not found:
        has = f"from {moments[0].at.isoformat()} to {last.isoformat()}"
        raise typer.BadParameter(f"the series is {has}; nothing of it is left", param_hint="--from")
    return found


def with_what_ran(moments: Sequence[Moment], policy: Policy, *, ran: str) -> list[Moment]:
    """Name the setting that ran where the series does not: as told, else by what was measured.

    Where something speculated, it is taken to be the policy's first setting that speculates.

    Raises:
        BadParameter: It is not known of any moment.
    """
    first_on = next((s.name for s in policy.settings.values() if not s.is_off), "")
    by_sight = {True: first_on, False: OFF_NAME, None: ""}
    named = [replace(m, ran=m.ran or ran or by_sight[speculates(m.readings)]) for m in moments]
    if not any(m.ran for m in named):
        raise typer.BadParameter(
            "which setting ran is not known: the series has no setting.name and nothing in it "
            "tells; say --ran NAME",
            param_hint="--ran",
        )
    return named
