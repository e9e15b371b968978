"""Who may write: the newest leader that has written, so that an older one is refused."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; nothing that exists is touched."""
    op.create_table(
        "leadership",
        sa.Column("lease", sa.Text(), nullable=False),
        sa.Column("lease_created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("transitions", sa.Integer(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("lease", name="pk_leadership"),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("leadership")
