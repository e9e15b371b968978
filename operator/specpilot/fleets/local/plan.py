"""Decide the next step from what runs to what is wanted. Pure, so that it can be tried out.

The one rule that matters: a replica that serves is taken away only when all others serve. So never
more than one replica is missing by our doing, whatever crashes, and however often the intent
changes on the way. A replica that does not serve can be replaced at any time: nothing is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specpilot.domain.changes import Extent, Intent
from specpilot.domain.settings import Declared


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotView:
    """One place for a replica, as it is now.

    Attributes:
        index: Number of the slot.
        assigned: What the slot is to run, and what its next process is started with.
        running: What its process was started with; None when there is none, or it is past saving
            (already told to stop).
        ready: The process serves, and new requests are sent to it.
        beside: What the process was started with that comes up beside it (surge), if any.
        leaving: A former process of the slot has not ended yet, and holds its port and memory.
    """

    index: int
    assigned: Declared
    running: Declared | None
    ready: bool
    beside: Declared | None = None
    leaving: bool = False

    @property
    def settled(self) -> bool:
        """It serves, and nothing is under way."""
        return (
            self.ready
            and self.running == self.assigned
            and self.beside is None
            and not self.leaving
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Have the slot run something else; in place, or beside the process that serves."""

    index: int
    declared: Declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Take the replacement back: the process the slot has is the wanted one after all."""

    index: int


def wishes(slots: Sequence[SlotView], intent: Intent) -> tuple[Declared, ...]:
    """Say for each slot what it should run.

    A canary goes to the slots that run it already, then to those on the way to it, then to those
    that do not serve anyway, then to the last ones.
    """
    if intent.extent is Extent.ALL:
        return (intent.declared,) * len(slots)

    def preference(slot: SlotView) -> tuple[bool, bool, bool, int]:
        return (
            slot.running != intent.declared,
            intent.declared not in (slot.assigned, slot.beside),
            slot.ready,
            -slot.index,
        )

    canaries = {s.index for s in sorted(slots, key=preference)[: max(0, intent.canary_replicas)]}
    return tuple(intent.declared if s.index in canaries else intent.previous for s in slots)


def next_steps(slots: Sequence[SlotView], wanted: Sequence[Declared]) -> tuple[Replace | Keep, ...]:
    """Return what can be done now; nothing when all is as wanted, or something must come up first.

    Args:
        slots: All slots of the group.
        wanted: What each is to run, in the same order.
    """
    steps: list[Replace | Keep] = []
    serving_wrong: list[SlotView] = []
    for slot, wish in zip(slots, wanted, strict=True):
        if slot.running == wish:
            if slot.assigned != wish or slot.beside is not None:
                steps.append(Keep(index=slot.index))
        elif slot.assigned == wish:
            pass  # under way
        elif slot.ready and slot.running == slot.assigned:
            serving_wrong.append(slot)
        else:
            steps.append(Replace(index=slot.index, declared=wish))
    if steps:
        return tuple(steps)
    if serving_wrong and all(s.settled for s in slots):
        last = serving_wrong[-1]
        return (Replace(index=last.index, declared=wanted[slots.index(last)]),)
    return ()
