"""What a roll may do to the number of replicas, and what it has done, in words."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from specpilot.fleets.kubernetes.request import Object
from specpilot.fleets.kubernetes.workloads.base import Family, HasRoom, Path, Workload, dig


def resolve(value: object, *, of: int, up: bool) -> int:
    """A number of replicas from an int or a percentage, rounded as the controllers round.

    Args:
        value: `1` or `25%`.
        of: Replicas that are wanted.
        up: Round up (surge) or down (unavailable).
    """
    text = str(value)
    if text.endswith("%"):
        exact = int(text[:-1]) * of / 100
        return math.ceil(exact) if up else math.floor(exact)
    return int(text)


def room_for_canary(*, wanted: int, surge: int, unavailable: int, room: Callable[[], bool]) -> bool:
    """Whether a canary can come up without fewer serving than the user's strategy allows.

    Args:
        wanted: Replicas that are wanted.
        surge: Replicas by which a roll may exceed them.
        unavailable: Replicas by which it may fall short of them.
        room: Whether nodes have what one more replica requests; asked only when that decides.
    """
    if wanted <= 1:
        # With one unavailable the controllers stop the only one at once, surge or not.
        return surge >= 1 and unavailable == 0 and room()
    # One of several may be missing by the user's own word, and makes room where it stood.
    return unavailable >= 1 or (surge >= 1 and room())


def counted(
    root: Object, *, wanted: int, noun: str = "replicas", serving: str = "available", older: int = 0
) -> list[str]:
    """Words where an object's status counts replicas of an older template, too many, or too few.

    Args:
        root: The object.
        wanted: Replicas that are wanted.
        noun: What a replica is called.
        serving: How the status calls those that serve.
        older: Replicas of an older template that are known of otherwise.
    """
    status = root.get("status") or {}
    total, updated, served = (
        int(status.get(field) or 0)
        for field in ("replicas", "updatedReplicas", f"{serving}Replicas")
    )
    words = []
    if updated < wanted:
        words.append(f"{updated} of {wanted} {noun} are of the latest template")
    if (left := max(older, total - updated)) > 0:
        words.append(f"{left} of an older template are still there")
    if total != wanted:
        words.append(f"{total} {noun} exist and {wanted} are wanted")
    if served < wanted:
        words.append(f"{served} of {wanted} are {serving}")
    return words


class SurgingWorkload(Workload):
    """A workload whose strategy has maxSurge and maxUnavailable.

    Attributes:
        strategy: Where they are.
        unless_said: What they are where they are not written.
    """

    strategy: Path
    unless_said: tuple[int | str, int | str] = ("25%", "25%")

    def fenceposts(self, root: Object) -> tuple[int, int]:
        """Replicas by which a roll may exceed (surge), and fall short of, those that are wanted."""
        strategy = dig(root, self.strategy) or {}
        wanted = self.replicas_wanted(root)
        surge, unavailable = self.unless_said
        return (
            resolve(strategy.get("maxSurge", surge), of=wanted, up=True),
            resolve(strategy.get("maxUnavailable", unavailable), of=wanted, up=False),
        )

    def replica_specs(self, root: Object) -> Sequence[Mapping[str, Any]]:
        """Specs of the pods of one more replica."""
        return [dig(root, (*self.templates[0], "spec")) or {}]

    def can_add_replica(self, family: Family, has_room: HasRoom) -> bool:
        """See `Workload`."""
        root = family.root
        surge, unavailable = self.fenceposts(root)
        return room_for_canary(
            wanted=self.replicas_wanted(root),
            surge=surge,
            unavailable=unavailable,
            room=lambda: has_room(self.replica_specs(root)),
        )

    def must_surge(self, family: Family) -> Sequence[Mapping[str, Any]]:
        """See `Workload`."""
        _, unavailable = self.fenceposts(family.root)
        return () if unavailable else self.replica_specs(family.root)
