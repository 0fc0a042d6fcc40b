"""Which rows of each table are a tenant's: removing them, counting them, and reading them for an export.

Every table of the schema stands in one of three lists here, which a test compares with the schema. Rows that name their tenant only
by what they belong to (the entries of a run, the ticks of a schedule, the accounts of a key) go before that, and it stays as long
as there is one of them: so nothing is left behind that nobody could count any more.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    RowMapping,
    Select,
    and_,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
)
from sqlalchemy.sql.schema import Column, Table

from owlclaw_ray.ids import DEFAULT_TENANT, RunId, TenantId
from owlclaw_ray.store.sql.codec import agent_of, from_micros, load, tenant_range
from owlclaw_ray.store.sql.dialects import Dialect, dialect_of
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.schema import (
    QUEUED,
    access_keys,
    active_run,
    agents,
    approvals,
    artifact_parts,
    artifacts,
    attempts,
    blobs,
    budget_reservations,
    budgets,
    callbacks,
    cluster_lease,
    cluster_nodes,
    concurrency_limits,
    export_positions,
    focus_terms,
    idempotency_keys,
    journal,
    ledger,
    ledger_heads,
    memories,
    memory_parts,
    probes,
    queue_minutes,
    runs,
    schedules,
    schema_compatibility,
    secrets,
    sweeps,
    tasks,
    tenants,
    ticks,
    usage_of_agents,
    usage_of_tenants,
    usage_of_tools,
    webhook_deliveries,
)
from owlclaw_ray.store.tenant_rows import OpenRun, OpenRuns, RowPage, RowsLeft, TenantRowPage

ROWS_AT_ONCE = 1_000
"""How many rows one transaction removes, about: others' commits wait for no more than that."""
_LARGE_ROWS_AT_ONCE = 20
_PARENTS_AT_ONCE = 100
_MERGED = "merged "
"""How the keys of triggers begin that joined a queued run, see submission."""

_Condition = Callable[[Dialect, TenantId], ColumnElement[bool]]


class TenantTable(Struct, frozen=True):
    """A table that a deletion empties of a tenant's rows."""

    table: Table
    mine: _Condition
    """Which rows are the tenant's."""
    removable: _Condition | None = None
    """Which of them can go now; None: all."""
    at_once: int = ROWS_AT_ONCE
    parent: Column[Any] | None = None
    """What names the row of another table that each of these belongs to."""
    order: tuple[Column[Any], ...] = ()
    """In which order an index has the tenant's rows; none: in that of the primary key."""


def _of_tenant(table: Table, *order: str) -> TenantTable:
    return TenantTable(
        table, lambda _dialect, tenant: table.c.tenant == tenant, order=tuple(table.c[name] for name in order)
    )


def _within(column: ColumnElement[str], tenant: TenantId) -> ColumnElement[bool]:
    first, end = tenant_range(tenant)
    return (column >= first) & (column < end)


def _by_key(column: Column[str], at_once: int = ROWS_AT_ONCE) -> TenantTable:
    return TenantTable(column.table, lambda _dialect, tenant: _within(column, tenant), at_once=at_once)


def _runs_of(tenant: TenantId) -> Select[Any]:
    return select(runs.c.run_id).where(runs.c.tenant == tenant)


def _first_runs(tenant: TenantId) -> Select[Any]:
    return _runs_of(tenant).order_by(runs.c.seq).limit(_PARENTS_AT_ONCE)


def _schedules_of(tenant: TenantId) -> Select[Any]:
    return select(schedules.c.schedule_id).where(_within(schedules.c.agent, tenant))


def _first_schedules(tenant: TenantId) -> Select[Any]:
    order = (schedules.c.agent, schedules.c.created_at, schedules.c.schedule_id)
    return _schedules_of(tenant).order_by(*order).limit(_PARENTS_AT_ONCE)


def _key_owners(tenant: TenantId) -> Select[Any]:
    return select(literal("key:").concat(access_keys.c.key_id)).where(access_keys.c.tenant == tenant)


def _is_account(column: Column[str], dialect: Dialect, tenant: TenantId) -> ColumnElement[bool]:
    """See Budget.account and key_starts_account."""
    owner, (first, _) = dialect.owner_of(column), tenant_range(tenant)
    return or_(owner == first[:-1], _within(owner, tenant), owner.in_(_key_owners(tenant)))


def _is_reservation(dialect: Dialect, tenant: TenantId) -> ColumnElement[bool]:
    mine = budget_reservations.c.run_id.in_(_runs_of(tenant))
    return or_(_is_account(budget_reservations.c.account, dialect, tenant), mine)


def _is_idempotency_key(_dialect: Dialect, tenant: TenantId) -> ColumnElement[bool]:
    key = idempotency_keys.c.key
    merged = and_(key >= _MERGED, key < _MERGED[:-1] + "!", idempotency_keys.c.run_id.in_(_runs_of(tenant)))
    return or_(_within(key, tenant), merged)


def is_blob(_dialect: Dialect, tenant: TenantId) -> ColumnElement[bool]:
    """Return the condition that a row of `blobs` is the tenant's, see blob_key."""
    return ~blobs.c.hash.contains("/") if tenant == DEFAULT_TENANT else _within(blobs.c.hash, tenant)


def _is_free_run(dialect: Dialect, tenant: TenantId) -> ColumnElement[bool]:
    return and_(
        runs.c.run_id.in_(_first_runs(tenant)),
        ~exists().where(journal.c.run_id == runs.c.run_id),
        ~exists().where(budget_reservations.c.run_id == runs.c.run_id),
        ~exists().where(_is_idempotency_key(dialect, tenant)),
    )


def _is_free_schedule(_dialect: Dialect, tenant: TenantId) -> ColumnElement[bool]:
    return and_(
        schedules.c.schedule_id.in_(_first_schedules(tenant)),
        ~exists().where(ticks.c.schedule_id == schedules.c.schedule_id),
    )


def _is_free_key(dialect: Dialect, tenant: TenantId) -> ColumnElement[bool]:
    owner = literal("key:").concat(access_keys.c.key_id)
    used = dialect.owner_of(budgets.c.account) == owner
    reserved = dialect.owner_of(budget_reservations.c.account) == owner
    return and_(access_keys.c.tenant == tenant, ~exists().where(used), ~exists().where(reserved))


EMPTIED = (
    TenantTable(
        ticks,
        lambda _dialect, tenant: ticks.c.schedule_id.in_(_schedules_of(tenant)),
        lambda _dialect, tenant: ticks.c.schedule_id.in_(_first_schedules(tenant)),
        parent=ticks.c.schedule_id,
    ),
    TenantTable(schedules, lambda _dialect, tenant: _within(schedules.c.agent, tenant), _is_free_schedule),
    _of_tenant(webhook_deliveries, "received_at", "delivery_id"),
    _of_tenant(callbacks, "created_at", "callback_id"),
    _of_tenant(approvals, "requested_at", "approval_id"),
    _by_key(tasks.c.agent),
    TenantTable(budget_reservations, _is_reservation),
    TenantTable(budgets, lambda dialect, tenant: _is_account(budgets.c.account, dialect, tenant)),
    TenantTable(idempotency_keys, _is_idempotency_key),
    TenantTable(
        journal,
        lambda _dialect, tenant: journal.c.run_id.in_(_runs_of(tenant)),
        lambda _dialect, tenant: journal.c.run_id.in_(_first_runs(tenant)),
        parent=journal.c.run_id,
    ),
    _of_tenant(focus_terms),
    TenantTable(runs, lambda _dialect, tenant: runs.c.tenant == tenant, _is_free_run),
    TenantTable(blobs, is_blob),
    _by_key(memory_parts.c.agent, _LARGE_ROWS_AT_ONCE),
    _by_key(memories.c.agent),
    _by_key(artifact_parts.c.agent, _LARGE_ROWS_AT_ONCE),
    _by_key(artifacts.c.agent),
    _of_tenant(secrets),
    TenantTable(access_keys, lambda _dialect, tenant: access_keys.c.tenant == tenant, _is_free_key),
    _of_tenant(usage_of_tenants),
    _of_tenant(usage_of_agents),
    _of_tenant(usage_of_tools),
    _of_tenant(agents),
)
"""The tables that a deletion empties of the tenant's rows, in this order."""
KEPT = frozenset({tenants, ledger, ledger_heads, export_positions})
"""Tables that keep a deleted tenant's rows: its own row, its ledger, and how far that was exported."""
OF_NOBODY = frozenset(
    {attempts, probes, cluster_lease, cluster_nodes, concurrency_limits, queue_minutes, schema_compatibility, sweeps}
)
"""Tables whose rows are no tenant's. An attempt is a random id and a time, and is removed after 30 days by itself."""


def remove_rows(connection: Connection, tenant: TenantId) -> dict[str, int]:
    """Remove some of the tenant's rows; return how many of each table, none if nothing can be removed any more."""
    dialect, removed = dialect_of(connection), dict[str, int]()
    # Who fires a schedule has its agent locked: from here on it is found with its ticks, or not at all.
    owners = select(schedules.c.agent).where(schedules.c.schedule_id.in_(_first_schedules(tenant)))
    connection.execute(
        dialect.locking(select(agents.c.agent).where(agents.c.agent.in_(owners)).order_by(agents.c.agent))
    )
    for each in EMPTIED:
        keys = tuple(each.table.primary_key)
        condition = (each.removable or each.mine)(dialect, tenant)
        some = select(*keys).where(condition).limit(each.at_once)
        found = tuple_(*keys).in_(some) if len(keys) > 1 else keys[0].in_(some)
        number = connection.execute(delete(each.table).where(found)).rowcount
        if number:
            removed[str(each.table.name)] = number
        if sum(removed.values()) >= ROWS_AT_ONCE:
            break
    return removed


def rows_left(connection: Connection, tenant: TenantId) -> dict[str, int]:
    """Return how many rows of each table are the tenant's."""
    dialect = dialect_of(connection)
    counted = {
        str(each.table.name): connection.execute(
            select(func.count()).select_from(each.table).where(each.mine(dialect, tenant))
        ).scalar_one()
        for each in EMPTIED
    }
    return {name: number for name, number in counted.items() if number}


@reads(RowsLeft)
def _read_rows_left(connection: Connection, query: RowsLeft) -> Mapping[str, int]:
    return rows_left(connection, query.tenant)


@reads(OpenRuns)
def _read_open_runs(connection: Connection, query: OpenRuns) -> Sequence[OpenRun]:
    found = select(runs.c.agent, runs.c.run_id, (runs.c.status == QUEUED).label("queued"))
    found = found.where(runs.c.tenant == query.tenant, active_run).order_by(runs.c.seq).limit(query.limit)
    return [OpenRun(agent_of(row.agent), RunId(row.run_id), bool(row.queued)) for row in connection.execute(found)]


_SECRET = frozenset({secrets.c.ciphertext, access_keys.c.secret_hash, access_keys.c.previous_hash})
"""What nobody is given."""
_LEDGER = _of_tenant(ledger, "writer", "position")
_EXPORTED = {each.table.name: each for each in (*EMPTIED, _of_tenant(tenants), _LEDGER, _of_tenant(ledger_heads))}
_PARENT_KEYS = {runs.name: runs.c.run_id, schedules.name: schedules.c.schedule_id}
_JSON = {
    agents: ("state", "lineage"),
    runs: ("trigger", "result", "awaits", "payload"),
    journal: ("data",),
    blobs: ("content",),
    ledger: ("data",),
    schedules: ("rule",),
    ticks: ("reason",),
    tasks: ("data",),
    approvals: ("request", "decision", "allowed_by"),
    webhook_deliveries: ("reason", "headers", "body", "event"),
    callbacks: ("problem",),
    memories: ("documents",),
    access_keys: ("scopes", "patterns"),
    tenants: ("quotas", "deletion"),
}
_TIMES = frozenset({"at", "deadline", "forgotten_until", "paused_until", "previous_until"})


@reads(TenantRowPage)
def _read_row_page(connection: Connection, query: TenantRowPage) -> RowPage:
    of, dialect = _EXPORTED[query.table], dialect_of(connection)
    table, keys = of.table, of.order or tuple(of.table.primary_key)
    if query.parents is None or of.parent is None:
        found = select(table).where(of.mine(dialect, query.tenant))
    else:
        found = select(table).where(of.parent.in_(query.parents))
    if query.after is not None:
        found = found.where(tuple_(*keys) > query.after if len(keys) > 1 else keys[0] > query.after[0])
    rows = connection.execute(found.order_by(*keys).limit(query.limit)).mappings().all()
    after = tuple(rows[-1][key.name] for key in keys) if len(rows) == query.limit else None
    parent = _PARENT_KEYS.get(table.name)
    encode = _encoder(table)
    return RowPage([encode(row) for row in rows], after, [] if parent is None else [row[parent.name] for row in rows])


def _encoder(table: Table) -> Callable[[RowMapping], dict[str, Any]]:
    """Return what makes JSON of a row."""
    json = _JSON.get(table, ())
    shown = [column for column in table.c if column not in _SECRET and column.computed is None]

    def value(column: Column[Any], found: Any) -> Any:
        if found is None:
            return None
        if isinstance(column.type, LargeBinary):
            return b64encode(found).decode()
        if column.name in _TIMES or column.name.endswith("_at"):
            return from_micros(found).isoformat()
        return load(found) if column.name in json else found

    return lambda row: {str(column.name): value(column, row[column.name]) for column in shown}
