"""When a status is worth a write: news at once, numbers now and then.

Readings move at every tick. Were each written as it moves, a thousand policies would cost the API
server a write each a minute for ever, and etcd a history of numbers that nobody asked for. What a
user must know (a phase, a setting, a condition, the words of why) is written when it changes.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from specpilot.controller.status import BLIND, ON_TIME

WORDS_EVERY = timedelta(minutes=1)
"""How often a status is written in which only the numbers within words changed."""

READINGS_EVERY = timedelta(minutes=1)
"""How often one is written in which only readings and words about them changed, at most."""

READINGS_A_SECOND = 2
"""How many of these are written for all policies together: with more than 120 of them, each is
written less often."""

WARM_UP = timedelta(minutes=1)
"""How long a new leader, which has to look at a window first, leaves the statuses of policies alone
of which it knows no more than that. Each restart would write all of them twice otherwise, and tell
whoever watches that thousands of policies have lost their signals."""

_READINGS = frozenset({"readings", "verdict"})
_NUMBER = re.compile(r"\d+(?:[.:]\d+)*")


def without_numbers(text: str) -> str:
    """Words in which numbers and times are all alike."""
    return _NUMBER.sub("#", text)


def _words(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without readings, and without what is said of the operator in all of them.

    A thousand writes because it is late would make it later.
    """
    kept = {k: v for k, v in status.items() if k not in _READINGS}
    kept["conditions"] = [c for c in kept.get("conditions") or () if c["type"] != ON_TIME]
    return kept


def _news(words: Mapping[str, Any]) -> dict[str, Any]:
    """What of these is written as soon as it changes."""
    conditions = [
        {**c, "message": without_numbers(c.get("message") or "")} for c in words["conditions"]
    ]
    message = without_numbers(words.get("message") or "")
    return {**words, "message": message, "conditions": conditions}


def _chance(seed: str) -> float:
    """A number in [0, 1), the same for the same seed."""
    return int.from_bytes(blake2b(seed.encode(), digest_size=4).digest(), "big") / 2**32


class Worth:
    """Tells which statuses to write, and remembers when each was.

    What a status says is compared with the one that is there, not with the one written last: one
    that somebody else changed is put right, and a new process need not write all of them anew.

    Args:
        began: When this process began to lead.
    """

    def __init__(self, *, began: datetime) -> None:
        self._began = began
        self._written: dict[str, datetime] = {}
        self._right: dict[str, tuple[object, Mapping[str, Any]]] = {}

    def quiet(
        self, uid: str, gist: object, *, there: Mapping[str, Any], crowd: int, now: datetime
    ) -> bool:
        """Whether a status is right and need not be written for its readings, without a look at it.

        Args:
            uid: Of the policy.
            gist: What there is to say besides readings and words about them.
            there: The status that is there: the very same object while it is the same.
            crowd: How many policies there are.
            now: The time.
        """
        known, shown = self._right.get(uid, (None, None))
        if shown is not there or known != gist:
            return False
        at = self._written.get(uid)
        return at is not None and at <= now and not self._aged(uid, at, crowd=crowd, now=now)

    def writing(
        self,
        uid: str,
        wanted: Mapping[str, Any],
        *,
        gist: object,
        there: Mapping[str, Any],
        crowd: int,
        now: datetime,
    ) -> bool:
        """Whether to write a status now.

        Args:
            uid: Of the policy.
            wanted: What there is to say; readings may be left out.
            gist: See `quiet`.
            there: The status that is there.
            crowd: How many policies there are.
            now: The time.
        """
        blind = wanted.get("phase") == BLIND and bool(there)
        if blind and timedelta(0) <= now - self._began < WARM_UP:
            return False
        said, shown = _words(wanted), _words(there)
        if said != shown and _news(said) != _news(shown):
            return True
        at = self._written.setdefault(uid, now)
        if now < at:
            self._written[uid] = now  # the clock was set back
            return False
        if said != shown:
            return now - at >= WORDS_EVERY
        self._right[uid] = (gist, there)
        return self._aged(uid, at, crowd=crowd, now=now)

    def _aged(self, uid: str, at: datetime, *, crowd: int, now: datetime) -> bool:
        """Whether readings were written so long ago that they are written again."""
        # Spread out anew each time, or all that were written together would be so for ever.
        every = max(READINGS_EVERY, timedelta(seconds=crowd / READINGS_A_SECOND))
        return now - at >= every * (0.5 + _chance(f"{uid} {at}") / 2)

    def wrote(self, uid: str, *, now: datetime) -> None:
        """Note that a status was written, or found to be right."""
        self._written[uid] = now

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget policies that are gone."""
        self._written = {uid: at for uid, at in self._written.items() if uid in uids}
        self._right = {uid: right for uid, right in self._right.items() if uid in uids}
