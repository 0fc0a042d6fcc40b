"""Writing what runs and tool calls came to: amounts are added to rows that may be there, and rows go when their time is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Delete, bindparam, case, delete, literal_column, select, tuple_
from sqlalchemy.sql.schema import Table

from owlclaw_ray.domain.usage import KEPT, MINUTES_KEPT
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.schema import usage_of_agents, usage_of_tenants, usage_of_tools
from owlclaw_ray.store.sql.working_set import RowChange, RowChanges

_SWEEP_EVERY, _SWEEP = 500, 1_000
"""After how many rows that were written old ones are removed, and how many of each kind at most: more than can have come meanwhile."""
_KEPT: Sequence[tuple[Any, ...]] = (
    (usage_of_tenants, MINUTES_KEPT, usage_of_tenants.c.seconds == literal_column("60")),
    (usage_of_tenants, KEPT, usage_of_tenants.c.seconds == literal_column("3600")),
    (usage_of_agents, KEPT),
    (usage_of_tools, KEPT),
)
_NO_AMOUNTS = frozenset({"definition"})
_MAXIMA = frozenset({"longest_ms"})


def columns_of(table: Table) -> list[str]:
    """Return the columns in the order of the rows that a batch collects; whose row it is comes last, if writers have their own."""
    names = [str(column.name) for column in table.c if column.name != "writer"]
    return [*names, "writer"] if "writer" in table.c else names


def adding_to(dialect: Dialect, table: Table) -> Any:
    """Return the statement that adds the amounts of a row to those of the row with its key, if there is one."""
    keys = {column.name for column in table.primary_key}
    statement = dialect.insert(table)
    sums: dict[str, ColumnElement[int]] = {}
    for column in table.c:
        new = statement.excluded[column.name]
        if column.name in _MAXIMA:
            sums[column.name] = case((new > column, new), else_=column)
        elif column.name not in keys | _NO_AMOUNTS:
            sums[column.name] = column + new
    return statement.on_conflict_do_update(index_elements=sorted(keys), set_=sums)


class UsageSweep:
    """Removes rows whose time is over, with the commits that write new ones."""

    def __init__(self, dialect: Dialect) -> None:
        self._statements = [_removing(dialect, *each) for each in _KEPT]
        self._written = 0

    def run(self, connection: Connection, changes: RowChanges) -> None:
        """Remove some, if enough was written since the last time; rows that another store removes meanwhile are left to it."""
        self._written += len(changes[RowChange.AGENT_USAGE]) + len(changes[RowChange.TOOL_USAGE])
        ended = changes[RowChange.TENANT_USAGE]
        if ended and self._written >= _SWEEP_EVERY:
            self._written = 0
            now = min(begins_at for _, _, begins_at in ended)
            for statement in self._statements:
                connection.execute(statement, {"now": now})


def _removing(dialect: Dialect, table: Table, kept: timedelta, *conditions: ColumnElement[bool]) -> Delete:
    micros: ColumnElement[int] = literal_column(str(kept // timedelta(microseconds=1)))
    past = table.c.begins_at < bindparam("now", type_=table.c.begins_at.type) - micros
    keys = tuple(table.primary_key)
    found = dialect.unlocked(select(*keys).where(past, *conditions).limit(_SWEEP))
    return delete(table).where(tuple_(*keys).in_(found))
