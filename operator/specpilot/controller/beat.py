"""How regularly ticks begin. Late ones are said (metrics, a condition of each policy), not hidden.

A peer that cannot keep up asks every 85 s instead of every 15 and looks healthy; here the real
interval is measured and compared with the one that was asked for.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from specpilot.domain.portions import Portions

_LATE, _ON_TIME = 1.5, 1.2
"""Times the wanted interval at which ticks begin, and cease, to be called late. A gap between the
two, so that a condition does not flicker."""

_REMEMBERED = 4
"""Intervals whose mean decides: one slow tick is no news."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """How the ticks have been.

    Attributes:
        interval_s: The interval that was asked for.
        real_s: Mean of the last intervals, start to start; None before the second tick.
        late: Whether they are much longer than asked for.
        ended: Ticks that have ended.
        busy_s: Seconds that these took together.
        age_s: Seconds since the last one began; None before the first.
    """

    interval_s: float
    real_s: float | None
    late: bool
    ended: int
    busy_s: float
    age_s: float | None

    @property
    def words(self) -> str:
        """What to say of it and what to do, "" while ticks are on time."""
        if not self.late or self.real_s is None:
            return ""
        return (
            f"policies are evaluated every {self.real_s:.0f} s instead of every "
            f"{self.interval_s:g} s; raise evaluation.intervalSeconds or give the operator more CPU"
        )


class Beat:
    """Notes when ticks begin and end. Safe to read from another thread.

    Args:
        interval_s: Seconds from one tick to the next, as asked for.
        clock: Monotonic seconds.
    """

    def __init__(self, *, interval_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._starts: deque[float] = deque(maxlen=_REMEMBERED + 1)
        self._late = False
        self._ended = 0
        self._busy_s = 0.0

    def begin(self) -> None:
        """A tick begins."""
        with self._lock:
            self._starts.append(self._clock())
            real = self._real()
            if real is not None:
                bound = _ON_TIME if self._late else _LATE
                self._late = real > bound * self._interval_s

    def end(self) -> None:
        """The tick that began last has ended."""
        with self._lock:
            self._ended += 1
            self._busy_s += self._clock() - self._starts[-1]

    def pulse(self) -> Pulse:
        """How they have been."""
        with self._lock:
            return Pulse(
                interval_s=self._interval_s,
                real_s=self._real(),
                late=self._late,
                ended=self._ended,
                busy_s=self._busy_s,
                age_s=self._clock() - self._starts[-1] if self._starts else None,
            )

    def rest(self) -> None:
        """There are no ticks for now: the next one is not late."""
        with self._lock:
            self._starts.clear()
            self._late = False

    def _real(self) -> float | None:
        gaps = len(self._starts) - 1
        return (self._starts[-1] - self._starts[0]) / gaps if gaps > 0 else None


class Beats:
    """A beat for each portion of the fleet, and all of them as one.

    Args:
        interval_s: Seconds from one tick over a portion to the next.
        portions: The portions.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        interval_s: float,
        portions: Portions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._portions = portions
        self._beats = [Beat(interval_s=interval_s, clock=clock) for _ in range(portions.most)]

    def of(self, portion: int) -> Beat:
        """The beat of a portion."""
        return self._beats[portion]

    def pulse(self) -> Pulse:
        """How ticks over the whole fleet have been: its slowest portion's, and all their time."""
        pulses = [beat.pulse() for beat in self._beats]
        present = pulses[: self._portions.count]
        return replace(
            present[0],
            real_s=max((p.real_s for p in present if p.real_s is not None), default=None),
            late=any(p.late for p in present),
            busy_s=sum(p.busy_s for p in pulses),  # of all there ever were: a counter never falls
            age_s=max((p.age_s for p in present if p.age_s is not None), default=None),
        )
