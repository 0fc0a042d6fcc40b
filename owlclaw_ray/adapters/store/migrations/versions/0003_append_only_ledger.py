"""The ledger is append-only: the database itself refuses to change, remove or replace records, and to turn heads back.

Triggers stop mistakes, whoever makes them: a person at a prompt, a script, a faulty version of this package. Who owns the
database can drop them; what is done then is found by the hash chain.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SAID = "the ledger is append-only: its records are never changed or removed"
_HEADS_SAID = "the ledger is append-only: the recorded end of a chain only moves on"
_TURNED_BACK = "NEW.tenant <> OLD.tenant OR NEW.writer <> OLD.writer OR NEW.position <= OLD.position"
_REPLACES_RECORD = """EXISTS (
    SELECT 1 FROM ledger WHERE id = NEW.id
    UNION ALL SELECT 1 FROM ledger WHERE tenant = NEW.tenant AND writer = NEW.writer AND position = NEW.position
    UNION ALL SELECT 1 FROM ledger WHERE run_id = NEW.run_id AND record_id = NEW.record_id
)"""
_REPLACES_HEAD = """EXISTS (
    SELECT 1 FROM ledger_heads WHERE tenant = NEW.tenant AND writer = NEW.writer AND position >= NEW.position
)"""
"""INSERT OR REPLACE removes rows on SQLite, and the triggers of DELETE do not see it."""
_SQLITE = {
    "ledger_no_update": f"BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, '{_SAID}'); END",
    "ledger_no_delete": f"BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, '{_SAID}'); END",
    "ledger_no_replace": f"BEFORE INSERT ON ledger WHEN {_REPLACES_RECORD} BEGIN SELECT RAISE(ABORT, '{_SAID}'); END",
    "ledger_heads_move_on": f"BEFORE UPDATE ON ledger_heads WHEN {_TURNED_BACK}"
    f" BEGIN SELECT RAISE(ABORT, '{_HEADS_SAID}'); END",
    "ledger_heads_no_delete": f"BEFORE DELETE ON ledger_heads BEGIN SELECT RAISE(ABORT, '{_HEADS_SAID}'); END",
    "ledger_heads_no_replace": f"BEFORE INSERT ON ledger_heads WHEN {_REPLACES_HEAD}"
    f" BEGIN SELECT RAISE(ABORT, '{_HEADS_SAID}'); END",
}
_FUNCTION = f"""
CREATE FUNCTION owlclaw_refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', CASE TG_TABLE_NAME WHEN 'ledger' THEN '{_SAID}' ELSE '{_HEADS_SAID}' END
        USING ERRCODE = 'restrict_violation';
END
$$
"""
_REFUSE = "EXECUTE FUNCTION owlclaw_refuse_ledger_change()"
_POSTGRESQL = {
    ("ledger_append_only", "ledger"): f"BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger FOR EACH STATEMENT {_REFUSE}",
    ("ledger_heads_no_delete", "ledger_heads"): "BEFORE DELETE OR TRUNCATE ON ledger_heads FOR EACH STATEMENT "
    + _REFUSE,
    ("ledger_heads_move_on", "ledger_heads"): "BEFORE UPDATE ON ledger_heads FOR EACH ROW WHEN "
    f"({_TURNED_BACK}) {_REFUSE}",
}


def upgrade() -> None:
    """Records that are there stay as they are."""
    if op.get_context().dialect.name == "sqlite":
        for name, body in _SQLITE.items():
            op.execute(f"CREATE TRIGGER {name} {body}")
        return
    op.execute(_FUNCTION)
    for (name, _), body in _POSTGRESQL.items():
        op.execute(f"CREATE TRIGGER {name} {body}")


def downgrade() -> None:
    """Records can be changed and removed again."""
    if op.get_context().dialect.name == "sqlite":
        for name in _SQLITE:
            op.execute(f"DROP TRIGGER {name}")
        return
    for name, table in _POSTGRESQL:
        op.execute(f"DROP TRIGGER {name} ON {table}")
    op.execute("DROP FUNCTION owlclaw_refuse_ledger_change()")
