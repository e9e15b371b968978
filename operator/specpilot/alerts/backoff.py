"""When to try again."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Growing waits, so that a receiver that is down is not hammered, and an end.

    The defaults try for about two hours.

    Attributes:
        attempts: After this many an alert is dead.
        first: Wait after the first failure.
        factor: Growth of the wait.
        longest: Upper limit of a wait.
        jitter: Share of a wait that is random, so that alerts do not come back together.
        longest_asked: Upper limit of a wait that the receiver asks for by Retry-After.
    """

    attempts: int = 8
    first: timedelta = timedelta(seconds=10)
    factor: float = 3.0
    longest: timedelta = timedelta(hours=1)
    jitter: float = 0.25
    longest_asked: timedelta = timedelta(hours=6)

    def wait(self, *, attempt: int, retry_after: timedelta | None, rng: random.Random) -> timedelta:
        """Return how long to wait after the given attempt, counted from 1."""
        seconds = min(
            self.longest.total_seconds(),
            self.first.total_seconds() * self.factor ** (attempt - 1),
        )
        own = timedelta(seconds=seconds * (1 + self.jitter * rng.uniform(-1, 1)))
        if retry_after is None:
            return own
        return max(own, min(retry_after, self.longest_asked))


def read_retry_after(header: str, *, now: datetime) -> timedelta | None:
    """Read a Retry-After header, seconds or a date; None when it says nothing usable."""
    header = header.strip()
    if header.isdecimal():
        return timedelta(seconds=min(int(header), 10**9))
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(timedelta(0), at - now)
