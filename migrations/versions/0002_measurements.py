"""What comparisons of arms leave behind: costs of settings, and acceptance by the hour."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create both tables; nothing that exists is touched."""
    op.create_table(
        "measurement",
        sa.Column("change_id", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name="pk_measurement"),
    )
    op.create_index("ix_measurement_target_config_at", "measurement", ["target", "config", "at"])
    op.create_table(
        "acceptance_hour",
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("hour", _INSTANT, nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("target", "config", "hour", name="pk_acceptance_hour"),
    )
    op.create_index("ix_acceptance_hour_hour", "acceptance_hour", ["hour"])


def downgrade() -> None:
    """Drop both."""
    op.drop_table("acceptance_hour")
    op.drop_table("measurement")
