"""Two signals that no window shows because they are about the past: a cost and a baseline.

`cost_ratio` answers "what would a step cost without drafts, at the load of now" from comparisons
made at like loads before. It is read off between neighbours, never beyond them: the cost of
verification has a knee and a cliff (at the largest captured CUDA graph it grows fivefold from one
batch to the next), and a line through two points knows of neither.

`acceptance_baseline` is what this target itself is used to with this setting.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from specpilot.domain.economics import Measurement, clamped
from specpilot.domain.policy import CostPoint
from specpilot.domain.readings import Reading, UnknownReason, unknown
from specpilot.domain.settings import UNRECOGNISED

REACH = 2.0
"""Largest factor between the batch size of now and that of a measurement which is used for it."""

SAME = 1.25
"""Measurements no further apart than this factor in batch size are one, weighted by evidence."""

FLOOR = 0.02
"""Relative error that no measurement is taken to be better than."""

BEFORE_AFTER = 0.25
"""Weight of a comparison with the time before, against one of two arms in the same minutes."""

BASELINE = timedelta(hours=24)
"""How far a baseline looks back."""

LEAST_HOURS = 6
"""Hours with data that make a baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The setting that is asked about.

    Attributes:
        name: Its name.
        config: `config_hash` of what the engine is told for it.
        engine: `engine_of` the target now.
        template: Hash of the workload's template now.
        runs: It is the active one; otherwise it is the one that a probe would try.
    """

    name: str
    config: str
    engine: str
    template: str
    runs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A cost at a batch size, how much it counts, and where it comes from if it was measured."""

    batch: float
    ratio: float
    weight: float = 1.0
    source: Measurement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A cost read off, and the points it was read off from."""

    ratio: float
    points: tuple[Point, ...]


def weight(measurement: Measurement) -> float:
    """What a measurement counts against another one: the inverse of its relative variance."""
    relative = measurement.error / measurement.ratio
    share = 1.0 if measurement.same_window else BEFORE_AFTER
    return share / (relative**2 + FLOOR**2)


def read_off(points: Iterable[Point], batch: float) -> Found | None:
    """The cost at a batch size: between the nearest point below and above, else the nearest one.

    None where no point lies within `REACH`.
    """
    at = clamped(batch)
    near = [p for p in points if 1 / REACH <= p.batch / at <= REACH]
    sides = [
        (_mean(alike), alike)
        for side in ([p for p in near if p.batch <= at], [p for p in near if p.batch > at])
        if (alike := _nearest(side, at))
    ]
    match sides:
        case []:
            return None
        case [(one, alike)]:
            return Found(ratio=one.ratio, points=alike)
        case [(below, low), (above, high)]:
            part = (at - below.batch) / (above.batch - below.batch)
            ratio = below.ratio + part * (above.ratio - below.ratio)
            return Found(ratio=ratio, points=low + high)
    raise AssertionError("a number has two sides")


def _nearest(side: Sequence[Point], at: float) -> tuple[Point, ...]:
    """The nearest point of one side, with all that were taken at about its batch size."""
    if not side:
        return ()
    nearest = min(side, key=lambda p: abs(math.log(p.batch / at)))
    return tuple(p for p in side if 1 / SAME <= p.batch / nearest.batch <= SAME)


def _mean(points: Sequence[Point]) -> Point:
    total = math.fsum(p.weight for p in points)
    return Point(
        batch=math.fsum(p.weight * p.batch for p in points) / total,
        ratio=math.fsum(p.weight * p.ratio for p in points) / total,
    )


def cost_ratio(
    subject: Subject,
    *,
    batch: Reading,
    measurements: Sequence[Measurement],
    stated: Sequence[CostPoint] = (),
    max_age: timedelta,
    now: datetime,
) -> Reading:
    """The signal `cost_ratio`: measured where it was measured near this load, else stated.

    A measurement goes before a statement, since it is of this target and says of when; one who
    wants a number that nothing overrules writes it into a parameter of the rules.

    Args:
        subject: The setting.
        batch: The present batch size.
        measurements: Of the target, of any setting.
        stated: `settings[].costRatio` of the policy.
        max_age: How long a measurement is used.
        now: The time.
    """
    if batch.value is None:
        anywhere = next((p for p in stated if p.batch is None), None)
        if anywhere is not None:
            return _stated(subject, anywhere.ratio)
        return unknown(
            "cost_ratio",
            batch.reason or UnknownReason.NO_DATA,
            "batch_size is Unknown, so that it is not known which load's cost is asked for",
        )
    own = [m for m in measurements if m.config == subject.config]
    same_engine = [m for m in own if m.engine == subject.engine]
    fresh = [m for m in same_engine if now - m.at <= max_age]
    points = [Point(batch=m.batch, ratio=m.ratio, weight=weight(m), source=m) for m in fresh]
    if (found := read_off(points, batch.value)) is not None:
        return _measured(subject, found)
    if (ratio := read_stated(stated, batch.value)) is not None:
        return _stated(subject, ratio)
    reason = UnknownReason.STALE if same_engine and not fresh else UnknownReason.NO_DATA
    return unknown(
        "cost_ratio",
        reason,
        f"{_why_not(subject, own, same_engine, fresh, batch.value)}; {_remedy(subject)}",
    )


def _measured(subject: Subject, found: Found) -> Reading:
    used = [p.source for p in found.points if p.source is not None]
    batches = ", ".join(f"{m.batch:.3g}" for m in sorted(used, key=lambda m: m.batch)[:4])
    newest = max(used, key=lambda m: m.at)
    edited = ""
    if any(m.template != subject.template for m in used):
        edited = "; the workload's template was edited since"
    return Reading(
        signal="cost_ratio",
        value=found.ratio,
        at=newest.at,
        count=math.fsum(m.requests_on + m.requests_off for m in used),
        message=f"measured for {subject.name} in {len(used)} comparison(s), at a batch of "
        f"{batches}{edited}",
    )


def read_stated(stated: Sequence[CostPoint], batch: float) -> float | None:
    """What a policy states of the cost at a batch size; None where it states nothing of it."""
    points = [Point(batch=p.batch, ratio=p.ratio) for p in stated if p.batch is not None]
    found = read_off(points, batch)
    if found is not None:
        return found.ratio
    return next((p.ratio for p in stated if p.batch is None), None)


def _stated(subject: Subject, ratio: float) -> Reading:
    return Reading(
        signal="cost_ratio",
        value=ratio,
        message=f"stated by the policy for {subject.name}; not measured near this load",
    )


def _why_not(
    subject: Subject,
    own: Sequence[Measurement],
    same_engine: Sequence[Measurement],
    fresh: Sequence[Measurement],
    batch: float,
) -> str:
    load = f"a batch near {batch:.0f}"
    if fresh:
        seen = ", ".join(f"{b:.3g}" for b in sorted({round(m.batch, 1) for m in fresh})[:6])
        return f"never measured for {subject.name} at {load}, only at {seen}"
    if same_engine:
        newest = max(m.at for m in same_engine)
        return f"last measured for {subject.name} on {newest:%Y-%m-%d %H:%M} UTC, too long ago"
    if own:
        engines = ", ".join(sorted({m.engine for m in own if m.engine})[:3])
        return (
            f"never measured for {subject.name} on {subject.engine or 'this engine'}, only on "
            f"{engines}"
        )
    return f"never measured for {subject.name} at {load}"


def _remedy(subject: Subject) -> str:
    if subject.name == UNRECOGNISED:
        return "what runs is none of the policy's settings; add it to spec.settings"
    state = f"state settings[{subject.name}].costRatio"
    if subject.runs:
        return f"the next change from {subject.name} to off, or back, measures it; or {state}"
    return f"let a probe run, or {state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceHour:
    """What was noted of `mean_acceptance_length` in one hour.

    Attributes:
        hour: Its beginning, in UTC.
        samples: How many times it was noted.
        total: Sum of the values.
    """

    hour: datetime
    samples: int
    total: float

    @property
    def mean(self) -> float:
        """Mean of the hour."""
        return self.total / self.samples


def hour_of(at: datetime) -> datetime:
    """The whole hour an instant is in."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def acceptance_baseline(setting: str, *, hours: Iterable[AcceptanceHour], now: datetime) -> Reading:
    """The signal `acceptance_baseline`: the median, hours weighted by how often they were noted.

    The hour that runs is left out, so that what happens now is not measured against itself.

    Args:
        setting: Name of the setting.
        hours: Of the target with this setting.
        now: The time.
    """
    end = hour_of(now)
    kept = sorted(
        (h for h in hours if end - BASELINE <= h.hour < end and h.samples > 0),
        key=lambda h: h.mean,
    )
    if len(kept) < LEAST_HOURS:
        return unknown(
            "acceptance_baseline",
            UnknownReason.TOO_FEW_SAMPLES,
            f"{len(kept)} of at least {LEAST_HOURS} whole hours with mean_acceptance_length of "
            f"{setting} in the last 24; wait until there are",
        )
    samples = sum(h.samples for h in kept)
    return Reading(
        signal="acceptance_baseline",
        value=_median(kept, samples / 2),
        at=max(h.hour for h in kept) + timedelta(hours=1),
        count=float(samples),
        window_s=BASELINE.total_seconds(),
        message=f"median of {len(kept)} hours with {setting}",
    )


def _median(ordered: Sequence[AcceptanceHour], half: float) -> float:
    seen = 0
    for index, hour in enumerate(ordered):
        seen += hour.samples
        if seen > half:
            return hour.mean
        if seen == half:
            return (hour.mean + ordered[index + 1].mean) / 2
    raise AssertionError("half of the samples lie before the end of them")
