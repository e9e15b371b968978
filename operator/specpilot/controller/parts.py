"""What the evaluator and the reconciler work with; one set for a cluster, one for a machine."""

from dataclasses import dataclass

from specpilot.controller.recorder import Recorder
from specpilot.controller.registry import Registry
from specpilot.domain.ports import Clock, Fleet, Telemetry
from specpilot.store import Store


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
    """

    store: Store
    fleet: Fleet
    telemetry: Telemetry
    registry: Registry
    recorder: Recorder
    clock: Clock
