"""From pages to readings, the way every source of the product goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from specpilot.domain.readings import Readings
from specpilot.telemetry.derive import derive
from specpilot.telemetry.exposition import parse
from specpilot.telemetry.history import History
from specpilot.telemetry.windows import Arm, ReplicaWindow

Pages = Sequence[tuple[float, bytes]]
"""Seconds and the page seen then. Small seconds, so that differences of times are exact."""


def window_over(pages: Pages, *, replica: str = "a") -> ReplicaWindow:
    """What happened from the first page to the last."""
    history = History(keep_s=1e9)
    for at, page in pages:
        history.add(at, parse(page))
    found = history.window(
        pages[0][0], pages[-1][0], replica=replica, interval_s=60.0, declared_on=False
    )
    assert found is not None
    return found


def measured(pages: Pages) -> Readings:
    """The signals of one replica from the first page to the last."""
    return measured_arm({"a": pages})


def measured_arm(pods: Mapping[str, Pages]) -> Readings:
    """The signals of several replicas of one arm, in the order given."""
    start = min(pages[0][0] for pages in pods.values())
    end = max(pages[-1][0] for pages in pods.values())
    arm = Arm(
        source="pages",
        end=datetime.fromtimestamp(end, UTC),
        window_s=end - start,
        replicas=tuple(window_over(pages, replica=name) for name, pages in pods.items()),
    )
    return derive(arm, ready=len(pods))
