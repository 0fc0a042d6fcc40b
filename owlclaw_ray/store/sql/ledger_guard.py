"""What keeps the ledger append-only inside its database: triggers. Who owns the database can drop them, so they are looked for.

Revision 0011 makes them. One that changes them later keeps those of 0011 for itself.
"""

from __future__ import annotations

import logging
import re

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

_SAID = "the ledger is append-only: its records are never changed or removed"
_HEADS_MESSAGE = "the ledger is append-only: the recorded end of a chain only moves on"
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
ON_SQLITE = {
    "ledger_no_update": f"BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, '{_SAID}'); END",
    "ledger_no_delete": f"BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, '{_SAID}'); END",
    "ledger_no_replace": f"BEFORE INSERT ON ledger WHEN {_REPLACES_RECORD} BEGIN SELECT RAISE(ABORT, '{_SAID}'); END",
    "ledger_heads_move_on": f"BEFORE UPDATE ON ledger_heads WHEN {_TURNED_BACK}"
    f" BEGIN SELECT RAISE(ABORT, '{_HEADS_MESSAGE}'); END",
    "ledger_heads_no_delete": f"BEFORE DELETE ON ledger_heads BEGIN SELECT RAISE(ABORT, '{_HEADS_MESSAGE}'); END",
    "ledger_heads_no_replace": f"BEFORE INSERT ON ledger_heads WHEN {_REPLACES_HEAD}"
    f" BEGIN SELECT RAISE(ABORT, '{_HEADS_MESSAGE}'); END",
}
_BODY = f"""
BEGIN
    RAISE EXCEPTION '%', CASE TG_TABLE_NAME WHEN 'ledger' THEN '{_SAID}' ELSE '{_HEADS_MESSAGE}' END
        USING ERRCODE = 'restrict_violation';
END
"""
REFUSING = f"CREATE OR REPLACE FUNCTION owlclaw_refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $${_BODY}$$"
_REFUSE = "EXECUTE FUNCTION owlclaw_refuse_ledger_change()"
ON_POSTGRESQL = {
    ("ledger_append_only", "ledger"): f"BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger FOR EACH STATEMENT {_REFUSE}",
    ("ledger_heads_no_delete", "ledger_heads"): "BEFORE DELETE OR TRUNCATE ON ledger_heads FOR EACH STATEMENT "
    + _REFUSE,
    ("ledger_heads_move_on", "ledger_heads"): "BEFORE UPDATE ON ledger_heads FOR EACH ROW WHEN "
    f"({_TURNED_BACK}) {_REFUSE}",
}
_SEALED_MESSAGE = "the ledger is append-only: the chains of a deleted tenant are sealed"
_IS_SEALED = "EXISTS (SELECT 1 FROM tenants WHERE tenant = NEW.tenant AND status = 'deleted')"
SEALING_ON_SQLITE = {
    f"ledger_heads_sealed_{event}": f"BEFORE {event.upper()} ON ledger_heads WHEN {_IS_SEALED}"
    f" BEGIN SELECT RAISE(ABORT, '{_SEALED_MESSAGE}'); END"
    for event in ("insert", "update")
}
"""Revision 0026 makes these. Every commit that adds records moves the end of their chain: none can be added without it, unless
`verify` finds it.
"""
_SEALED_BODY = f"""
BEGIN
    IF {_IS_SEALED} THEN
        RAISE EXCEPTION '{_SEALED_MESSAGE}' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
"""
SEALING = (
    f"CREATE OR REPLACE FUNCTION owlclaw_refuse_sealed_chain() RETURNS trigger LANGUAGE plpgsql AS $${_SEALED_BODY}$$"
)
SEALING_ON_POSTGRESQL = {
    ("ledger_heads_sealed", "ledger_heads"): "BEFORE INSERT OR UPDATE ON ledger_heads FOR EACH ROW "
    "EXECUTE FUNCTION owlclaw_refuse_sealed_chain()",
}
_SQLITE = {**ON_SQLITE, **SEALING_ON_SQLITE}
_POSTGRESQL = {**ON_POSTGRESQL, **SEALING_ON_POSTGRESQL}
_FUNCTIONS = {"owlclaw_refuse_ledger_change": _BODY, "owlclaw_refuse_sealed_chain": _SEALED_BODY}
_ADDED = re.compile(r"""[()"]|::(?:text|character varying)""")
_EVENTS = re.compile(r"(?<= before )[a-z ]+?(?= on )")
_logger = logging.getLogger(__name__)


def missing_guards(connection: Connection) -> list[str]:
    """Return the names of triggers that are not there, are turned off, or do something else; on PostgreSQL of their function, too."""
    if connection.dialect.name == "sqlite":
        found = {
            row.name: row.sql
            for row in connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        }
        return [name for name, body in _SQLITE.items() if found.get(name) != f"CREATE TRIGGER {name} {body}"]
    enabled = {_plain(definition) for definition in connection.execute(text(_ENABLED)).scalars()}
    source = text("SELECT prosrc FROM pg_proc WHERE oid = to_regproc(:name)")
    lost = [
        name
        for name, body in _FUNCTIONS.items()
        if connection.execute(source, {"name": name}).scalars().all() != [body]
    ]
    return [
        *lost,
        *(name for (name, _), body in _POSTGRESQL.items() if _plain(f"CREATE TRIGGER {name} {body}") not in enabled),
    ]


def _plain(definition: str) -> str:
    """Return the definition of a trigger without what PostgreSQL adds or moves when it tells it."""
    plain = _ADDED.sub("", definition.lower())
    return _EVENTS.sub(lambda found: " or ".join(sorted(found.group().split(" or "))), plain)


_ENABLED = """
SELECT pg_get_triggerdef(oid, true) FROM pg_trigger
WHERE tgrelid IN (to_regclass('ledger'), to_regclass('ledger_heads')) AND tgenabled IN ('O', 'A')
"""


def restore_guards(connection: Connection) -> list[str]:
    """Make what is missing of them; return what was, with a warning in the log. Who may not make them is told, and goes on."""
    missing = missing_guards(connection)
    if not missing:
        return []
    names = ", ".join(missing)
    try:
        with connection.begin_nested():
            _make(connection, missing)
    except DBAPIError as error:
        _logger.error(  # noqa: TRY400 (no trace)
            "the store had lost what keeps the ledger append-only (%s), and it cannot be put back: %s; start the runtime once as "
            "the owner of the tables",
            names,
            error.orig,
        )
    else:
        _logger.warning(
            "the store had lost what keeps the ledger append-only (%s); it was put back. Check the records: owlclaw ledger verify",
            names,
        )
    return missing


def _make(connection: Connection, names: list[str]) -> None:
    if connection.dialect.name == "sqlite":
        for name in names:
            connection.execute(text(f"DROP TRIGGER IF EXISTS {name}"))
            connection.execute(text(f"CREATE TRIGGER {name} {_SQLITE[name]}"))
        return
    connection.execute(text(REFUSING))
    connection.execute(text(SEALING))
    for (name, table), body in _POSTGRESQL.items():
        if name in names:
            connection.execute(text(f"DROP TRIGGER IF EXISTS {name} ON {table}"))
            connection.execute(text(f"CREATE TRIGGER {name} {body}"))
