"""Writing what is shown beside the work, so that a slow API server does not slow decisions down.

Of each object only the newest write waits. One that fails is forgotten: the next tick (of a flag
change: the next look at it) compares what is there with what there is to say, and finds it again.
"""

import logging
import threading
from collections.abc import Callable, Hashable
from itertools import chain
from types import TracebackType
from typing import Self

log = logging.getLogger(__name__)

WRITERS = 4


class Publisher:
    """Carries out the newest write for each key, in a few threads.

    Args:
        writers: How many threads.
    """

    def __init__(self, *, writers: int = WRITERS) -> None:
        self._waiting: dict[Hashable, Callable[[], object]] = {}
        self._first: dict[Hashable, None] = {}  # those of the waiting that go before the others
        self._busy: set[Hashable] = set()
        self._changed = threading.Condition()  # guards the three above
        self._ending = False
        self._threads = [
            threading.Thread(target=self._run, name=f"publisher-{n}", daemon=True)
            for n in range(writers)
        ]

    def put(self, key: Hashable, write: Callable[[], object], *, first: bool = False) -> None:
        """Have something written soon, instead of what was to be written under the same key.

        Args:
            key: Of the object.
            write: Writes it, and says itself what goes wrong.
            first: Before those that were put without it: somebody waits for news.
        """
        with self._changed:
            self._waiting[key] = write
            if first:
                self._first[key] = None
            self._changed.notify()

    def wait_idle(self, *, timeout_s: float) -> bool:
        """Wait until everything is written; whether it was in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._waiting and not self._busy, timeout=timeout_s
            )

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; what has not been begun is left to the next process."""
        with self._changed:
            self._ending = True
            self._waiting.clear()
            self._first.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=15)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ending or self._next() is not None)
                if self._ending:
                    return
                key = self._next()
                write = self._waiting.pop(key)
                self._first.pop(key, None)
                self._busy.add(key)
            try:
                write()
            except Exception:  # the thread must live on
                log.exception("%s could not be written", key)
            with self._changed:
                self._busy.discard(key)
                self._changed.notify_all()

    def _next(self) -> Hashable | None:
        """The oldest key that nobody is writing: two writes of one object keep their order."""
        waiting = chain(self._first, self._waiting)
        return next((key for key in waiting if key not in self._busy), None)
