"""Where a replay's readings come from: rows of a file, saved pages, or a Prometheus."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from specpilot.cli import recordings
from specpilot.cli.rules.source import lines_of
from specpilot.controller.replaying import Moment, speculates
from specpilot.domain.context import TargetFacts
from specpilot.domain.policy import Policy
from specpilot.domain.readings import UnknownReason
from specpilot.domain.rules import RuleSet
from specpilot.domain.settings import OFF_NAME
from specpilot.resources import Fault, ResourceError
from specpilot.resources.quantities import parse_duration
from specpilot.resources.readings_file import TIME, ReadingsRow, read_instant, read_rows
from specpilot.telemetry.derive import derive
from specpilot.telemetry.history import History
from specpilot.telemetry.past import PrometheusPast
from specpilot.telemetry.windows import Arm

MOST_STEPS = 100_000
"""More looks at Prometheus than a week at one each 10 s are a slip of the hand."""

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
        failed: Words of a look that failed, "" where none did.
        impossible: In how many rows a signal was given that nothing exports while off, by signal.
    """

    source: str
    moments: Sequence[Moment]
    counts_drafts: bool = True
    failed: str = ""
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
        BadParameter: Nothing lies between start and end.
    """
    moments: list[Moment] = []
    impossible: Counter[str] = Counter()
    with lines_of(path) as lines:
        for row in read_rows(lines, rule_set=rule_set, source=path):
            moments.append(_of_row(row, path))
            impossible.update(row.impossible)
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
            readings=derive(arm, ready=1),
            target=TargetFacts(ready=1),
            dated=recording.dated,
        )


def of_prometheus(past: PrometheusPast, *, start: Bound, end: Bound | None) -> Series:
    """The history of a Prometheus, with a progress bar on standard error.

    Raises:
        BadParameter: The times make no sense, or there is nothing of the target.
        PrometheusError: Prometheus could not be asked.
    """
    now = datetime.now(UTC)
    until = now - end if isinstance(end, timedelta) else end or now
    since = until - start if isinstance(start, timedelta) else start
    if not since < until <= now:
        raise typer.BadParameter(
            f"from {since.isoformat()} to {until.isoformat()} is no stretch of the past",
            param_hint="--from",
        )
    steps = int((until - since) / past.step) + 1
    if steps > MOST_STEPS:
        raise typer.BadParameter(
            f"{past.step} is {steps} looks; take a longer step, or a shorter stretch",
            param_hint="--step",
        )
    moments: list[Moment] = []
    with _progress() as progress:
        task = progress.add_task(f"asking {past.server.address}", total=steps)
        for seen in past.walk(start=since, end=until):
            target = TargetFacts(
                name=past.target.name,
                namespace=past.target.namespace,
                kind=past.target.kind,
                ready=seen.replicas,
            )
            moments.append(Moment(at=seen.at, readings=seen.readings, target=target))
            progress.advance(task)
    if not any(m.target.ready for m in moments):
        raise typer.BadParameter(
            f"{past.server.address} has no vllm series of pods of {past.target} from "
            f"{since.isoformat()} to {until.isoformat()}; does it keep them that long, and are the "
            "pods named otherwise (--pods)?",
            param_hint="--prometheus-url",
        )
    return Series(source=past.server.address, moments=moments, failed=_failed(moments))


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def _failed(moments: Iterable[Moment]) -> str:
    count, words = 0, ""
    for moment in moments:
        errors = (r for r in moment.readings.values() if r.reason is UnknownReason.SOURCE_ERROR)
        if (error := next(errors, None)) is not None:
            count, words = count + 1, words or error.message
    return (
        f"{count} looks failed, and nothing is known of them; the first: {words}" if count else ""
    )


def _cut(moments: Sequence[Moment], *, start: Bound | None, end: Bound | None) -> Sequence[Moment]:
    last = moments[-1].at if moments else datetime.now(UTC)
    until = last - end if isinstance(end, timedelta) else end or last
    since = until - start if isinstance(start, timedelta) else start
    found = [m for m in moments if (since is None or m.at >= since) and m.at <= until]
    if not found:
        has = f"from {moments[0].at.isoformat()} to {last.isoformat()}" if moments else "empty"
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
