"""Budgets and what is reserved of them.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Runs that are there already have reserved nothing."""
    op.add_column("runs", sa.Column("reserves", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "budgets",
        sa.Column("account", _NAME, primary_key=True, nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("alerted", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
    )
    op.create_index("budgets_expiry", "budgets", ["expires_at"])
    op.create_table(
        "budget_reservations",
        sa.Column("reservation_id", _NAME, primary_key=True, nullable=False),
        sa.Column("account", _NAME, primary_key=True, nullable=False),
        sa.Column("run_id", _NAME, nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
    )
    op.create_index("budget_reservations_by_run", "budget_reservations", ["run_id"])


def downgrade() -> None:
    """What was used is forgotten."""
    op.drop_table("budget_reservations")
    op.drop_table("budgets")
    op.drop_column("runs", "reserves")
