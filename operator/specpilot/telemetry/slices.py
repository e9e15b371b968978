"""A long range of moments asked of a Prometheus in slices that neither side chokes on.

One slice puts the same queries as a live round, as range queries. How many moments it spans follows
from what the slices before weighed: answers are held in memory while they are taken apart, and
Prometheus itself gives no more than 11,000 points of a series. A slice that is too large for the
server is halved; one that fails for good is told as failed, with its moments, and the next one is
tried.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specpilot.telemetry import promql
from specpilot.telemetry.behind import Series
from specpilot.telemetry.connection import Connection, FaultKind, PrometheusError
from specpilot.telemetry.promdecode import Pods
from specpilot.telemetry.promql import Labels, Scope
from specpilot.telemetry.promwire import Answer, Grid, vectors

MOST_POINTS = 11_000
"""Points of a series that Prometheus gives in one answer."""

TARGET_BYTES = 8 * 2**20
"""An answer of so many bytes is aimed at: decoded, its points take some ten times as much."""

_FIRST = 60
_GROWTH = 4
"""A slice spans at most so many times the moments of the one before."""
_TRIES = 3
"""One query may take that part of a slice's time, so that a smaller slice can be tried."""
_PAUSE_S = (0.5, 8.0)
"""First and longest pause before a slice is asked for again."""

_HOPELESS = frozenset({FaultKind.CREDENTIALS, FaultKind.DENIED, FaultKind.NOT_PROMETHEUS})
"""What no other slice would do better with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Some moments in a row.

    Attributes:
        grid: Which.
        pods: What was said of each pod at each of them; empty where the slice failed.
        failed: Why nothing is known of them, "" where something is.
    """

    grid: Grid
    pods: Sequence[Pods] = ()
    failed: str = ""


@dataclass(slots=True, kw_only=True)
class Slices:
    """Asks for a grid of moments, slice by slice.

    Attributes:
        connection: To the server.
        address: Of the server, for words.
        scope: Which pods.
        labels: How this Prometheus names things.
        wanted: Series that are needed.
        deadline_s: Longest time for one slice, retries and halving included.
        most_points: Moments of a slice at most.
        target_bytes: Size of an answer that is aimed at.
        queries: How many were put so far.
    """

    connection: Connection
    address: str
    scope: Scope
    labels: Labels
    wanted: Series
    deadline_s: float
    most_points: int = MOST_POINTS
    target_bytes: int = TARGET_BYTES
    queries: int = 0
    _largest: int = field(default=0, init=False)
    _answered: bool = field(default=False, init=False)

    def of(self, grid: Grid) -> Iterator[Slice]:
        """The slices of a grid, in order of time.

        Raises:
            PrometheusError: The server cannot be asked at all, or answered no slice.
        """
        size, done = min(_FIRST, self.most_points), 0
        error: PrometheusError | None = None
        while done < grid.count:
            part = Grid(
                start_ms=grid.start_ms + done * grid.step_ms,
                step_ms=grid.step_ms,
                count=min(size, grid.count - done),
            )
            try:
                found = self._tried(part)
            except PrometheusError as caught:
                if caught.kind in _HOPELESS or (
                    caught.kind is FaultKind.UNREACHABLE and not self._answered
                ):
                    raise
                error = error or caught
                found = Slice(grid=part, failed=str(caught))
            size = self._next_size(found)
            done += found.grid.count
            yield found
        if error is not None and not self._answered:
            raise error

    def _tried(self, grid: Grid) -> Slice:
        """A slice, or the beginning of it where all of it is too much; again while there is time.

        Raises:
            PrometheusError: It was not answered in time.
        """
        until = time.monotonic() + self.deadline_s
        pause, longest = _PAUSE_S
        while True:
            try:
                found = Slice(grid=grid, pods=self._ask(grid, until=until))
            except PrometheusError as error:
                left = until - time.monotonic()
                late = error.kind is FaultKind.LATE
                if grid.count > 1 and (error.too_large or late) and left > 0:
                    grid = replace(grid, count=grid.count // 2)
                elif error.transient and self._answered and left > pause:
                    time.sleep(pause)
                    pause = min(2 * pause, longest)
                else:
                    raise
            else:
                self._answered = True
                return found

    def _next_size(self, found: Slice) -> int:
        count = found.grid.count
        if found.failed:
            return count
        fits = self.target_bytes * count // max(1, self._largest)
        return max(1, min(fits, _GROWTH * count, self.most_points))

    def _ask(self, grid: Grid, *, until: float) -> list[Pods]:
        self._largest = 0
        found = [Pods() for _ in range(grid.count)]
        step_s = grid.step_ms / 1000

        def take(text: str, absorb: Callable[[Pods, list[Any]], object], *, whole: bool) -> None:
            body = self._query(text, grid, until=until)
            self._largest = max(self._largest, len(body))
            try:
                at_each = vectors(body, self.labels, grid=grid, whole=whole)
            except Answer as error:
                words = f"{self.address} {error}"
                raise PrometheusError(words, kind=FaultKind.REFUSED) from error
            for pods, elements in zip(found, at_each, strict=True):
                absorb(pods, elements)

        scope, labels = self.scope, self.labels
        take(promql.state(scope), lambda p, e: p.take_state(e, labels), whole=True)
        take(promql.gauges(scope, over_s=step_s), Pods.take_values, whole=False)
        take(promql.values(scope, self.wanted), Pods.take_values, whole=False)
        if buckets := self.wanted.buckets:
            take(promql.buckets(scope, buckets), Pods.take_values, whole=False)
        return found

    def _query(self, text: str, grid: Grid, *, until: float) -> bytes:
        self.queries += 1
        return self.connection.query_range(
            text,
            start=grid.start_ms / 1000,
            end=grid.end_ms / 1000,
            step_s=grid.step_ms / 1000,
            timeout_s=min(until - time.monotonic(), self.deadline_s / _TRIES),
        )
