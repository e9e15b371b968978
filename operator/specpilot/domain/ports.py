"""The edges of the core, as the core sees them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from specpilot.domain.changes import Intent
from specpilot.domain.policy import TelemetrySource
from specpilot.domain.readings import Readings
from specpilot.domain.targets import Replica, TargetRef, TargetState


class Clock(Protocol):
    """Time, so that replay and tests can have their own."""

    def now(self) -> datetime:
        """The present, aware, in UTC."""
        ...


class FleetError(Exception):
    """The fleet could not be asked or told; nothing is known to have changed. Try again later."""


class Fleet(Protocol):
    """Where targets live."""

    def observe(self, ref: TargetRef) -> TargetState:
        """Report what is.

        A target that cannot be steered is reported with a `problem`, not raised.

        Raises:
            FleetError: The fleet did not answer.
        """
        ...

    def carry_out(self, intent: Intent) -> bool:
        """Take the next step towards an intent; called again until it holds. Must not block.

        Returns:
            Whether the setting was written just now, because the workload did not carry it.

        Raises:
            FleetError: The step could not be taken; the caller comes back.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question to telemetry: the signals of some replicas of a target over a window.

    Attributes:
        key: Chosen by the caller; the answer comes under it.
        target: The target the replicas belong to.
        replicas: The replicas of one arm. None of them terminating.
        start: Start of the window; a replica counts from when it became ready plus warm-up.
        end: End of the window.
        warm_up_s: Seconds after ready in which a replica's numbers are left out.
        source: Where to look.
        signals: What is wanted; empty means every signal. Some cost a source more than others.
        ahead: It only tells what will be asked of these replicas: nothing rests on the answer.
    """

    key: str
    target: TargetRef
    replicas: tuple[Replica, ...]
    start: datetime
    end: datetime
    warm_up_s: float = 0.0
    source: TelemetrySource = TelemetrySource.AUTO
    signals: frozenset[str] = frozenset()
    ahead: bool = False


class Telemetry(Protocol):
    """Measurements."""

    @property
    def lag_s(self) -> float:
        """Seconds after a moment in which its numbers come in; a window is whole only then."""
        ...

    def expect(self, asks: Sequence[Ask]) -> None:
        """Say what is going to be asked, so that the next look is for all of it."""
        ...

    def track(self, replicas: Sequence[Replica]) -> None:
        """Say which replicas exist, so that a source that keeps history itself can sample them.

        What is asked of them is to be said before, or the first look may be for a part of it.
        """
        ...

    def moved(self, replica: Replica) -> float:
        """How much the load of a replica changed at the last look, as a share of what it was.

        0 where that is not known. Nothing rests on it but who is evaluated first.
        """
        ...

    def collect(self, asks: Sequence[Ask]) -> Mapping[str, Readings]:
        """Answer all questions of a tick at once. Never raises: what fails is Unknown.

        Sources that charge by the query must not ask more for more `asks` of the same window.
        """
        ...
