"""The tables, once for SQLite and PostgreSQL.

What is searched for is a column; everything else of a value is JSON in `body`, in the form that
`specpilot.store.codec` defines. The generic JSON type is used on purpose: on PostgreSQL it keeps
the text as written, where JSONB would turn 1e5 into 100000 and break the hash of an audit record.

A change here needs a migration; a test compares the two.
"""

from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    Text,
    TypeDecorator,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Plain = dict[str, object]
"""A JSON object as Python reads it."""


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: goes in aware, comes out aware and in UTC. SQLite keeps no zone of its own."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a datetime that does not say which instant it means."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone; use an aware datetime")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the zone back."""
        del dialect
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Base of all tables."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        float: Float(),
        datetime: UtcDateTime(),
        Plain: JSON(),
        list[Plain]: JSON(),
    }


class FlagChangeRow(Base):
    """A flag change. `ended` follows from the phase, so that an index can hold to it."""

    __tablename__ = "flag_change"

    id: Mapped[str] = mapped_column(primary_key=True)
    policy_uid: Mapped[str]
    policy_namespace: Mapped[str]
    policy_name: Mapped[str]
    target_kind: Mapped[str]
    target_namespace: Mapped[str]
    target_name: Mapped[str]
    phase: Mapped[str]
    ended: Mapped[bool]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    revision: Mapped[int]
    body: Mapped[Plain]

    __table_args__ = (
        Index(
            "uq_flag_change_in_flight",
            "target_kind",
            "target_namespace",
            "target_name",
            unique=True,
            sqlite_where=text("NOT ended"),
            postgresql_where=text("NOT ended"),
        ),
        Index(None, "policy_uid", "created_at"),
        Index(
            "ix_flag_change_target_created_at",
            "target_kind",
            "target_namespace",
            "target_name",
            "created_at",
        ),
        Index(None, "created_at"),
    )


class PolicyMemoryRow(Base):
    """Memory of one policy."""

    __tablename__ = "policy_memory"

    policy_uid: Mapped[str] = mapped_column(primary_key=True)
    body: Mapped[Plain]


class MeasurementRow(Base):
    """What a step costs, from one comparison of arms. Of requests it holds counts only."""

    __tablename__ = "measurement"

    change_id: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str]
    config: Mapped[str]
    at: Mapped[datetime]
    body: Mapped[Plain]

    __table_args__ = (Index(None, "target", "config", "at"),)


class AcceptanceHourRow(Base):
    """Acceptance length of a target with one config, summed up over an hour."""

    __tablename__ = "acceptance_hour"

    target: Mapped[str] = mapped_column(primary_key=True)
    config: Mapped[str] = mapped_column(primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    samples: Mapped[int]
    total: Mapped[float]

    __table_args__ = (Index(None, "hour"),)


class LeadershipRow(Base):
    """The newest leader that has written, by the lease that made it one."""

    __tablename__ = "leadership"

    lease: Mapped[str] = mapped_column(primary_key=True)
    lease_created: Mapped[datetime]
    transitions: Mapped[int]
    holder: Mapped[str]


class RuleSetRow(Base):
    """A rule set: who may change it, and its latest version."""

    __tablename__ = "rule_set"

    namespace: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    latest: Mapped[int]


class RuleSetVersionRow(Base):
    """A version of a rule set. Triggers refuse to change or delete one."""

    __tablename__ = "rule_set_version"

    namespace: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    content: Mapped[Plain]
    content_hash: Mapped[str]
    owner: Mapped[str]
    author: Mapped[str]
    source: Mapped[str]
    applied_at: Mapped[datetime]

    __table_args__ = (
        ForeignKeyConstraint(["namespace", "name"], ["rule_set.namespace", "rule_set.name"]),
    )


class AuditRow(Base):
    """An audit record. Triggers refuse to change or delete one."""

    __tablename__ = "audit_record"

    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    action: Mapped[str]
    actor: Mapped[str]
    namespace: Mapped[str]
    policy: Mapped[str]
    target: Mapped[str]
    change_id: Mapped[str]
    step: Mapped[int | None]
    before: Mapped[Plain]
    after: Mapped[Plain]
    reason: Mapped[str]
    message: Mapped[str]
    evidence: Mapped[list[Plain]]
    mode: Mapped[str]
    prev_hash: Mapped[str]
    hash: Mapped[str]

    __table_args__ = (
        Index("uq_audit_record_change_id_step", "change_id", "step", unique=True),
        Index(None, "namespace", "policy"),
    )


class OutboxRow(Base):
    """An alert that is to be sent, was sent, or was given up."""

    __tablename__ = "outbox"

    id: Mapped[str] = mapped_column(primary_key=True)
    channel: Mapped[str]
    dedupe_key: Mapped[str]
    event: Mapped[str]
    payload: Mapped[Plain]
    created_at: Mapped[datetime]
    state: Mapped[str]
    attempts: Mapped[int]
    next_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]

    __table_args__ = (
        Index("uq_outbox_channel_dedupe_key", "channel", "dedupe_key", unique=True),
        Index(None, "state", "next_at"),
    )


class DeliveryRow(Base):
    """One attempt to send an alert."""

    __tablename__ = "outbox_delivery"

    id: Mapped[int] = mapped_column(primary_key=True)
    outbox_id: Mapped[str] = mapped_column(ForeignKey("outbox.id", ondelete="CASCADE"), index=True)
    attempt: Mapped[int]
    at: Mapped[datetime]
    status: Mapped[int | None]
    answer: Mapped[str]
    error: Mapped[str]
    latency_s: Mapped[float]


class ResourceRow(Base):
    """A resource applied where there is no Kubernetes API to keep it."""

    __tablename__ = "resource"

    kind: Mapped[str] = mapped_column(primary_key=True)
    namespace: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    uid: Mapped[str]
    generation: Mapped[int]
    metadata_: Mapped[Plain] = mapped_column("metadata")
    spec: Mapped[Plain]
    status: Mapped[Plain]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
