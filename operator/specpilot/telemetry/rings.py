"""The recent past of every replica, shared by all sources that look at replicas again and again.

A source adds what it saw, or why it saw nothing; questions are answered from memory, at once, for
any number of windows. Nothing here does I/O.
"""

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from specpilot.domain.ports import Ask, Clock
from specpilot.domain.readings import UnknownReason
from specpilot.domain.targets import Replica
from specpilot.telemetry.exposition import Page
from specpilot.telemetry.history import History
from specpilot.telemetry.looks import FRESH
from specpilot.telemetry.names import Gauge
from specpilot.telemetry.windows import (
    Arm,
    Fault,
    ReplicaWindow,
    failed,
    failed_arm,
    failed_window,
    serving,
    start_of,
    warming,
)


def pod_of(key: str) -> str:
    """Name of the replica with that key."""
    return key.split("\0")[1]


class Rings:
    """Histories by replica, for one source.

    Args:
        clock: Tells a window that ends in the future.
        source: What to call the source in words.
        interval_s: Seconds between two looks at a replica.
        keep_s: How far back windows can reach.
        stale_floor_s: Samples younger than this are never stale; beyond it, 3 intervals are.
        every: Keep every sample, for a replay; a live history is thinned out.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        source: str,
        interval_s: float,
        keep_s: float,
        stale_floor_s: float,
        every: bool = False,
    ) -> None:
        self.interval_s = interval_s
        self.keep_s = keep_s
        self._clock = clock
        self._source = source
        self._stale_floor_s = stale_floor_s
        self._every = every
        self._lock = threading.Lock()  # guards the four below
        self._replicas: dict[str, Replica] = {}
        self._histories: dict[str, History] = {}
        self._faults: dict[str, Fault] = {}
        self._loads: dict[str, tuple[float, float]] = {}  # requests running, and the change to that

    # --- what the source tells

    def track(self, replicas: Sequence[Replica]) -> None:
        """Replace the list of replicas. History of those gone is kept until it is old."""
        with self._lock:
            self._replicas = {replica.key: replica for replica in replicas}

    def tracked(self) -> dict[str, Replica]:
        """Replicas that shall be looked at, by key; forgets what is too old to be asked."""
        with self._lock:
            oldest = self._clock.now().timestamp() - self.keep_s
            for key in self._histories.keys() - self._replicas.keys():
                covers = self._histories[key].covers
                if covers is None or covers[1] < oldest:
                    del self._histories[key]
            for key in self._faults.keys() - self._replicas.keys():
                del self._faults[key]
            for key in self._loads.keys() - self._replicas.keys():
                del self._loads[key]
            return {k: r for k, r in self._replicas.items() if r.ready and not r.terminating}

    def add(
        self,
        key: str,
        at: float,
        page: Page,
        *,
        means: dict[str, float] | None = None,
        fetched: frozenset[str] | None = None,
    ) -> None:
        """Add a look at a replica; a second one at the same moment is no news."""
        with self._lock:
            history = self._histories.get(key)
            if history is None:
                history = self._histories[key] = History(keep_s=self.keep_s, every=self._every)
            history.keep_s = self.keep_s
            covers = history.covers
            if covers is None or at != covers[1]:
                history.add(at, page, means=means, fetched=fetched)
                self._note_load(key, (page.gauges if means is None else means).get(Gauge.RUNNING))
            self._faults.pop(key, None)

    def prepend(
        self,
        key: str,
        at: float,
        page: Page,
        *,
        means: dict[str, float],
        fetched: frozenset[str],
    ) -> None:
        """Add a look of the past; see `History.prepend`."""
        with self._lock:
            if (history := self._histories.get(key)) is not None:
                history.prepend(at, page, means=means, fetched=fetched)

    def seen_since(self, keys: Iterable[str]) -> list[float]:
        """The moment since which these replicas have been looked at, of the first of them.

        Returns:
            One moment, or none where nobody has looked.
        """
        with self._lock:
            found = [self._histories[key].covers for key in keys if key in self._histories]
        since = min((covers[0] for covers in found if covers is not None), default=None)
        return [] if since is None else [since]

    def fail(self, keys: Iterable[str], fault: Fault) -> None:
        """Note why these replicas could not be looked at."""
        with self._lock:
            self._faults |= dict.fromkeys(keys, fault)

    def _note_load(self, key: str, running: float | None) -> None:
        if running is None or not math.isfinite(running):
            self._loads.pop(key, None)
            return
        before, _ = self._loads.get(key, (running, 0.0))
        self._loads[key] = running, abs(running - before) / max(1.0, before)

    # --- questions

    def moved(self, replica: Replica) -> float:
        """How much the load of a replica changed at the last look, as a share of what it was."""
        return self._loads.get(replica.key, (0.0, 0.0))[1]

    def arms(
        self, asks: Sequence[Ask], *, needs: Callable[[Ask], frozenset[str]] | None = None
    ) -> Mapping[str, Arm]:
        """Answer every ask under its key.

        Args:
            asks: What is asked.
            needs: Names behind a question, where not all are looked for of all replicas.
        """
        now = self._clock.now()
        with self._lock:
            return {
                ask.key: self._arm(ask, now, needs(ask) if needs else frozenset()) for ask in asks
            }

    def _arm(self, ask: Ask, now: datetime, need: frozenset[str]) -> Arm:
        if ask.end > now:
            words = f"the window ends in the future, at {ask.end:%Y-%m-%d %H:%M:%S} UTC"
            reason = UnknownReason.SOURCE_ERROR
            return failed_arm(ask, source=self._source, reason=reason, words=words)
        return Arm(
            source=self._source,
            end=ask.end,
            window_s=(ask.end - ask.start).total_seconds(),
            replicas=tuple(self._window(replica, ask, need) for replica in serving(ask)),
            stale_floor_s=self._stale_floor_s,
        )

    def _window(self, replica: Replica, ask: Ask, need: frozenset[str]) -> ReplicaWindow:
        from_ = start_of(replica, ask)
        if from_ >= ask.end:
            return warming(replica, from_)
        key = replica.key
        history, fault = self._histories.get(key), self._faults.get(key)
        declared_on = bool(replica.declared.config)
        if history is not None:
            window = history.window(
                ask.start.timestamp(),
                ask.end.timestamp(),
                replica=replica.id,
                interval_s=self.interval_s,
                declared_on=declared_on,
                not_before=from_.timestamp() if from_ > ask.start else float("-inf"),
            )
            if window is not None:
                if window.samples and (lacking := need - history.fetched):
                    faults = {**dict.fromkeys(lacking, FRESH), **window.faults}
                    window = replace(window, faults=faults)
                return replace(window, trouble=fault.words) if fault else window
        if fault is not None:
            return failed_window(replica.id, fault, declared_on=declared_on)
        if history is not None and history.covers is not None:
            age = ask.end.timestamp() - history.covers[1]
            if age > 0:
                words = f"the newest sample is {age:.0f} s old, from before the window"
                return failed(replica, UnknownReason.STALE, words)
        return failed(replica, UnknownReason.NO_DATA, self._unseen(key, replica))

    def _unseen(self, key: str, replica: Replica) -> str:
        if key not in self._replicas:
            return "is not tracked"
        return "was not looked at in the window" if replica.endpoint else "has no address yet"
