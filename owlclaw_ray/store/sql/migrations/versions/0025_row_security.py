"""Row-level security on PostgreSQL.

Revision ID: 0025
Revises: 0023
"""

from __future__ import annotations

from alembic import op

from owlclaw_ray.store.sql.row_security import protection

revision = "0025"
down_revision = "0023"
branch_labels = None
depends_on = None

_OWNERS = {
    "agents": "tenant",
    "runs": "tenant",
    "journal": "run_id",
    "schedules": "agent",
    "ticks": "schedule_id",
    "tasks": "agent",
    "approvals": "tenant",
    "webhook_deliveries": "tenant",
    "callbacks": "tenant",
    "idempotency_keys": "key",
    "budgets": "account",
    "budget_reservations": "account",
    "memories": "agent",
    "memory_parts": "agent",
    "artifacts": "agent",
    "artifact_parts": "agent",
    "access_keys": "tenant",
    "tenants": "tenant",
    "secrets": "tenant",
    "ledger": "tenant",
    "ledger_heads": "tenant",
    "export_positions": "tenant",
}


def upgrade() -> None:
    """Give each table of tenants' rows its policy. Runtimes of older schemas say no tenant, so nothing changes for them."""
    if op.get_bind().dialect.name == "postgresql":
        for table, column in _OWNERS.items():
            for statement in protection(table, column):
                op.execute(statement)
