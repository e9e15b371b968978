"""What a history keeps of each look at a replica: totals by position in its layout."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specpilot.telemetry.exposition import Key, Page
from specpilot.telemetry.names import LEGACY_RATE, Counter
from specpilot.telemetry.windows import Speculation

_SPECULATES: Key = (Counter.DRAFTS, "")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a replica.

    Attributes:
        at: Seconds since the epoch.
        number: Counts the looks, those that were thinned out too.
        totals: By position in the history's layout; what lies beyond the end was not there yet.
        engine: Whether there were any series of the engine.
        speculation: What the series said about speculation.
        legacy_rate: The V0 engine's acceptance rate since its start.
    """

    at: float
    number: int
    totals: "array[float]"
    engine: bool
    speculation: Speculation
    legacy_rate: float | None

    @classmethod
    def of(cls, at: float, number: int, totals: "array[float]", page: Page) -> "Sample":
        """What a page says beside its totals."""
        speculation = Speculation.ABSENT
        if page.legacy:
            speculation = Speculation.LEGACY
        elif _SPECULATES in page.values:
            speculation = Speculation.PRESENT
        return cls(at, number, totals, page.engine, speculation, page.gauges.get(LEGACY_RATE))

    def only(self, kept: Sequence[int]) -> "Sample":
        """The same with the totals at these positions."""
        return replace(self, totals=_only(self.totals, kept))


@dataclass(frozen=True, slots=True)
class Edge:
    """The page at one end of a history, to go on from.

    Attributes:
        raw: Its numbers by position; NaN for what it had not.
        gauges: Its gauges.
        offsets: What was added to raw numbers to make totals; None for nothing.
    """

    raw: "array[float]"
    gauges: dict[str, float]
    offsets: "array[float] | None" = None

    def only(self, kept: Sequence[int]) -> "Edge":
        """The same with the numbers at these positions."""
        offsets = None if self.offsets is None else _only(self.offsets, kept)
        return replace(self, raw=_only(self.raw, kept), offsets=offsets)


@dataclass(frozen=True, slots=True)
class Before:
    """The totals of the look before, and what is added to raw numbers since the last restart."""

    totals: "array[float]"
    offsets: "array[float] | None"

    def raw(self, place: int) -> float:
        """The raw number that gives the same total again."""
        return self.totals[place] - (self.offsets[place] if self.offsets is not None else 0.0)


def _only(numbers: "array[float]", kept: Sequence[int]) -> "array[float]":
    return array("d", [numbers[place] for place in kept if place < len(numbers)])
