"""What a look at a replica says beside its numbers: a restart, a number that is none or is missing.

A restart is a restart of the whole process, and is taken from the process's own start time wherever
there is one: a page that was cut off on its way looks as if counters had gone, and taking that for
a restart would count the engine's whole life into one window.
"""

import math
from array import array
from dataclasses import dataclass
from operator import le

from specpilot.domain.readings import UnknownReason
from specpilot.telemetry.exposition import PROCESS_START
from specpilot.telemetry.growth import Layout
from specpilot.telemetry.names import LARGEST
from specpilot.telemetry.windows import Fault


@dataclass(frozen=True, slots=True)
class Bad:
    """A name has no true increase in a window that touches [since, until).

    Attributes:
        name: Of a counter, a histogram, its buckets or a gauge.
        since: Seconds since the epoch.
        until: Likewise.
        fault: Why.
        ends: Only a window that begins or ends there is affected: between its ends a counter may
            be missing, since it goes on counting.
    """

    name: str
    since: float
    until: float
    fault: Fault
    ends: bool = False

    def spoils(self, first: float, last: float) -> bool:
        """Whether a window from `first` to `last` has no number for the name."""
        if self.ends:
            return any(self.since <= end < self.until for end in (first, last))
        return first < self.until and self.since <= last


FRESH = Fault(
    reason=UnknownReason.TOO_FEW_SAMPLES,
    words="its numbers are fetched from now on; wait until a whole window is covered",
)
MISSING = Fault(
    reason=UnknownReason.NO_DATA,
    words="a series that this engine exports was missing when it was looked at; was the page cut "
    "off, or is the series dropped on the way (metric_relabel_configs)?",
)
FELL = Fault(
    reason=UnknownReason.AMBIGUOUS,
    words="a counter fell without a restart: is one address served by several engines?",
)
MUTE = Fault(
    reason=UnknownReason.NOT_EXPORTED,
    words="answers /metrics, but with no vllm: series; the engine was started with "
    "--disable-log-stats: remove the flag",
)


def grew(before: "array[float]", after: "array[float]") -> bool:
    """Whether every number was there before, is there now and did not fall: nearly always so."""
    if not before or not all(map(le, before, after)):  # NaN is not less than anything
        return False
    return min(before) >= 0.0 and max(after) < LARGEST


ABSENT = array("d", [math.nan])
"""A number that is not there."""


_SAME_START_S = 0.05
"""A process tells the same start time all its life; what is more than rounding is another one."""


def restarted(layout: Layout, before: "array[float]", after: "array[float]") -> bool:
    """Whether the engine started anew between two looks, given as raw numbers."""
    start = layout.places.get(PROCESS_START)
    if start is not None and not math.isnan(before[start]) and not math.isnan(after[start]):
        return abs(after[start] - before[start]) > _SAME_START_S
    # A number that is gone proves nothing: a page may be cut off.
    return any(before[p] > after[p] for p in layout.restart_places)


def served(layout: Layout, raw: "array[float]") -> bool:
    """Whether the engine had anything to count yet; its series are all there from then on."""
    return any(raw[place] > 0 for place in layout.restart_places)
