"""A replay's readings out of a Prometheus: when each moment was, what ran, and what it measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from specpilot.cli.rules.replay_series import Bound, Series
from specpilot.controller.replaying import Moment
from specpilot.domain.context import TargetFacts
from specpilot.domain.readings import Readings, UnknownReason, unknown
from specpilot.domain.settings import OFF_NAME, UNRECOGNISED, Setting
from specpilot.domain.signals import MEASURED
from specpilot.telemetry.past import PastArm, PastMoment, PrometheusPast, Ran

MOST_STEPS = 100_000
"""More looks than two weeks at one each 15 s are a slip of the hand."""


def of_prometheus(
    past: PrometheusPast,
    *,
    start: Bound,
    end: Bound | None,
    settings: Mapping[str, Setting],
    ran: str,
) -> Series:
    """The history of a Prometheus, with a progress bar on standard error.

    Args:
        past: Whose, and how to look at it.
        start: From when.
        end: Until when; None is now.
        settings: The policy's.
        ran: What the replicas that speculated ran, where their series do not tell; "" takes the
            first setting that they may have run.

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
    seen: dict[Ran, None] = {}
    mixed = 0
    last = ""
    with _progress() as progress:
        task = progress.add_task(f"asking {past.server.address}", total=steps)
        for found in past.walk(start=since, end=until):
            arm = in_force(found.arms, settings, last=last, told=ran)
            name = ""
            if arm is not None and arm.ran is not None:
                seen[arm.ran] = None
                name = last = setting_of(arm.ran, settings, told=ran)
            mixed += len({a.ran for a in found.arms}) > 1
            moments.append(_moment(found, arm, past, ran=name))
            progress.advance(task)
    failed = _failed(moments)
    if not failed and not any(m.target.ready for m in moments):
        raise typer.BadParameter(
            f"{past.server.address} has no vllm series of pods of {past.target} from "
            f"{since.isoformat()} to {until.isoformat()}; does it keep them that long, and are the "
            "pods named otherwise (--pods)?",
            param_hint="--prometheus-url",
        )
    notes = [*_assumed(seen, settings, told=ran)]
    if mixed:
        notes.append(
            f"at {mixed} of {len(moments)} moments replicas ran different settings: that of most "
            "of them is taken to be in force, and readings are of those alone"
        )
    return Series(source=past.server.address, moments=moments, failed=failed, notes=tuple(notes))


def candidates(ran: Ran, settings: Mapping[str, Setting]) -> list[str]:
    """The settings that replicas may have run, by what their series say."""
    if not ran.speculates:
        return [OFF_NAME]
    depths = {None, ran.depth}
    return [
        s.name
        for s in settings.values()
        if not s.is_off and (not ran.depth or s.num_speculative_tokens in depths)
    ]


def setting_of(ran: Ran, settings: Mapping[str, Setting], *, told: str = "") -> str:
    """The setting that replicas ran: the one that was told where it may be, else the first."""
    may_be = candidates(ran, settings)
    if told in may_be:
        return told
    return may_be[0] if may_be else UNRECOGNISED


def in_force(
    arms: Sequence[PastArm], settings: Mapping[str, Setting], *, last: str, told: str
) -> PastArm | None:
    """The replicas whose setting is taken to be in force: most of them; what ran before, if equal.

    None where there were none.
    """

    def rank(arm: PastArm) -> tuple[bool, int, bool]:
        ran = arm.ran
        same = ran is not None and setting_of(ran, settings, told=told) == last
        return ran is not None, arm.replicas, same

    return max(arms, key=rank, default=None)


def _moment(found: PastMoment, arm: PastArm | None, past: PrometheusPast, *, ran: str) -> Moment:
    names = past.signals or MEASURED
    if found.failed:
        reason, words = UnknownReason.SOURCE_ERROR, found.failed
    else:
        reason, words = UnknownReason.NO_DATA, "Prometheus has no series of a pod of the target"
    readings = arm.readings if arm else Readings.of(unknown(n, reason, words) for n in names)
    return Moment(
        at=found.at,
        readings=readings,
        ran=ran,
        target=TargetFacts(
            name=past.target.name,
            namespace=past.target.namespace,
            kind=past.target.kind,
            ready=found.replicas,
        ),
    )


def _assumed(seen: Iterable[Ran], settings: Mapping[str, Setting], *, told: str) -> Iterator[str]:
    """What had to be assumed of the settings that ran."""
    for ran in seen:
        may_be = candidates(ran, settings)
        depth = f"{ran.depth} tokens deep" if ran.depth else "at an unknown depth"
        if not may_be:
            yield (
                f"replicas drafted {depth}, which no setting of the policy does: what ran then is "
                f"called {UNRECOGNISED}"
            )
        elif len(may_be) > 1 and told not in may_be:
            yield (
                f"replicas drafted {depth}, which {', '.join(may_be)} do: taken to be {may_be[0]} "
                "(--ran NAME says otherwise)"
            )


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
