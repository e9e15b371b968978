"""Looking again and again, in a thread of its own: what every source that keeps samples does."""

import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol, Self, runtime_checkable

from specpilot.domain.ports import Ask
from specpilot.domain.targets import Replica

log = logging.getLogger(__name__)

_MOMENT = 1 / 15
"""Share of the interval for which a round is as good as one that begins now."""

_LEFT_ALONE = 1.5
"""Intervals after which a source that was told to look goes on by itself. Not one: it would look
a moment before it is told to again, and what happens in between would wait for the next time."""


@runtime_checkable
class Looking(Protocol):
    """A source that can be told to look now."""

    def look(self, *, timeout_s: float, portion: int = 0) -> bool:
        """See `Background.look`."""
        ...


@runtime_checkable
class Expecting(Protocol):
    """A source that looks for what is asked of it, and for nothing else."""

    def expect(self, asks: Sequence[Ask]) -> None:
        """Note what is going to be asked."""
        ...


@runtime_checkable
class Moving(Protocol):
    """A source that notices how much loads change."""

    def moved(self, replica: Replica) -> float:
        """See `Rings.moved`."""
        ...


def look_at_all(sources: Iterable[object], *, timeout_s: float, portion: int = 0) -> bool:
    """Have those that can be told to look now look at the same time; whether all were in time.

    Args:
        sources: Sources of any kind.
        timeout_s: Longest time to wait for all of them.
        portion: See `Background.look`.
    """
    until, in_time = time.monotonic() + timeout_s, True
    looking = [source for source in sources if isinstance(source, Looking)]
    for source in looking:
        source.look(timeout_s=0.0, portion=portion)  # begins, and waits for nobody
    for source in looking:
        left = max(0.0, until - time.monotonic())
        in_time &= source.look(timeout_s=left, portion=portion)
    return in_time


class Background:
    """A source whose `sample` is called in the background from `start` until `close`.

    Args:
        name: Of the thread, and of the source in the log.
        interval_s: Seconds from one call to the next. One that took longer is not made up for.
        patience_s: Longest time that a call may take; `close` waits a little longer.
    """

    def __init__(self, *, name: str, interval_s: float, patience_s: float) -> None:
        self._name = name
        self._every_s = interval_s
        self._patience_s = patience_s
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._told = False  # whether the round that begins is one that somebody asked for
        self._rounds = threading.Condition()  # guards the two below
        self._began = -math.inf  # when the newest round did
        self._looking = False

    def sample(self) -> None:
        """Look once, now."""
        raise NotImplementedError

    def _needed(self) -> bool:
        """Whether a round is worth its cost."""
        return True

    def start(self) -> None:
        """Start looking in the background; again is harmless."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def look(self, *, timeout_s: float, portion: int = 0) -> bool:
        """Look now, and wait until that is done; whether it was in time.

        Who asks again and again at the source's own pace sees what has just been looked at, and
        not what was looked at an interval ago. A round that began a moment ago will do, so that
        nobody is asked twice.

        Args:
            timeout_s: How long to wait. The round goes on in the background after that.
            portion: Which part of the fleet it is for. A source that looks at all of it at once
                does so for the first, which is once an interval.
        """
        if portion > 0:
            return True
        fresh = time.monotonic() - self._every_s * _MOMENT
        with self._rounds:
            if self._began < fresh:
                self._wake.set()
            return self._rounds.wait_for(
                lambda: self._began >= fresh and not self._looking, timeout=timeout_s
            )

    def stop(self) -> None:
        """Begin no further round; waits for nothing."""
        self._stop.set()
        self._wake.set()

    def close(self) -> None:
        """Stop looking; what was seen stays readable."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.stop()
            thread.join(timeout=self._patience_s + 5)
            self._stop = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self) -> None:
        stop, due = self._stop, time.monotonic()
        while True:
            with self._rounds:
                # With the two below, or who asks in between would cause a second round.
                self._wake.clear()
                if stop.is_set():
                    return
                self._began, self._looking = time.monotonic(), True
            if self._needed():
                try:
                    self.sample()
                except Exception:
                    log.exception("a round of %s failed", self._name)
            with self._rounds:
                self._looking = False
                self._rounds.notify_all()
            due = max(due + self._every_s, time.monotonic())
            self._told = self._wake.wait(due - time.monotonic())
            if self._told:
                due = time.monotonic() + (_LEFT_ALONE - 1) * self._every_s
