"""Noticing that the wall clock was set back.

APScheduler wakes up by a clock that only goes forward and then looks at the wall: a job whose time
has gone back into the future would sleep for as long as the clock was set back by.
"""

import time
from collections.abc import Callable

ROOM_S = 1.0
"""Less is what two readings of two clocks may differ by, and what a time server slews."""


class ClockWatch:
    """Compares the wall clock with one that only goes forward.

    Args:
        wall: Seconds since the epoch.
        steady: Seconds since some moment.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._ahead = wall() - steady()

    def set_back_s(self) -> float:
        """Seconds by which the wall clock was set back since the last look; 0 where it was not."""
        ahead = self._wall() - self._steady()
        fell, self._ahead = self._ahead - ahead, ahead
        return fell if fell > ROOM_S else 0.0
