"""Refusing a leader that was deposed and does not know it.

A process that was stopped (SIGSTOP, a frozen VM, a long swap) wakes up in the middle of a step and
writes on before it looks at a clock. The lease has another holder by then. So each transaction of a
leader begins by showing its leadership: one that is newer than what was seen before is noted, one
that is older is refused, and nothing of the transaction is written. Writers take turns, so there is
no moment between the look and the write.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, insert, select, update

from specpilot.store.errors import DeposedError
from specpilot.store.models import LeadershipRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """One holder's time as leader. Of two, the later one has the greater `order`.

    Attributes:
        lease: Which lease, as `namespace/name`.
        lease_created: When the lease was made. One that was deleted and made anew counts from
            zero again, and is newer all the same.
        transitions: How often it has changed hands.
        holder: Who holds it.
    """

    lease: str
    lease_created: datetime
    transitions: int
    holder: str

    @property
    def order(self) -> tuple[datetime, int]:
        """What rises with each leader."""
        return (self.lease_created, self.transitions)


_HERE = LeadershipRow.lease == bindparam("of_lease")
_FIND = select(LeadershipRow.lease_created, LeadershipRow.transitions, LeadershipRow.holder).where(
    _HERE
)


def hold(connection: Connection, leadership: Leadership) -> None:
    """Note the leadership in a transaction that writes, or refuse it.

    Raises:
        DeposedError: A later leader has written since.
    """
    found = connection.execute(_FIND, {"of_lease": leadership.lease}).one_or_none()
    values = {
        "lease_created": leadership.lease_created,
        "transitions": leadership.transitions,
        "holder": leadership.holder,
    }
    if found is None:
        connection.execute(insert(LeadershipRow).values(lease=leadership.lease, **values))
        return
    newest = (found.lease_created, found.transitions)
    if newest > leadership.order:
        raise DeposedError(
            f"nothing was written: {found.holder} leads since, by lease {leadership.lease} "
            f"(transition {found.transitions}; this process had {leadership.transitions})"
        )
    if newest < leadership.order:
        connection.execute(
            update(LeadershipRow).where(_HERE).values(**values), {"of_lease": leadership.lease}
        )
