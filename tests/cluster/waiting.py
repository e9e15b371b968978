"""Waiting for a condition, with a deadline and an explanation when it is missed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotInTimeError(AssertionError):
    """A condition did not hold before its deadline."""


def wait_for(
    condition: Callable[[], T | None],
    *,
    deadline: float = 60.0,
    describe: str | Callable[[], str] = "",
    every: float = 0.1,
) -> T:
    """Call ``condition`` until its answer is truthy, and return that answer.

    An ``AssertionError`` raised by ``condition`` counts as "not yet" and is told when time is up,
    so a condition may be written with plain asserts. Any other exception passes at once.

    Args:
        condition: what must become true.
        deadline: seconds to wait at most.
        describe: what was waited for; a callable is asked when the deadline is missed and may look
            at the present state (statuses, logs) to say why.
        every: seconds between two attempts.

    Raises:
        NotInTimeError: with ``describe``, the last answer and the time waited.
    """
    until = time.monotonic() + deadline
    while True:
        last: object
        try:
            answer = condition()
            if answer:
                return answer
            last = answer
        except AssertionError as error:
            last = error
        if time.monotonic() >= until:
            text = describe() if callable(describe) else describe
            what = text or getattr(condition, "__name__", "condition")
            raise NotInTimeError(f"not within {deadline:g} s: {what}\nlast answer: {last!r}")
        time.sleep(every)
