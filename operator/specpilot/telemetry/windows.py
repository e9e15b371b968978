"""What one replica did in one window: the form both sources translate into.

A direct scrape and Prometheus differ in how they know, not in what is known. Everything after this
form (ratios, merged quantiles, reasons for Unknown) exists once, in `derive`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from specpilot.domain.ports import Ask
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.histograms import Buckets
from specpilot.telemetry.names import LARGEST, Counter, Family

if TYPE_CHECKING:
    from specpilot.telemetry.growth import Growth


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why there is no number, in words that say what to do."""

    reason: UnknownReason
    words: str


class Speculation(StrEnum):
    """What the presence of series says about speculation."""

    ABSENT = "absent"
    PRESENT = "present"
    LEGACY = "legacy"  # the V0 engine's series, which cannot be trusted


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Increase of a histogram over the window.

    Attributes:
        sum: Increase of the sum.
        count: Increase of the count.
        buckets: (upper bound, increase of the cumulative count), ascending, as the engine exports
            them; empty for a histogram that is read for its mean only.
    """

    sum: float
    count: float
    buckets: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaWindow:
    """One replica over one window.

    Attributes:
        replica: Its id.
        fault: Why it has no numbers at all; the fields below are then empty.
        first: Time of the first sample used.
        last: Time of the newest sample used.
        samples: How many samples were used.
        span_s: Seconds that the increases stand for.
        interval_s: Seconds between samples, as configured or as seen.
        counters: Increase per counter.
        positions: Increase of the tokens accepted at each position of a draft, from 0.
        histograms: Increase per histogram; buckets may be left to `buckets`.
        buckets: Increase per bucket of a histogram, where they are kept apart.
        gauges: Mean per gauge. A gauge the engine does not export (yet) is left out.
        faults: Why a single series has no number.
        notes: What a gauge of devices covers beside the replica, or which doubt it carries.
        speculation: Which speculation series it exports.
        legacy_rate: The V0 engine's own acceptance rate, NaN before its first draft.
        one_server: Whether one API server keeps all the counts; several count steps twice.
        declared_on: Whether it was started to speculate, as its own declaration says.
        together: How many replicas it stands for; more than one only where an arm's replicas
            were put together (`together`).
        rates: Increase per second of the counters that are read as rates, where `together` has
            added up those of replicas with different spans.
        growth: What the numbers are made of, where they can be put together.
        trouble: What went wrong when the source last asked it, "" when nothing did.
    """

    replica: str
    fault: Fault | None = None
    first: datetime | None = None
    last: datetime | None = None
    samples: int = 0
    span_s: float = 0.0
    interval_s: float = 0.0
    counters: Mapping[Counter, float] = field(default_factory=dict)
    positions: Mapping[int, float] = field(default_factory=dict)
    histograms: Mapping[Family, Histogram] = field(default_factory=dict)
    buckets: Mapping[Family, Buckets] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    speculation: Speculation = Speculation.ABSENT
    legacy_rate: float | None = None
    one_server: bool = True
    declared_on: bool = False
    together: int = 1
    rates: Mapping[Counter, float] = field(default_factory=dict)
    growth: "Growth | None" = field(default=None, repr=False, compare=False)
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The answer to one `Ask`, before it is turned into readings.

    Attributes:
        source: Where it comes from, in words (`Prometheus`, `direct scrape`).
        end: End of the window.
        window_s: Length of the window that was asked for.
        replicas: One window for every replica that serves.
        stale_floor_s: Samples younger than this are never stale.
    """

    source: str
    end: datetime
    window_s: float
    replicas: tuple[ReplicaWindow, ...]
    stale_floor_s: float = 30.0


class Source(Protocol):
    """A place where numbers come from."""

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in."""
        ...

    def track(self, replicas: Sequence[Replica]) -> None:
        """Say which replicas exist."""
        ...

    def windows(self, asks: Sequence[Ask], *, deadline_s: float) -> Mapping[str, Arm]:
        """Answer every ask under its key within the deadline; a failure is a fault in the arm."""
        ...


def serving(ask: Ask) -> tuple[Replica, ...]:
    """The replicas that are expected to report."""
    return tuple(r for r in ask.replicas if r.ready and not r.terminating)


def start_of(replica: Replica, ask: Ask) -> datetime:
    """Where the window of this replica starts: its first seconds do not count."""
    if replica.ready_since is None:
        return ask.start
    return max(ask.start, replica.ready_since + timedelta(seconds=ask.warm_up_s))


def warming(replica: Replica, start: datetime) -> ReplicaWindow:
    """A replica whose warm-up ends after the window does."""
    return failed(
        replica,
        UnknownReason.NO_DATA,
        f"became ready too late: its numbers count from {start:%H:%M:%S} UTC",
    )


def failed(replica: Replica, reason: UnknownReason, words: str) -> ReplicaWindow:
    """A window without numbers."""
    fault = Fault(reason=reason, words=words)
    return failed_window(replica.id, fault, declared_on=bool(replica.declared.config))


def failed_window(replica: str, fault: Fault, *, declared_on: bool) -> ReplicaWindow:
    """A window without numbers, of the replica of that id."""
    return ReplicaWindow(replica=replica, fault=fault, declared_on=declared_on)


def failed_arm(ask: Ask, *, source: str, reason: UnknownReason, words: str) -> Arm:
    """An arm of which nothing is known."""
    return Arm(
        source=source,
        end=ask.end,
        window_s=(ask.end - ask.start).total_seconds(),
        replicas=tuple(failed(replica, reason, words) for replica in serving(ask)),
    )


def unusable(value: float) -> Fault | None:
    """Why a number cannot be a count, a duration or a share; None when it can."""
    if value != value:  # noqa: PLR0124 - the definition of NaN
        return Fault(reason=UnknownReason.NAN, words="the engine exports NaN")
    if value >= LARGEST or value < 0:
        words = f"the engine exports {value:g}, which no count, duration or share can be"
        return Fault(reason=UnknownReason.NAN, words=words)
    return None
