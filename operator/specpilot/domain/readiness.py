"""Replicas that become ready and lose it again: what a single look cannot see.

A canary that flaps is up whenever one looks, or nearly, and its numbers are fine while it is. So
what was seen of each replica is kept with the change. Only replicas that have been ready count:
one that still loads its model has nothing to lose.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from specpilot.domain.targets import Replica

AWAY = timedelta(minutes=2)
"""How long a replica that was ready may be unready before that is a fault of its own."""

OFTEN = 2
"""Times a replica may lose readiness before it flaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of one replica.

    Attributes:
        ready_since: When it last became ready, as it says itself.
        losses: Times it was ready and was not any more.
        away_since: Since when it is not ready; None while it is.
    """

    ready_since: datetime | None
    losses: int = 0
    away_since: datetime | None = None


def look(
    seen: Mapping[str, Seen], replicas: Iterable[Replica], *, now: datetime
) -> Mapping[str, Seen]:
    """Add one look to what was seen; replicas that are gone are forgotten.

    Args:
        seen: By instance.
        replicas: All that are not going away. One whose machine was lost is not looked at.
        now: The time.
    """
    found: dict[str, Seen] = {}
    for replica in replicas:
        before = seen.get(replica.instance)
        if replica.lost:
            if before is not None:
                found[replica.instance] = before
        elif replica.ready:
            found[replica.instance] = _back(before, replica)
        elif before is not None:
            away = before.away_since
            losses = before.losses + (away is None)
            found[replica.instance] = replace(before, losses=losses, away_since=away or now)
    return found


def _back(before: Seen | None, replica: Replica) -> Seen:
    if before is None:
        return Seen(ready_since=replica.ready_since)
    # Ready at both looks and in between not: only its own word tells.
    missed = before.away_since is None and before.ready_since != replica.ready_since
    return Seen(ready_since=replica.ready_since, losses=before.losses + missed)


def flapping(
    seen: Mapping[str, Seen],
    *,
    canary: Iterable[Replica],
    control: Iterable[Replica],
    now: datetime,
) -> str:
    """Say which replica of the canary does not stay ready; "" when all do.

    Where the control arm loses readiness too, it is the cluster and not the setting.
    """
    if any(_unsteady(seen.get(r.instance), now=now) or _lost_any(seen, r) for r in control):
        return ""
    for replica in canary:
        what = _unsteady(seen.get(replica.instance), now=now)
        if what and not replica.lost:
            return f"{replica.id} {what}"
    return ""


def _lost_any(seen: Mapping[str, Seen], replica: Replica) -> bool:
    known = seen.get(replica.instance)
    return known is not None and known.losses > 0


def _unsteady(known: Seen | None, *, now: datetime) -> str:
    if known is None:
        return ""
    if known.losses >= OFTEN:
        return f"lost readiness {known.losses} times"
    if known.away_since is not None and now - known.away_since > AWAY:
        return f"was ready and is not since {known.away_since:%H:%M:%S} UTC"
    return ""
