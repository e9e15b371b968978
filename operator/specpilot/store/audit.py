"""The audit chain in the database.

A record's place and the hash of its predecessor are decided while the writer lock is held, so the
chain has no forks and no gaps. Triggers keep honest programs from rewriting it; `verify` shows
what somebody did who went round them. A chain alone cannot show that its end was cut off: for
that, keep a head somewhere else and give it to `verify`.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, insert, select
from sqlalchemy.exc import IntegrityError

from specpilot.domain import audit
from specpilot.domain.audit import GENESIS, AuditDraft, AuditRecord, Verification
from specpilot.store.database import storable
from specpilot.store.errors import DuplicateStepError
from specpilot.store.models import AuditRow

_DRAFT = tuple(AuditDraft.__slots__)
_COLUMNS = AuditRow.__table__.columns

_ADD = insert(AuditRow)
_HEAD = select(AuditRow.seq, AuditRow.hash).order_by(AuditRow.seq.desc()).limit(1)


class Audit:
    """The audit chain within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, draft: AuditDraft, *, at: datetime) -> AuditRecord:
        """Seal a record and put it at the end of the chain.

        Raises:
            DuplicateStepError: The flag change has a record of this step.
            ValueError: A step without a flag change.
        """
        if draft.step is not None and not draft.change_id:
            raise ValueError(f"audit record {draft.action}: step {draft.step} of no flag change")
        draft = replace(
            draft,
            action=storable(draft.action),
            actor=storable(draft.actor),
            target=storable(draft.target),
            reason=storable(draft.reason),
            message=storable(draft.message),
        )
        seq, prev_hash = self.head()
        record = audit.seal(draft, seq=seq + 1, at=at, prev_hash=prev_hash)
        values = {name: getattr(draft, name) for name in _DRAFT}
        values |= {"seq": record.seq, "at": at, "prev_hash": prev_hash, "hash": record.hash}
        try:
            with self._connection.begin_nested():
                self._connection.execute(_ADD, values)
        except IntegrityError:
            if draft.step is None:
                raise
            raise DuplicateStepError(
                f"step {draft.step} of flag change {draft.change_id} is recorded already"
            ) from None
        return record

    def head(self) -> tuple[int, str]:
        """Return number and hash of the last record; (0, GENESIS) when there is none."""
        last = self._connection.execute(_HEAD).one_or_none()
        return (0, GENESIS) if last is None else (last.seq, last.hash)

    def records(
        self,
        *,
        change_id: str | None = None,
        namespace: str | None = None,
        policy: str | None = None,
        after: int = 0,
        limit: int = 100,
        newest_first: bool = False,
    ) -> list[AuditRecord]:
        """Return records, oldest first unless told otherwise.

        Args:
            change_id: Only those of a flag change.
            namespace: Only those of policies in a namespace.
            policy: Only those of policies with this name.
            after: Only those with a greater `seq`, for paging.
            limit: How many at most.
            newest_first: The last ones instead of the first ones.
        """
        where: list[ColumnElement[bool]] = [AuditRow.seq > after]
        for column, wanted in (
            (AuditRow.change_id, change_id),
            (AuditRow.namespace, namespace),
            (AuditRow.policy, policy),
        ):
            if wanted is not None:
                where.append(column == wanted)
        order = AuditRow.seq.desc() if newest_first else AuditRow.seq.asc()
        rows = self._connection.execute(
            select(*_COLUMNS).where(*where).order_by(order).limit(limit)
        )
        return [_record(row) for row in rows]

    def verify(self, *, known_head: str = "") -> Verification:
        """Walk the whole chain.

        Args:
            known_head: Hash of a record as it was exported earlier; it must still be there.
        """
        seen = not known_head or known_head == GENESIS

        def walk() -> Iterator[AuditRecord]:
            nonlocal seen
            rows = self._connection.execute(
                select(*_COLUMNS).order_by(AuditRow.seq), execution_options={"yield_per": 1000}
            )
            for row in rows:
                record = _record(row)
                seen = seen or record.hash == known_head
                yield record

        result = audit.verify(walk())
        if result.ok and not seen:
            return replace(
                result,
                broken_at=result.records + 1,
                message=f"no record has the hash {known_head}, which was the head once: "
                "the end was cut off or the whole chain was written anew",
            )
        return result


def _record(row: Row[Any]) -> AuditRecord:
    found = row._mapping  # noqa: SLF001 - SQLAlchemy's documented way to a row by name
    values = {name: found[name] for name in _DRAFT}
    return AuditRecord(
        seq=found["seq"],
        at=found["at"],
        draft=AuditDraft(**{**values, "evidence": tuple(values["evidence"])}),
        prev_hash=found["prev_hash"],
        hash=found["hash"],
    )
