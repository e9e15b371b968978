"""The first schema: flag changes, memory, rules, audit, outbox, local resources."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_INSTANT = sa.DateTime(timezone=True)
_APPEND_ONLY = ("audit_record", "rule_set_version")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "flag_change",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("policy_uid", sa.Text(), nullable=False),
        sa.Column("policy_namespace", sa.Text(), nullable=False),
        sa.Column("policy_name", sa.Text(), nullable=False),
        sa.Column("target_kind", sa.Text(), nullable=False),
        sa.Column("target_namespace", sa.Text(), nullable=False),
        sa.Column("target_name", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("ended_at", _INSTANT, nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_flag_change"),
    )
    op.create_index(
        "uq_flag_change_in_flight",
        "flag_change",
        ["target_kind", "target_namespace", "target_name"],
        unique=True,
        sqlite_where=sa.text("NOT ended"),
        postgresql_where=sa.text("NOT ended"),
    )
    op.create_index(
        "ix_flag_change_policy_uid_created_at", "flag_change", ["policy_uid", "created_at"]
    )
    op.create_index(
        "ix_flag_change_target_created_at",
        "flag_change",
        ["target_kind", "target_namespace", "target_name", "created_at"],
    )
    op.create_index("ix_flag_change_created_at", "flag_change", ["created_at"])
    op.create_table(
        "policy_memory",
        sa.Column("policy_uid", sa.Text(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("policy_uid", name="pk_policy_memory"),
    )
    op.create_table(
        "rule_set",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("latest", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", name="pk_rule_set"),
    )
    op.create_table(
        "rule_set_version",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("applied_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", "version", name="pk_rule_set_version"),
        sa.ForeignKeyConstraint(
            ["namespace", "name"],
            ["rule_set.namespace", "rule_set.name"],
            name="fk_rule_set_version_rule_set",
        ),
    )
    op.create_table(
        "audit_record",
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("change_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("before", sa.JSON(), nullable=False),
        sa.Column("after", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("prev_hash", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_record"),
    )
    op.create_index(
        "uq_audit_record_change_id_step", "audit_record", ["change_id", "step"], unique=True
    )
    op.create_index("ix_audit_record_namespace_policy", "audit_record", ["namespace", "policy"])
    op.create_table(
        "outbox",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_at", _INSTANT, nullable=False),
        sa.Column("finished_at", _INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
    )
    op.create_index(
        "uq_outbox_channel_dedupe_key", "outbox", ["channel", "dedupe_key"], unique=True
    )
    op.create_index("ix_outbox_state_next_at", "outbox", ["state", "next_at"])
    op.create_table(
        "outbox_delivery",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("outbox_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("latency_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_outbox_delivery"),
        sa.ForeignKeyConstraint(
            ["outbox_id"], ["outbox.id"], name="fk_outbox_delivery_outbox", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_outbox_delivery_outbox_id", "outbox_delivery", ["outbox_id"])
    op.create_table(
        "resource",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("status", sa.JSON(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("updated_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("kind", "namespace", "name", name="pk_resource"),
    )
    _forbid_rewriting()


def downgrade() -> None:
    """Drop all tables; the triggers go with them."""
    for table in (
        "resource",
        "outbox_delivery",
        "outbox",
        "audit_record",
        "rule_set_version",
        "rule_set",
        "policy_memory",
        "flag_change",
    ):
        op.drop_table(table)
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION specpilot_append_only()")


def _forbid_rewriting() -> None:
    """Let the database itself refuse to change what is only ever added to."""
    if op.get_context().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION specpilot_append_only() RETURNS trigger LANGUAGE plpgsql AS $$ "
            "BEGIN RAISE EXCEPTION USING MESSAGE = TG_TABLE_NAME || ' is append-only'; END $$"
        )
        for table in _APPEND_ONLY:
            op.execute(
                f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE "
                f"ON {table} FOR EACH STATEMENT EXECUTE FUNCTION specpilot_append_only()"
            )
        return
    for table in _APPEND_ONLY:
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
