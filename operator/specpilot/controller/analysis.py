"""The analysis of a canary, slice by slice, kept with the change so that a restart loses none."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from specpilot.controller.wanted import judged_signals, wanted_signals
from specpilot.domain.changes import FlagChange, Phase, Slice
from specpilot.domain.judging import slice_length
from specpilot.domain.policy import Policy
from specpilot.domain.ports import Ask
from specpilot.domain.readings import Readings
from specpilot.domain.targets import Replica, TargetState

MEASURED_PHASES = frozenset({Phase.ANALYSING, Phase.PROMOTING, Phase.WATCHING})
"""Phases in which the replicas of the new setting are measured."""

LEAST_LAG = timedelta(seconds=1)
"""A slice is asked for only when the samples of its end are in."""


def arms(change: FlagChange, state: TargetState) -> tuple[tuple[Replica, ...], ...]:
    """Ready replicas of the canary and of the control arm."""
    canary = tuple(r for r in state.arm(change.wanted) if r.ready)
    control = tuple(r for r in state.others(change.wanted) if r.ready)
    return canary, control


def slices_of(change: FlagChange) -> Sequence[Slice]:
    """The slices of the present phase."""
    return change.slices if change.phase is Phase.ANALYSING else change.watched


def next_slice(
    change: FlagChange, policy: Policy, *, lag_s: float, now: datetime
) -> tuple[datetime, datetime] | None:
    """Bounds of the next slice that is over; None when it is not over yet.

    Args:
        change: The change under analysis.
        policy: Its policy.
        lag_s: Seconds after a moment in which telemetry has its numbers.
        now: The present.
    """
    lag = max(LEAST_LAG, timedelta(seconds=lag_s))
    length = slice_length(policy.canary)
    closed = slices_of(change)
    start = closed[-1].end if closed else change.phase_since + policy.warm_up
    # After a stop of the operator the slices missed are skipped: telemetry may not reach back.
    missed = max(0, int((now - lag - start) / length) - 1)
    start += missed * length
    return (start, start + length) if start + length + lag <= now else None


def slice_asks(
    change: FlagChange, policy: Policy, state: TargetState, bounds: tuple[datetime, datetime]
) -> Sequence[Ask]:
    """The two questions of a slice, one an arm; after the analysis the canary's alone."""
    canary, control = arms(change, state)
    if change.phase is not Phase.ANALYSING:
        control = ()
    return [
        Ask(
            key=f"{change.id}/{name}",
            target=change.target,
            replicas=replicas,
            start=bounds[0],
            end=bounds[1],
            warm_up_s=policy.warm_up.total_seconds(),
            source=policy.source,
            signals=signals,
        )
        for name, replicas, signals in (
            ("canary", canary, judged_signals(policy)),
            ("control", control, wanted_signals(policy, None)),
        )
        if replicas
    ]


def _known(readings: Readings) -> dict[str, float]:
    return {name: r.value for name, r in readings.items() if r.value is not None}


def make_slice(
    change: FlagChange,
    bounds: tuple[datetime, datetime],
    *,
    canary: Readings,
    control: Readings | None,
) -> Slice:
    """Put the answers of both arms together.

    Without a control arm (the only replica was replaced, with the user's consent) the readings
    from before the change stand in for it, and the canary's own requests count for both. After the
    analysis there is nothing to compare with any more.
    """
    requests = canary["e2e_mean"].count or 0.0
    if control is None:
        return Slice(
            start=bounds[0],
            end=bounds[1],
            canary=_known(canary),
            control=dict(change.before),
            canary_requests=requests,
            control_requests=requests if change.before else 0.0,
            canary_drafts=canary.value("drafts") or 0.0,
        )
    return Slice(
        start=bounds[0],
        end=bounds[1],
        canary=_known(canary),
        control=_known(control),
        canary_requests=requests,
        control_requests=control["e2e_mean"].count or 0.0,
        canary_drafts=canary.value("drafts") or 0.0,
    )
