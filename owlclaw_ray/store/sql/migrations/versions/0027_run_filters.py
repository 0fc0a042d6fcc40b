"""Runs by definition, by kind of trigger, and by the words of their focus.

Revision ID: 0027
Revises: 0026
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import sqlalchemy as sa
from alembic import op

from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.store.sql.focus_index import term_rows
from owlclaw_ray.store.sql.row_security import protection
from owlclaw_ray.store.sql.schema import EXTRACTS, NAME, OVER

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

_OVER = {"runs_over": "tenant", "runs_over_by_agent": "agent", "runs_over_by_definition": "definition"}
_RUNS_AT_ONCE = 2_000
_PAGE = 'SELECT seq, tenant, "trigger" FROM runs WHERE seq > :after ORDER BY seq LIMIT :limit'
_ROW = "INSERT INTO focus_terms (tenant, term, seq) VALUES (:tenant, :term, :seq)"
_ROWS = """
INSERT INTO focus_terms (tenant, term, seq)
SELECT * FROM unnest(CAST(:tenants AS text[]), CAST(:terms AS bigint[]), CAST(:seqs AS bigint[]))
"""


def upgrade() -> None:
    """Add the columns, their indexes and the table, and fill it: in one transaction, in which nobody writes runs."""
    connection = op.get_bind()
    dialect = connection.dialect.name
    kind, definition = (EXTRACTS[dialect][name] for name in ("kind", "definition"))
    if dialect == "sqlite":
        op.execute(f"ALTER TABLE runs ADD COLUMN kind TEXT GENERATED ALWAYS AS ({kind}) VIRTUAL")
        op.execute(f"ALTER TABLE runs ADD COLUMN definition TEXT GENERATED ALWAYS AS ({definition}) VIRTUAL")
    else:
        op.execute(
            f'ALTER TABLE runs ADD COLUMN kind text COLLATE "C" GENERATED ALWAYS AS ({kind}) STORED,'
            f' ADD COLUMN definition text COLLATE "C" GENERATED ALWAYS AS ({definition}) STORED'
        )
    for name, column in _OVER.items():
        op.create_index(name, "runs", [column, "status", "kind", "seq"], sqlite_where=OVER, postgresql_where=OVER)
    op.create_index("runs_by_definition", "runs", ["definition", "seq"])
    op.create_table(
        "focus_terms",
        sa.Column("tenant", NAME, primary_key=True),
        sa.Column("term", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sqlite_with_rowid=False,
    )
    _fill(connection)
    if dialect == "postgresql":
        for statement in protection("focus_terms", "tenant"):
            op.execute(statement)


def _fill(connection: sa.Connection) -> None:
    after = 0
    while True:
        page = connection.execute(sa.text(_PAGE), {"after": after, "limit": _RUNS_AT_ONCE}).all()
        if not page:
            return
        after = page[-1].seq
        rows = sorted({*_terms(page)})
        if not rows:
            continue
        if connection.dialect.name == "sqlite":
            connection.execute(sa.text(_ROW), [{"tenant": t, "term": n, "seq": s} for t, n, s in rows])
        else:
            columns = {name: [row[at] for row in rows] for at, name in enumerate(("tenants", "terms", "seqs"))}
            connection.execute(sa.text(_ROWS), columns)


def _terms(page: Iterable[sa.Row[int, str, str]]) -> Iterator[tuple[str, int, int]]:
    for seq, tenant, text in page:
        trigger = json.loads(text)
        yield from term_rows(tenant, seq, TriggerKind(trigger["kind"]), trigger["focus"])
