"""Row-level security on PostgreSQL: what is read for one tenant is read in a transaction that the database shows no other tenant's rows.

Statements name their tenant anyway; this holds for one that forgets it. A transaction says its tenant in two settings, raw and as
the beginning of keys (`codec.tenant_key`); without them, as Keepers write and sweep, it has the rows of all. Owners of tables are
bound too (FORCE), superusers and roles with BYPASSRLS never are. SQLite has no such thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.sql.schema import Table

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import Chain
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.queries import ProgressOfRuns, Query, RowSecurityGaps
from owlclaw_ray.store.sql.codec import tenant_key
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.schema import metadata

_POLICY = "one_tenant"
_TENANT = "current_setting('owlclaw.tenant', true)"
_KEY = "coalesce(current_setting('owlclaw.tenant_key', true), '')"
CONDITIONS = {
    "tenant": f"tenant = {_TENANT}",
    "agent": f"starts_with(agent, {_KEY})",
    "account": f"starts_with(substr(account, strpos(account, '@') + 1) || '/', {_KEY})",
    "key": f"starts_with(key, {_KEY})",
    "schedule_id": "EXISTS (SELECT 1 FROM schedules AS own WHERE own.schedule_id = {table}.schedule_id)",
    "run_id": "EXISTS (SELECT 1 FROM runs AS own WHERE own.run_id = {table}.run_id)",
    "hash": f"(strpos(hash, '/') = 0 OR starts_with(hash, {_KEY}))",
}
"""When a row is of the transaction's tenant, by the first of these columns that its table has. Texts whose key is their hash alone, which
only who has them can know, are the default tenant's, or of before 0026. Tables of schedules and runs have
policies of their own, which hold in these conditions too. The settings are asked for each row, not once in a subquery: that makes
scans of many rows dearer and the many small statements of a commit cheaper. Rows that are written are not looked at, for the same
reason, and transactions of a tenant do not write.
"""


def owner_column(table: Table) -> str | None:
    """Return the column that says whose the rows of a table are; None for a table whose rows are nobody's."""
    return next((column for column in CONDITIONS if column in table.c), None)


def protection(table: str, column: str) -> Iterator[str]:
    """Yield the statements that give a table its policy, and turn it on, whether or not it has one."""
    own = CONDITIONS[column].format(table=table)
    yield f"DROP POLICY IF EXISTS {_POLICY} ON {table}"
    yield f"CREATE POLICY {_POLICY} ON {table} USING ({_KEY} = '' OR {own}) WITH CHECK (true)"
    yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
    yield f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY"


def narrowing(tenant: TenantId) -> str:
    """Return the statements by which a transaction has the rows of this tenant only, until its end."""
    raw, key = (value.replace("'", "''") for value in (tenant, tenant_key(tenant, "")))
    return f"SET LOCAL owlclaw.tenant = '{raw}'; SET LOCAL owlclaw.tenant_key = '{key}'"


def tenant_of(query: Query[Any]) -> TenantId | None:
    """Return the tenant whose rows alone the query is about; None for one about those of all, or about nobody's."""
    if isinstance(query, ProgressOfRuns):
        tenants = {each.tenant for each in query.positions}
        return tenants.pop() if len(tenants) == 1 else None
    for name in ("tenant", "agent", "owner", "chain"):
        match getattr(query, name, None):
            case AgentRef() | Chain() as whose:
                return whose.tenant
            case str() as tenant:
                return TenantId(tenant)
    return None


@reads(RowSecurityGaps)
def _read_gaps(connection: Connection, _query: RowSecurityGaps) -> Sequence[str]:
    if connection.dialect.name != "postgresql":
        return []
    role = connection.execute(text(_ROLE)).one()
    protected = set(connection.execute(text(_PROTECTED)).scalars())
    gaps = []
    if role.rolsuper or role.rolbypassrls:
        gaps.append(f"its user {role.rolname} {'is a superuser' if role.rolsuper else 'has BYPASSRLS'}")
    open_to_all = [
        table.name for table in metadata.sorted_tables if owner_column(table) and table.name not in protected
    ]
    return [*gaps, *(f"the table {name} is without its policy" for name in open_to_all)]


_ROLE = "SELECT rolname, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
_PROTECTED = f"""
SELECT c.relname FROM pg_class c JOIN pg_policy p ON p.polrelid = c.oid
WHERE c.oid = to_regclass(c.relname) AND c.relrowsecurity AND c.relforcerowsecurity
GROUP BY c.relname HAVING array_agg(p.polname) = ARRAY['{_POLICY}'::name]
"""  # noqa: S608 - a constant
