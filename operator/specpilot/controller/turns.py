"""Two loops that must not work at once, and neither of which keeps the other waiting for long.

A plain lock is not fair: whoever releases it and takes it again at once, step by step, mostly gets
it. So who waits holds a second lock meanwhile, and the next one queues behind that.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock with a queue, which can be offered to others in the middle of the work."""

    def __init__(self) -> None:
        self._queue = threading.Lock()
        self._turn = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, and have it."""
        self._take()
        try:
            yield
        finally:
            self._turn.release()

    def offer(self) -> None:
        """Let the other have its turn if it waits. To be called by who has it, between steps."""
        self._turn.release()
        self._take()

    def _take(self) -> None:
        with self._queue:
            self._turn.acquire()
