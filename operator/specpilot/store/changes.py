"""Flag changes in the database: at most one in flight per target, no write lost.

The queries are built once: a tick asks several for each policy, and building one takes SQLAlchemy
longer than SQLite takes to answer it.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, Integer, Select, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from specpilot.domain.changes import FlagChange, Phase
from specpilot.domain.targets import TargetRef
from specpilot.store.codec import change_from_plain, change_to_plain
from specpilot.store.database import chunks
from specpilot.store.errors import ConcurrentUpdateError, DuplicateChangeError, TargetBusyError
from specpilot.store.models import FlagChangeRow, Plain


def _row(change: FlagChange) -> dict[str, object]:
    ended = change.phase.ended
    return {
        "id": change.id,
        "policy_uid": change.policy.uid,
        "policy_namespace": change.policy.namespace,
        "policy_name": change.policy.name,
        "target_kind": change.target.kind,
        "target_namespace": change.target.namespace,
        "target_name": change.target.name,
        "phase": str(change.phase),
        "ended": ended,
        "created_at": change.created_at,
        "ended_at": (change.ended_at or change.phase_since) if ended else None,
        "revision": change.revision,
        "body": change_to_plain(change),
    }


_CHUNK = 500
_NONE: Mapping[str, FlagChange] = {}

_POLICY = FlagChangeRow.policy_uid == bindparam("policy_uid")
_TARGET = (
    (FlagChangeRow.target_kind == bindparam("kind"))
    & (FlagChangeRow.target_namespace == bindparam("namespace"))
    & (FlagChangeRow.target_name == bindparam("name"))
)
_SETTLED = FlagChangeRow.phase.in_(
    [str(phase) for phase in (Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.REJECTED)]
)
_LIMIT = bindparam("limit", type_=Integer)

_ADD = insert(FlagChangeRow)
_PUT = update(FlagChangeRow).where(
    FlagChangeRow.id == bindparam("of_id"), FlagChangeRow.revision == bindparam("of_revision")
)
_ALL = select(FlagChangeRow.body)
_NEWEST_FIRST = _ALL.order_by(FlagChangeRow.created_at.desc(), FlagChangeRow.id)
_GET = _ALL.where(FlagChangeRow.id == bindparam("id"))
_OPEN = _ALL.where(~FlagChangeRow.ended).order_by(FlagChangeRow.created_at, FlagChangeRow.id)
_OPEN_REVISIONS = (
    select(FlagChangeRow.id, FlagChangeRow.revision)
    .where(~FlagChangeRow.ended)
    .order_by(FlagChangeRow.created_at, FlagChangeRow.id)
)
_SOME = _ALL.where(FlagChangeRow.id.in_(bindparam("ids", expanding=True)))
_IN_FLIGHT = _NEWEST_FIRST.where(_TARGET, ~FlagChangeRow.ended).limit(1)
_ENDED_SINCE = _NEWEST_FIRST.where(_TARGET, FlagChangeRow.ended_at >= bindparam("since"))
_OUTCOMES = _NEWEST_FIRST.where(_TARGET, _SETTLED).limit(_LIMIT)
_RECENT = {
    (False, False): _NEWEST_FIRST.limit(_LIMIT),
    (True, False): _NEWEST_FIRST.where(_POLICY).limit(_LIMIT),
    (False, True): _NEWEST_FIRST.where(_TARGET).limit(_LIMIT),
    (True, True): _NEWEST_FIRST.where(_POLICY, _TARGET).limit(_LIMIT),
}
"""By whether a policy and a target are given."""


def _key(target: TargetRef) -> dict[str, object]:
    """Parameters of `_TARGET`."""
    return dict(zip(("kind", "namespace", "name"), target.key, strict=True))


class Changes:
    """Flag changes within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, change: FlagChange) -> None:
        """Store a new flag change.

        Raises:
            TargetBusyError: The target has one that has not ended.
            DuplicateChangeError: The id is taken.
        """
        try:
            with self._connection.begin_nested():
                self._connection.execute(_ADD, _row(change))
        except IntegrityError:
            if self.get(change.id) is not None:
                raise DuplicateChangeError(f"there is a flag change {change.id} already") from None
            if (other := self.in_flight(change.target)) is not None:
                raise TargetBusyError(
                    f"{change.target} has flag change {other.id} of policy {other.policy} in phase "
                    f"{other.phase}; another one can begin when it has ended"
                ) from None
            raise

    def get(self, change_id: str) -> FlagChange | None:
        """Return a flag change."""
        found = self._read(_GET, {"id": change_id})
        return found[0] if found else None

    def put(self, change: FlagChange) -> FlagChange:
        """Write a flag change back; return it with its new revision.

        Raises:
            ConcurrentUpdateError: It was written since `change` was read, or is gone.
        """
        stored = replace(change, revision=change.revision + 1)
        before = {"of_id": change.id, "of_revision": change.revision}
        done = self._connection.execute(_PUT, {**_row(stored), **before})
        if done.rowcount != 1:
            now = self.get(change.id)
            state = "does not exist" if now is None else f"is at revision {now.revision}"
            raise ConcurrentUpdateError(
                f"flag change {change.id} {state}, not at revision {change.revision}: "
                "read it again and decide again"
            )
        return stored

    def in_flight(self, target: TargetRef) -> FlagChange | None:
        """Return the target's flag change that has not ended."""
        found = self._read(_IN_FLIGHT, _key(target))
        return found[0] if found else None

    def open(self, *, known: Mapping[str, FlagChange] = _NONE) -> list[FlagChange]:
        """Return all flag changes that have not ended, oldest first.

        Args:
            known: Some that were read before, by id: those that are as they were are not read anew.
        """
        if not known:
            return self._read(_OPEN, {})
        stand = self._connection.execute(_OPEN_REVISIONS).all()
        ids = [
            row.id for row in stand if row.id not in known or known[row.id].revision != row.revision
        ]
        fresh = {
            change.id: change
            for some in chunks(ids, _CHUNK)
            for change in self._read(_SOME, {"ids": some})
        }
        return [fresh.get(row.id) or known[row.id] for row in stand]

    def recent(
        self, *, policy_uid: str | None = None, target: TargetRef | None = None, limit: int = 50
    ) -> list[FlagChange]:
        """Return flag changes of a policy, a target or all, newest first."""
        query = _RECENT[policy_uid is not None, target is not None]
        given = {} if target is None else _key(target)
        if policy_uid is not None:
            given["policy_uid"] = policy_uid
        return self._read(query, {**given, "limit": limit})

    def ended_since(self, target: TargetRef, *, since: datetime) -> list[FlagChange]:
        """Return the target's flag changes that ended at or after `since`, newest first.

        Advice, rejections and expiries are among them: the caller knows which phases it counts.
        """
        return self._read(_ENDED_SINCE, {**_key(target), "since": since})

    def outcomes(self, target: TargetRef, *, limit: int) -> list[FlagChange]:
        """Return the target's newest changes that succeeded, were undone or rejected."""
        return self._read(_OUTCOMES, {**_key(target), "limit": limit})

    def prune(self, *, ended_before: datetime) -> int:
        """Delete flag changes that ended before an instant. Their audit records stay."""
        done = self._connection.execute(
            delete(FlagChangeRow).where(FlagChangeRow.ended_at < ended_before)
        )
        return done.rowcount

    def _read(self, query: Select[Plain], given: Mapping[str, object]) -> list[FlagChange]:
        return [change_from_plain(body) for body in self._connection.scalars(query, given)]
