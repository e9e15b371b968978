"""Alerts that are to be sent, written in the transaction of the change they tell of.

A row is sent at least once: whoever sends it may die before writing down that it did. The id
follows from channel and dedupe key alone, so a receiver can tell a second copy, even one that
comes from a database restored from a backup.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection, delete, func, insert, select, update

from specpilot.store import database
from specpilot.store.models import DeliveryRow, OutboxRow, Plain


class OutboxState(StrEnum):
    """What has become of an alert."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxItem:
    """An alert.

    Attributes:
        id: Stable; the receiver's key against duplicates.
        channel: Name of the channel it goes to.
        event: What happened.
        payload: What is said.
        created_at: When it was put here.
        state: What has become of it.
        attempts: Attempts so far.
        next_at: When it is due.
    """

    id: str
    channel: str
    event: str
    payload: Plain
    created_at: datetime
    state: OutboxState
    attempts: int
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One attempt.

    Attributes:
        outbox_id: The alert.
        attempt: From 1.
        at: When it began.
        status: HTTP status, None when there was no answer.
        answer: Beginning of the answer's body.
        error: What went wrong in words, "" when nothing did.
        latency_s: Seconds until the answer, or until the failure.
    """

    outbox_id: str
    attempt: int
    at: datetime
    status: int | None
    answer: str
    error: str
    latency_s: float


class Outbox:
    """The outbox within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def enqueue(
        self,
        *,
        dedupe_key: str,
        channel: str,
        event: str,
        payload: Mapping[str, object],
        at: datetime,
    ) -> bool:
        """Put an alert into the outbox; return False when this channel has it already."""
        digest = hashlib.sha256(f"{channel}\0{dedupe_key}".encode()).hexdigest()
        added = self._connection.scalar(
            database.insert(self._connection, OutboxRow)
            .values(
                id=f"msg_{digest[:32]}",
                channel=channel,
                dedupe_key=dedupe_key,
                event=event,
                payload=dict(payload),
                created_at=at,
                state=str(OutboxState.WAITING),
                attempts=0,
                next_at=at,
            )
            .on_conflict_do_nothing()
            .returning(OutboxRow.id)
        )
        return added is not None

    def due(
        self, *, now: datetime, limit: int, except_channels: Collection[str] = ()
    ) -> list[OutboxItem]:
        """Return alerts that are to be sent now, the longest due first."""
        query = (
            select(
                OutboxRow.id,
                OutboxRow.channel,
                OutboxRow.event,
                OutboxRow.payload,
                OutboxRow.created_at,
                OutboxRow.state,
                OutboxRow.attempts,
                OutboxRow.next_at,
            )
            .where(OutboxRow.state == str(OutboxState.WAITING), OutboxRow.next_at <= now)
            .where(OutboxRow.channel.not_in(list(except_channels)))
            .order_by(OutboxRow.next_at, OutboxRow.created_at, OutboxRow.id)
            .limit(limit)
        )
        return [
            OutboxItem(
                id=row.id,
                channel=row.channel,
                event=row.event,
                payload=row.payload,
                created_at=row.created_at,
                state=OutboxState(row.state),
                attempts=row.attempts,
                next_at=row.next_at,
            )
            for row in self._connection.execute(query)
        ]

    def delivered(
        self, item_id: str, *, at: datetime, status: int, answer: str, latency_s: float
    ) -> None:
        """Write down that the receiver took it."""
        self._log(item_id, at=at, status=status, answer=answer, error="", latency_s=latency_s)
        self._finish(item_id, state=OutboxState.DELIVERED, at=at)

    def failed(
        self,
        item_id: str,
        *,
        at: datetime,
        next_at: datetime,
        status: int | None,
        answer: str,
        error: str,
        latency_s: float,
    ) -> None:
        """Write down an attempt that failed, and when to try again."""
        self._log(item_id, at=at, status=status, answer=answer, error=error, latency_s=latency_s)
        self._connection.execute(
            update(OutboxRow)
            .where(OutboxRow.id == item_id, OutboxRow.state == str(OutboxState.WAITING))
            .values(next_at=next_at)
        )

    def dead(
        self,
        item_id: str,
        *,
        at: datetime,
        status: int | None,
        answer: str,
        error: str,
        latency_s: float,
    ) -> None:
        """Write down an attempt that failed and that there will be no other."""
        self._log(item_id, at=at, status=status, answer=answer, error=error, latency_s=latency_s)
        self._finish(item_id, state=OutboxState.DEAD, at=at)

    def counts(self) -> dict[OutboxState, int]:
        """Return how many alerts there are in each state, for metrics."""
        found = dict.fromkeys(OutboxState, 0)
        rows = self._connection.execute(
            select(OutboxRow.state, func.count()).group_by(OutboxRow.state)
        )
        found.update((OutboxState(state), count) for state, count in rows)
        return found

    def deliveries(self, *, channel: str | None = None, limit: int = 50) -> list[Delivery]:
        """Return attempts, newest first."""
        query = select(
            DeliveryRow.outbox_id,
            DeliveryRow.attempt,
            DeliveryRow.at,
            DeliveryRow.status,
            DeliveryRow.answer,
            DeliveryRow.error,
            DeliveryRow.latency_s,
        ).join(OutboxRow, OutboxRow.id == DeliveryRow.outbox_id)
        if channel is not None:
            query = query.where(OutboxRow.channel == channel)
        return [
            Delivery(
                outbox_id=row.outbox_id,
                attempt=row.attempt,
                at=row.at,
                status=row.status,
                answer=row.answer,
                error=row.error,
                latency_s=row.latency_s,
            )
            for row in self._connection.execute(query.order_by(DeliveryRow.id.desc()).limit(limit))
        ]

    def prune(self, *, finished_before: datetime) -> int:
        """Delete delivered and dead alerts with their attempts; return how many alerts."""
        done = self._connection.execute(
            delete(OutboxRow).where(OutboxRow.finished_at < finished_before)
        )
        return done.rowcount

    def _log(
        self,
        item_id: str,
        *,
        at: datetime,
        status: int | None,
        answer: str,
        error: str,
        latency_s: float,
    ) -> None:
        self._connection.execute(
            update(OutboxRow).where(OutboxRow.id == item_id).values(attempts=OutboxRow.attempts + 1)
        )
        self._connection.execute(
            insert(DeliveryRow).values(
                outbox_id=item_id,
                attempt=select(OutboxRow.attempts).where(OutboxRow.id == item_id).scalar_subquery(),
                at=at,
                status=status,
                answer=database.storable(answer),
                error=database.storable(error),
                latency_s=latency_s,
            )
        )

    def _finish(self, item_id: str, *, state: OutboxState, at: datetime) -> None:
        self._connection.execute(
            update(OutboxRow)
            .where(OutboxRow.id == item_id, OutboxRow.state == str(OutboxState.WAITING))
            .values(state=str(state), finished_at=at)
        )
