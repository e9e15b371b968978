"""What the evaluator and the reconciler work with; one set for a cluster, one for a machine."""

from collections.abc import Callable
from dataclasses import dataclass

from specpilot.controller.recorder import Recorder
from specpilot.controller.registry import Registry
from specpilot.domain.portions import UNDIVIDED, Portions
from specpilot.domain.ports import Clock, Fleet, Telemetry
from specpilot.domain.settings import Declared
from specpilot.domain.targets import TargetRef
from specpilot.store import Store


def plain_patch(target: TargetRef, wanted: Declared) -> str:
    """What to apply, in words: where a fleet has no patches of its own."""
    return f"{target}: speculative config {wanted.config or 'none (off)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The edges, put together.

    Attributes:
        store: The state of record.
        fleet: Where targets live.
        telemetry: Where numbers come from.
        registry: Where policies come from and answers go.
        recorder: The only writer of flag changes.
        clock: The time.
        patch: Says what the owner of a target has to apply, in mode Propose.
        portions: Which targets are measured and evaluated together.
        most_concurrent: Changes that may be in flight at a time in all targets; None is any number.
    """

    store: Store
    fleet: Fleet
    telemetry: Telemetry
    registry: Registry
    recorder: Recorder
    clock: Clock
    portions: Portions = UNDIVIDED
    most_concurrent: int | None = None
    patch: Callable[[TargetRef, Declared], str] = plain_patch
