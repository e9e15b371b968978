"""A reading is a number with its provenance, or Unknown with a reason. It is never a default.

Peers scale to zero on NaN because a missing number became 0 somewhere. Here the type makes that
impossible: `value` is None exactly when `reason` is set.
"""

import math
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class UnknownReason(StrEnum):
    """Why a signal has no value."""

    NO_DATA = "NoData"
    STALE = "Stale"
    NAN = "NaN"
    TOO_FEW_SAMPLES = "TooFewSamples"
    SOURCE_ERROR = "SourceError"
    NOT_EXPORTED = "NotExported"
    AMBIGUOUS = "Ambiguous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One signal over one window.

    Attributes:
        signal: Name in the catalogue (`specpilot.domain.signals`).
        value: The number in the signal's unit, or None when unknown.
        reason: Why it is unknown; None exactly when `value` is a number.
        message: In words, with the remedy where there is one.
        at: Time of the newest sample used.
        count: How many observations stand behind the value (requests, drafts, scrapes).
        window_s: Length of the window in seconds.
        low: Lower bound where the value is an estimate (the bucket of a quantile).
        high: Upper bound; None with a `low` means "at least".
    """

    signal: str
    value: float | None = None
    reason: UnknownReason | None = None
    message: str = ""
    at: datetime | None = None
    count: float | None = None
    window_s: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.reason is None):
            raise ValueError(f"reading {self.signal}: exactly one of value and reason must be set")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"reading {self.signal}: {self.value} is not a number to act on")

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None


def unknown(signal: str, reason: UnknownReason, message: str = "") -> Reading:
    """Make a reading that says why there is none."""
    return Reading(signal=signal, reason=reason, message=message)


@dataclass(frozen=True, slots=True)
class Readings(Mapping[str, Reading]):
    """Readings by signal name; a signal nobody reported reads as NoData.

    Attributes:
        by_signal: The readings, or what makes them when they are asked for.
        trouble: What went wrong when the source looked last, "" when nothing did. What it saw
            before may still be young enough to be used, so the readings need not be Unknown.
    """

    by_signal: Mapping[str, Reading] = field(default_factory=dict)
    trouble: str = ""

    @classmethod
    def of(cls, readings: Iterable[Reading], *, trouble: str = "") -> "Readings":
        """Collect readings; a later one for the same signal replaces an earlier one."""
        return cls({r.signal: r for r in readings}, trouble)

    def made(self) -> "Readings":
        """The same, each of them made: what they would be made from need not be kept."""
        return Readings(dict(self.by_signal), self.trouble)

    def merged(self, readings: Iterable[Reading]) -> "Readings":
        """These readings, and others that replace those of the same signal."""
        # On top, and not one by one into another: they may be made only when they are asked for.
        return Readings(ChainMap({r.signal: r for r in readings}, self.by_signal), self.trouble)  # type: ignore[arg-type]  # written to by nobody

    def __getitem__(self, signal: str) -> Reading:
        try:
            return self.by_signal[signal]
        except KeyError:
            return unknown(signal, UnknownReason.NO_DATA)

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_signal)

    def __len__(self) -> int:
        return len(self.by_signal)

    def value(self, signal: str) -> float | None:
        """The value, or None when unknown."""
        return self[signal].value
