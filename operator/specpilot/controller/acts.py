"""Carrying intents out, a few targets at a time, while the next change is looked at.

A step on a workload is mostly waiting: for the API server's answers, and for the canary's first
pods, which the hold of its roll must follow at once. One after the other, the twentieth of twenty
changes would wait for all of that nineteen times. What is decided and recorded stays serial; only
what the fleet is told runs beside it, and never twice at once for a target.
"""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self

AT_ONCE = 8


class Acts:
    """The acts of one run of the reconciler; a context manager that ends when they have.

    Args:
        at_once: How many are under way at most.
    """

    def __init__(self, *, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="act")
        self._begun: list[Future[None]] = []

    def make_room(self) -> None:
        """Wait until one more can begin at once, so that it rests on a fresh look."""
        under_way = {act for act in self._begun if not act.done()}
        while len(under_way) >= self._at_once:
            under_way = wait(under_way, return_when=FIRST_COMPLETED).not_done

    def begin(self, act: Callable[[], None]) -> None:
        """Have something done.

        Args:
            act: Does it, and says itself what goes wrong.
        """
        self._begun.append(self._pool.submit(act))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for all of them; what none of them may raise is raised here."""
        self._pool.shutdown()
        if value is None:
            for act in self._begun:
                act.result()
