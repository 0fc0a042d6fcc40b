"""Writing the changes of a batch: one statement a table, its rows sent together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Text,
    bindparam,
    case,
    delete,
    exists,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.engine.interfaces import Dialect as EngineDialect
from sqlalchemy.sql.schema import Table

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.webhook import MAX_FAILURES
from owlclaw_ray.ledger.chain import ChainHead, canonical_data, next_hash
from owlclaw_ray.ledger.redaction import TenantRedactors
from owlclaw_ray.store.commands import ClusterLease
from owlclaw_ray.store.sql.codec import agent_key, to_micros
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.row_codecs import (
    APPROVALS,
    CALLBACKS,
    DELIVERIES,
    KEYS,
    NODES,
    SCHEDULES,
    TASKS,
    TENANTS,
    TICKS,
)
from owlclaw_ray.store.sql.schema import (
    NAME,
    WAITING,
    access_keys,
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
    open_schedule,
    probes,
    queue_minutes,
    runs,
    schedules,
    secrets,
    settled_callback,
    sweeps,
    tasks,
    tenants,
    ticks,
    usage_of_agents,
    usage_of_tenants,
    usage_of_tools,
    waiting_delivery,
    webhook_deliveries,
)
from owlclaw_ray.store.sql.usage_rows import UsageSweep, adding_to, columns_of
from owlclaw_ray.store.sql.working_set import RowChange, RowChanges, WorkingSet

_SWEEP_EVERY, _SWEEP = 500, 1_000
"""After how many new Idempotency-Keys, or reservations, expired keys, or accounts, are removed, and how many at most."""
_KEPT_ATTEMPTS = 30 * 86_400_000_000
"""For how long an attempt is known whose host did not live to have it forgotten: longer than any call takes."""
_KEPT = 7 * 86_400_000_000
"""For how long the account of a window that is over is kept, in microseconds."""
_NEW_RUN = (
    "seq",
    "run_id",
    "tenant",
    "agent",
    "trigger",
    "created_at",
    "status",
    "started_at",
    "finished_at",
    "cancel_requested",
    "claimed_epoch",
    "result",
    "interrupted_by",
    "reserves",
    "awaits",
    "rank",
    "deadline",
    "merge_key",
    "payload",
    "counts_for",
)
_CHANGED_RUN = (
    "status",
    "started_at",
    "finished_at",
    "cancel_requested",
    "claimed_epoch",
    "result",
    "interrupted_by",
    "reserves",
    "awaits",
)
_MERGED_RUN = ("trigger", "payload", "rank", "deadline")
_CHANGED_SCHEDULE = ("status", "next_fire_at", "paused_until")
_CHANGED_AGENT = ("epoch", "activation_id", "state", "lineage", "node_id")
_CHANGED_ACCOUNT = ("used", "reserved", "alerted")
_REPLACED_CIPHERTEXT = ("new_key", "new", "at", "owner", "key", "before")
_RESERVATION = ("reservation_id", "account", "run_id", "amount")
_JOURNAL = ("run_id", "seq", "kind", "at", "data")
_RECORD = (
    "tenant",
    "writer",
    "position",
    "record_id",
    "agent",
    "run_id",
    "kind",
    "at",
    "data",
    "previous_hash",
    "hash",
)


class RowsStatement:
    """A statement compiled once and run for many rows: tuples of driver values in the order of `parameters`."""

    def __init__(self, statement: Any, parameters: Sequence[str], dialect: EngineDialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(parameters))
        order = [parameters.index(name) for name in compiled.positiontup]
        self._sql = str(compiled)
        self._arrange = None if order == list(range(len(parameters))) else itemgetter(*order)

    def run(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute for each row; nothing for none."""
        if rows:
            arranged = list(rows) if self._arrange is None else [self._arrange(row) for row in rows]
            connection.exec_driver_sql(self._sql, arranged)


_Encode: TypeAlias = Callable[[Any], tuple[Any, ...]]
_Step: TypeAlias = tuple[RowChange, RowsStatement, _Encode | None]
"""A statement, and what makes its parameters of each row; None if rows are these."""


class Writer:
    """The statements for one database, made once.

    `name` names the ledger chains that this store writes. No record gets into them past the redactors.
    """

    def __init__(self, dialect: Dialect, engine_dialect: EngineDialect, name: str, redactors: TenantRedactors) -> None:
        self._name, self._redactors = name, redactors

        def inserting(table: Table, columns: Sequence[str]) -> RowsStatement:
            return RowsStatement(table.insert(), columns, engine_dialect)

        def replacing(table: Table, columns: Sequence[str]) -> RowsStatement:
            statement = dialect.insert(table)
            keys = {column.name for column in table.primary_key}
            new = {column: statement.excluded[column] for column in columns if column not in keys}
            statement = statement.on_conflict_do_update(index_elements=sorted(keys), set_=new)
            return RowsStatement(statement, columns, engine_dialect)

        def updating(table: Table, columns: Sequence[str], key: str) -> RowsStatement:
            values = {column: bindparam(f"new_{column}", type_=table.c[column].type) for column in columns}
            statement = update(table).values(values).where(table.c[key] == bindparam("key", type_=table.c[key].type))
            return RowsStatement(statement, (*(f"new_{column}" for column in columns), "key"), engine_dialect)

        def removing(key: Column[str], condition: ColumnElement[bool] | None = None) -> RowsStatement:
            found = delete(key.table).where(key == bindparam("key", type_=NAME))
            return RowsStatement(found if condition is None else found.where(condition), ("key",), engine_dialect)

        def adding(table: Table, columns: Sequence[str]) -> RowsStatement:
            return RowsStatement(dialect.insert(table).on_conflict_do_nothing(), columns, engine_dialect)

        exported = dialect.insert(export_positions)
        exported = exported.on_conflict_do_update(
            index_elements=["tenant", "writer"],
            set_={"position": exported.excluded.position},
            where=exported.excluded.position > export_positions.c.position,
        )
        waiting = (
            webhook_deliveries.c.delivery_id == bindparam("key", type_=NAME),
            webhook_deliveries.c.agent == bindparam("owner", type_=NAME),
            waiting_delivery,
        )
        handled = (
            update(webhook_deliveries)
            .values(status=literal_column("'handled'"), run_id=bindparam("run", type_=NAME))
            .where(*waiting)
        )
        last = webhook_deliveries.c.failures >= literal_column(str(MAX_FAILURES - 1))
        failed = (
            update(webhook_deliveries)
            .values(
                failures=webhook_deliveries.c.failures + literal_column("1"),
                status=case((last, literal_column("'refused'")), else_=webhook_deliveries.c.status),
                reason=case((last, bindparam("why", type_=Text)), else_=webhook_deliveries.c.reason),
                run_id=case((last, bindparam("run", type_=NAME)), else_=webhook_deliveries.c.run_id),
            )
            .where(*waiting)
        )
        due = (
            update(callbacks)
            .values(status=literal_column("'pending'"), version=callbacks.c.version + literal_column("1"))
            .values(next_try_at=bindparam("at", type_=callbacks.c.next_try_at.type))
            .where(
                callbacks.c.run_id == bindparam("key", type_=NAME), callbacks.c.status == literal_column("'waiting'")
            )
        )
        beginning = delete(journal).where(
            journal.c.run_id == bindparam("key", type_=NAME),
            journal.c.seq <= bindparam("up_to", type_=journal.c.seq.type),
        )
        term = delete(focus_terms).where(*(each == bindparam(each.name, type_=each.type) for each in focus_terms.c))
        replaced = delete(memory_parts).where(
            memory_parts.c.agent == bindparam("owner", type_=NAME),
            memory_parts.c.document == bindparam("name", type_=NAME),
        )

        def counting(table: Table) -> RowsStatement:
            return RowsStatement(adding_to(dialect, table), columns_of(table), engine_dialect)

        def own(row: list[Any]) -> tuple[Any, ...]:
            return (*row, name)

        def expiring(table: Table) -> RowsStatement:
            columns = table.c
            found = delete(table).where(
                columns.agent == bindparam("owner", type_=NAME),
                columns.artifact_id == bindparam("key", type_=NAME),
                columns.stored_at < bindparam("before", type_=columns.stored_at.type),
            )
            return RowsStatement(found, ("owner", "key", "before"), engine_dialect)

        secret = (
            secrets.c.tenant == bindparam("owner", type_=NAME),
            secrets.c.name == bindparam("key", type_=NAME),
        )
        put_secret = dialect.insert(secrets)
        put_secret = put_secret.on_conflict_do_update(
            index_elements=["tenant", "name"],
            set_={name: put_secret.excluded[name] for name in ("key_id", "ciphertext", "rotated_at")},
        )
        replaced_ciphertext = (
            update(secrets)
            .values(
                key_id=bindparam("new_key", type_=Text),
                ciphertext=bindparam("new", type_=secrets.c.ciphertext.type),
                rotated_at=bindparam("at", type_=secrets.c.rotated_at.type),
            )
            .where(*secret, secrets.c.ciphertext == bindparam("before", type_=secrets.c.ciphertext.type))
        )
        lost = delete(cluster_nodes).where(
            cluster_nodes.c.state == bindparam("state", type_=cluster_nodes.c.state.type),
            cluster_nodes.c.cluster != bindparam("cluster", type_=cluster_nodes.c.cluster.type),
            cluster_nodes.c.cluster.not_in(select(cluster_lease.c.cluster)),
        )
        self._before_ledger: tuple[_Step, ...] = (
            (RowChange.LEASE, updating(cluster_lease, ClusterLease.__struct_fields__, "id"), None),
            (RowChange.ACCESS_KEY, replacing(access_keys, KEYS.names), KEYS.row),
            (RowChange.REMOVED_NODE, removing(cluster_nodes.c.node_id), None),
            (RowChange.NODE, replacing(cluster_nodes, NODES.names), NODES.row),
            (RowChange.FORGOTTEN_NODES, RowsStatement(lost, ("state", "cluster"), engine_dialect), None),
            (RowChange.NEW_RUN, inserting(runs, _NEW_RUN), _picking(_NEW_RUN)),
            (RowChange.RUN, updating(runs, _CHANGED_RUN, "seq"), _picking((*_CHANGED_RUN, "seq"))),
            (RowChange.MERGED_RUN, updating(runs, _MERGED_RUN, "seq"), _picking((*_MERGED_RUN, "seq"))),
            (RowChange.AGENT, updating(agents, _CHANGED_AGENT, "agent"), _picking((*_CHANGED_AGENT, "agent"))),
            (RowChange.ENTRY, inserting(journal, _JOURNAL), None),
            (RowChange.BLOB, RowsStatement(_storing_text(dialect), ("key", "text", "at"), engine_dialect), None),
        )
        self._after_ledger: tuple[_Step, ...] = (
            # After the ledger: a tenant's last record is written before the status that seals its chains.
            (RowChange.TENANT, replacing(tenants, TENANTS.names), TENANTS.row),
            (RowChange.KEY, replacing(idempotency_keys, ("key", "body_hash", "run_id", "expires_at")), None),
            (RowChange.NEW_SCHEDULE, inserting(schedules, SCHEDULES.names), SCHEDULES.row),
            (
                RowChange.SCHEDULE,
                updating(schedules, _CHANGED_SCHEDULE, "schedule_id"),
                partial(SCHEDULES.row, names=(*_CHANGED_SCHEDULE, "schedule_id")),
            ),
            (RowChange.TICK, replacing(ticks, TICKS.names), TICKS.row),
            (RowChange.REMOVED_TICK, removing(ticks.c.firing_id), None),
            *_removing_leftovers(dialect, engine_dialect),
            (RowChange.REMOVED_AGENT, removing(agents.c.agent), None),
            (RowChange.REMOVED_RUN, removing(runs.c.run_id), None),
            (RowChange.REMOVED_JOURNAL, removing(journal.c.run_id), None),
            (RowChange.REMOVED_ENTRIES, RowsStatement(beginning, ("key", "up_to"), engine_dialect), None),
            (RowChange.REMOVED_APPROVALS, removing(approvals.c.run_id), None),
            (RowChange.REMOVED_TERM, RowsStatement(term, ("tenant", "term", "seq"), engine_dialect), None),
            (RowChange.APPROVAL, replacing(approvals, APPROVALS.names), APPROVALS.row),
            (
                RowChange.TASK,
                replacing(tasks, TASKS.names),
                lambda put: TASKS.row(put.task, created_at=put.created_at, updated_at=to_micros(put.at)),
            ),
            (
                RowChange.REMOVED_DELIVERY,
                removing(webhook_deliveries.c.delivery_id, webhook_deliveries.c.status != WAITING),
                None,
            ),
            (RowChange.REMOVED_CALLBACK, removing(callbacks.c.callback_id, settled_callback), None),
            (RowChange.DELIVERY, replacing(webhook_deliveries, DELIVERIES.names), DELIVERIES.row),
            (RowChange.HANDLED_DELIVERY, RowsStatement(handled, ("run", "key", "owner"), engine_dialect), None),
            (RowChange.FAILED_DELIVERY, RowsStatement(failed, ("why", "run", "key", "owner"), engine_dialect), None),
            (RowChange.NEW_CALLBACK, adding(callbacks, CALLBACKS.names), CALLBACKS.row),
            (RowChange.DUE_CALLBACKS, RowsStatement(due, ("at", "key"), engine_dialect), None),
            (RowChange.CALLBACK, replacing(callbacks, CALLBACKS.names), CALLBACKS.row),
            (
                RowChange.ACCOUNT,
                updating(budgets, _CHANGED_ACCOUNT, "account"),
                _picking((*_CHANGED_ACCOUNT, "account")),
            ),
            (RowChange.MEMORY, updating(memories, ("version", "change_id", "documents"), "agent"), None),
            (RowChange.REPLACED_MEMORY_PARTS, RowsStatement(replaced, ("owner", "name"), engine_dialect), None),
            (
                RowChange.NEW_MEMORY_PART,
                inserting(memory_parts, ("agent", "document", "version", "content")),
                None,
            ),
            (RowChange.REMOVED_ATTEMPT, removing(attempts.c.attempt), None),
            (
                RowChange.ARTIFACT_PART,
                replacing(artifact_parts, ("agent", "artifact_id", "part", "stored_at", "content")),
                None,
            ),
            (RowChange.ARTIFACT, replacing(artifacts, artifacts.c.keys()), None),
            (RowChange.REMOVED_ARTIFACT, expiring(artifacts), None),
            (RowChange.REMOVED_ARTIFACT, expiring(artifact_parts), None),
            (
                RowChange.EXPORT_POSITION,
                RowsStatement(exported, ("tenant", "writer", "position"), engine_dialect),
                None,
            ),
            *_noting_queues(dialect, engine_dialect),
            (RowChange.CONCURRENCY_LIMIT, replacing(concurrency_limits, concurrency_limits.c.keys()), None),
            (RowChange.OLD_CONCURRENCY_LIMITS, _removing_old_limits(dialect, engine_dialect), None),
            (
                RowChange.REMOVED_SECRET,
                RowsStatement(delete(secrets).where(*secret), ("owner", "key"), engine_dialect),
                None,
            ),
            (RowChange.SECRET, RowsStatement(put_secret, secrets.c.keys(), engine_dialect), None),
            (
                RowChange.REPLACED_CIPHERTEXT,
                RowsStatement(replaced_ciphertext, _REPLACED_CIPHERTEXT, engine_dialect),
                None,
            ),
            (RowChange.SETTLED, removing(budget_reservations.c.reservation_id), None),
            (RowChange.RESERVATION, inserting(budget_reservations, _RESERVATION), _picking(_RESERVATION)),
            (RowChange.TENANT_USAGE, counting(usage_of_tenants), own),
            (RowChange.AGENT_USAGE, counting(usage_of_agents), tuple),
            (RowChange.TOOL_USAGE, counting(usage_of_tools), own),
        )
        self._ledger = inserting(ledger, _RECORD)
        self._heads = replacing(ledger_heads, ("tenant", "writer", "position", "hash"))
        self._keys_since_sweep = self._reservations_since_sweep = 0
        self._attempts_since_sweep = _SWEEP_EVERY
        self._usage_sweep = UsageSweep(dialect)
        expired = select(idempotency_keys.c.key).where(idempotency_keys.c.expires_at < bindparam("now")).limit(_SWEEP)
        self._sweep = delete(idempotency_keys).where(idempotency_keys.c.key.in_(dialect.unlocked(expired)))
        past = (budgets.c.expires_at < bindparam("past")) & (budgets.c.reserved == 0)
        self._sweep_accounts = delete(budgets).where(
            budgets.c.account.in_(dialect.unlocked(select(budgets.c.account).where(past).limit(_SWEEP)))
        )
        old = select(attempts.c.attempt).where(attempts.c.named_at < dialect.now - _KEPT_ATTEMPTS).limit(_SWEEP)
        self._sweep_attempts = delete(attempts).where(attempts.c.attempt.in_(dialect.unlocked(old)))
        self._read_heads = dialect.locking(
            select(ledger_heads)
            .where(dialect.among(ledger_heads.c.tenant, "tenants"), ledger_heads.c.writer == name)
            .order_by(ledger_heads.c.tenant)
        )
        self._ids, self._insert_terms = dialect.ids, dialect.insert_terms
        self._probe = (
            dialect.insert(probes)
            .values(writer=name, written=1)
            .on_conflict_do_update(index_elements=["writer"], set_={"written": probes.c.written + 1})
        )

    def probe(self, connection: Connection) -> None:
        """Write something that matters to nobody."""
        connection.execute(self._probe)

    def write(self, connection: Connection, store: WorkingSet) -> None:
        """Write all changes; if this raises, the transaction must be rolled back."""
        changes = store.changes
        _run(connection, self._before_ledger, changes)
        if changes[RowChange.FOCUS_TERM]:
            self._insert_terms(connection, sorted(changes[RowChange.FOCUS_TERM]))
        if store.new_records:
            self._chain(connection, store.new_records)
        _run(connection, self._after_ledger, changes)
        self._keys_since_sweep += len(changes[RowChange.KEY])
        if changes[RowChange.KEY] and self._keys_since_sweep >= _SWEEP_EVERY and changes[RowChange.NEW_RUN]:
            self._keys_since_sweep = 0
            connection.execute(self._sweep, {"now": min(run.created_at for run in changes[RowChange.NEW_RUN].values())})
        for expired in changes[RowChange.EXPIRED_KEYS].values():
            connection.execute(self._sweep, {"now": expired})
        self._reservations_since_sweep += len(changes[RowChange.RESERVATION]) + len(changes[RowChange.ACCOUNT])
        if changes[RowChange.ACCOUNT] and self._reservations_since_sweep >= _SWEEP_EVERY and store.reserved_at:
            self._reservations_since_sweep = 0
            connection.execute(self._sweep_accounts, {"past": store.reserved_at - _KEPT})
        self._attempts_since_sweep += len(store.attempts)
        if store.attempts and self._attempts_since_sweep >= _SWEEP_EVERY:
            self._attempts_since_sweep = 0
            connection.execute(self._sweep_attempts)
        self._usage_sweep.run(connection, changes)

    def _chain(self, connection: Connection, records: Sequence[LedgerRecord]) -> None:
        tenants = {record.tenant for record in records}
        heads = {tenant: ChainHead(tenant, self._name) for tenant in tenants}
        for row in connection.execute(self._read_heads, {"tenants": self._ids(sorted(tenants))}):
            heads[row.tenant] = ChainHead(row.tenant, row.writer, row.position, row.hash)
        rows = []
        for record in records:
            head, data = heads[record.tenant], self._redacted(record)
            after = ChainHead(head.tenant, head.writer, head.position + 1, next_hash(head, record, data))
            heads[record.tenant] = after
            rows.append(_record_row(record, head, after, data))
        self._ledger.run(connection, rows)
        self._heads.run(connection, [(each.tenant, each.writer, each.position, each.hash) for each in heads.values()])

    def _redacted(self, record: LedgerRecord) -> bytes:
        data, redactor = canonical_data(record.data), self._redactors.of(record.tenant)
        return canonical_data(redactor.redact(record.data)) if redactor.suspects(data) else data


def _run(connection: Connection, steps: Iterable[_Step], changes: RowChanges) -> None:
    """Write the rows in the order of their keys, in which all stores lock them."""
    for change, statement, encode in steps:
        changed = changes.get(change)
        if changed:
            rows = [*map(changed.__getitem__, sorted(changed))]
            statement.run(connection, rows if encode is None else [*map(encode, rows)])


def _storing_text(dialect: Dialect) -> Any:
    """Return what stores a text, or renews the time of one that is there: that of the database, or of the entry if that is later."""
    used_at = bindparam("at", type_=blobs.c.used_at.type)
    text = dialect.insert(blobs).values(
        hash=bindparam("key", type_=NAME),
        content=bindparam("text", type_=Text),
        used_at=case((used_at > dialect.now, used_at), else_=dialect.now),
    )
    return text.on_conflict_do_update(
        index_elements=["hash"],
        set_={"used_at": text.excluded.used_at},
        where=blobs.c.used_at.is_(None) | (blobs.c.used_at < text.excluded.used_at),
    )


def _removing_leftovers(dialect: Dialect, engine_dialect: EngineDialect) -> tuple[_Step, ...]:
    """Return what removes schedules and texts, or notes what stays, see `leftovers`."""
    schedule = schedules.c.schedule_id == bindparam("key", type_=NAME)
    forgotten_until, found_over_at = schedules.c.forgotten_until, schedules.c.found_over_at
    until = bindparam("until", type_=forgotten_until.type)
    forgotten = update(schedules).values(forgotten_until=until)
    forgotten = forgotten.where(schedule, forgotten_until.is_(None) | (forgotten_until < until))
    found_over = update(schedules).values(found_over_at=bindparam("at", type_=found_over_at.type))
    has_ticks = exists().where(ticks.c.schedule_id == schedules.c.schedule_id)
    text, used_at = blobs.c.hash == bindparam("key", type_=NAME), blobs.c.used_at
    old = used_at < bindparam("before", type_=used_at.type)
    used = update(blobs).values(used_at=dialect.now).where(text, used_at.is_(None) | old)
    swept = dialect.insert(sweeps)
    swept = swept.on_conflict_do_update(
        index_elements=["what"],
        set_={"swept_at": swept.excluded.swept_at},
        where=swept.excluded.swept_at > sweeps.c.swept_at,
    )
    statements = (
        (RowChange.FORGOTTEN_TICKS, forgotten, ("key", "until")),
        (RowChange.SCHEDULE_FOUND_OVER, found_over.where(schedule, found_over_at.is_(None)), ("key", "at")),
        (RowChange.REMOVED_SCHEDULE, delete(schedules).where(schedule, ~open_schedule, ~has_ticks), ("key",)),
        (RowChange.UNUSED_BLOB, delete(blobs).where(text, old), ("key", "before")),
        (RowChange.USED_BLOB, used, ("key", "before")),
        (RowChange.SWEEP, swept, ("what", "swept_at")),
    )
    return tuple((change, RowsStatement(each, names, engine_dialect), None) for change, each, names in statements)


def _noting_queues(dialect: Dialect, engine_dialect: EngineDialect) -> tuple[_Step, ...]:
    """Return what notes how long queues are: of what was noted of the same minute, the least and the most stay."""
    noted = dialect.insert(queue_minutes)
    before, now = queue_minutes.c, noted.excluded
    noted = noted.on_conflict_do_update(
        index_elements=["begins_at", "queue"],
        set_={
            "least": case((now.least < before.least, now.least), else_=before.least),
            "most": case((now.most > before.most, now.most), else_=before.most),
        },
    )
    past = delete(queue_minutes).where(before.begins_at < bindparam("before", type_=before.begins_at.type))
    columns = ("begins_at", "queue", "least", "most")
    return (
        (RowChange.QUEUE_MINUTE, RowsStatement(noted, columns, engine_dialect), None),
        (RowChange.OLD_QUEUE_MINUTES, RowsStatement(past, ("before",), engine_dialect), None),
    )


def _removing_old_limits(dialect: Dialect, engine_dialect: EngineDialect) -> RowsStatement:
    """Return what removes limits that were noted too long ago, but for those that another node's Keeper removes just now."""
    columns = concurrency_limits.c
    old = select(columns.asked, columns.node_id).where(
        columns.noted_at < bindparam("before", type_=columns.noted_at.type)
    )
    removed = delete(concurrency_limits).where(tuple_(columns.asked, columns.node_id).in_(dialect.unlocked(old)))
    return RowsStatement(removed, ("before",), engine_dialect)


def _picking(columns: Sequence[str]) -> _Encode:
    """Return what makes rows of structs whose fields are named as the columns are."""
    return attrgetter(*("status.value" if column == "status" else column for column in columns))


def _record_row(record: LedgerRecord, before: ChainHead, head: ChainHead, data: bytes) -> tuple[Any, ...]:
    return (
        record.tenant,
        head.writer,
        head.position,
        record.record_id,
        agent_key(AgentRef(record.tenant, record.agent_id)),
        record.run_id,
        record.kind.value,
        to_micros(record.at),
        data.decode(),
        before.hash,
        head.hash,
    )
