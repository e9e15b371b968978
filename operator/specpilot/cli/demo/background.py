"""A load generator in a thread of its own, so that the one that draws need not wait for it."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Runs one coroutine, once.

    Args:
        work: Makes the coroutine.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._began = 0.0
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin to send."""
        self._began = time.monotonic()
        self._thread.start()

    @property
    def second(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def running(self) -> bool:
        """Whether requests are still to be sent or answered."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for the last answer."""
        self._thread.join()

    def check(self) -> None:
        """Raise what ended the traffic early, if anything did."""
        if self._error is not None:
            raise RuntimeError("the load generator failed") from self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - shown by the thread that draws
            self._error = error
