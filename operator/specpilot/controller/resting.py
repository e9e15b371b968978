"""Changes that need not be looked at again yet: nothing has changed that decides about them.

Most of a flip is waiting, for pods that load a model and for numbers to come in, and each change is
looked at every second so that what happens to it is answered at once. A look at one to which
nothing has happened would find what the look before found, so it is left out: until something does
happen, or numbers have come in. What depends on time alone is noticed a few seconds late.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from specpilot.domain.changes import FlagChange
from specpilot.domain.policy import Policy
from specpilot.domain.situation import Decision
from specpilot.domain.targets import TargetState

SHARE = 0.5
"""How long a change rests at most, over the time in which new numbers come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a look at a change rests on, besides numbers and the time.

    Attributes:
        revision: The change's.
        policy: Its policy, None where it is gone; the same object while it is the same.
        state: Its target; the same object while nothing of the target has changed, where a fleet
            knows that.
        decision: What a person decided on it, None for nothing.
    """

    revision: int
    policy: Policy | None
    state: TargetState
    decision: Decision | None

    def same(self, other: "Ground") -> bool:
        """Whether a look would rest on the same."""
        return (
            self.revision == other.revision
            and self.policy is other.policy
            and self.state is other.state
            and self.decision == other.decision
        )


class Resting:
    """The changes that rest. What was not laid to rest is looked at."""

    def __init__(self) -> None:
        self._resting: dict[str, tuple[Ground, datetime]] = {}

    def rests(self, change: FlagChange, ground: Ground, *, lag_s: float, now: datetime) -> bool:
        """Whether a change need not be looked at now.

        Args:
            change: The change.
            ground: What a look would rest on.
            lag_s: Seconds in which new numbers come in.
            now: The time.
        """
        before, at = self._resting.get(change.id, (None, now))
        lasts = timedelta(seconds=lag_s * SHARE)
        return before is not None and timedelta(0) <= now - at < lasts and before.same(ground)

    def lay(self, change_id: str, ground: Ground, *, now: datetime) -> None:
        """Let a change rest that waits; whoever then does something for it must wake it."""
        self._resting[change_id] = (ground, now)

    def wake(self, change_id: str) -> None:
        """Have it looked at next time; from any thread."""
        self._resting.pop(change_id, None)

    def wake_all(self) -> None:
        """Have all of them looked at next time; from any thread."""
        self._resting.clear()
