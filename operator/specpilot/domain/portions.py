"""Which targets are measured and evaluated together."""

from typing import Protocol


class Portions(Protocol):
    """A fleet, cut into portions that are looked at one after the other within an interval.

    The targets of a namespace are always in one portion. Portions are counted from 0; nobody is
    in one from `count` on.
    """

    @property
    def most(self) -> int:
        """How many there may ever be."""
        ...

    @property
    def count(self) -> int:
        """How many there are now."""
        ...

    def of(self, namespace: str) -> int:
        """The portion that a namespace is in now."""
        ...


class Undivided:
    """Everything at once."""

    most = 1
    count = 1

    def of(self, namespace: str) -> int:  # noqa: ARG002 - all are in the one there is
        """The only one."""
        return 0


UNDIVIDED = Undivided()
