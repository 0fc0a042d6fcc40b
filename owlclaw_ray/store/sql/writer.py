"""Writing the changes of a batch: one statement a table, its rows sent together."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

from sqlalchemy import Column, Connection, Text, bindparam, case, delete, literal_column, select, update
from sqlalchemy.engine.interfaces import Dialect as EngineDialect
from sqlalchemy.sql.schema import Table

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.schedule import Tick
from owlclaw_ray.domain.webhook import MAX_FAILURES
from owlclaw_ray.ledger.chain import ChainHead, canonical_data, next_hash
from owlclaw_ray.ledger.redaction import Redactor
from owlclaw_ray.store.sql.approval_rows import APPROVAL_COLUMNS, approval_row, settled_row
from owlclaw_ray.store.sql.codec import agent_key, agent_of, dump, optional_micros, to_micros
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.schedule_rows import SCHEDULE_COLUMNS, TICK_COLUMNS, schedule_row, tick_row
from owlclaw_ray.store.sql.schema import (
    NAME,
    WAITING,
    agents,
    approvals,
    blobs,
    budget_reservations,
    budgets,
    callbacks,
    idempotency_keys,
    journal,
    ledger,
    ledger_heads,
    probes,
    runs,
    schedules,
    settled_callback,
    tasks,
    ticks,
    waiting_delivery,
    webhook_deliveries,
)
from owlclaw_ray.store.sql.task_rows import TASK_COLUMNS, task_row
from owlclaw_ray.store.sql.webhook_rows import CALLBACK_COLUMNS, DELIVERY_COLUMNS, callback_row, delivery_row
from owlclaw_ray.store.sql.working_set import Changes, RunRow

_SWEEP_EVERY, _SWEEP = 500, 1_000
"""After how many new Idempotency-Keys, or reservations, expired keys, or accounts, are removed, and how many at most."""
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
_CHANGED_TICK = ("at", "run_id", "last_due_at", "count")
_CHANGED_AGENT = ("epoch", "activation_id", "state", "lineage")
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


class Writer:
    """The statements for one database, made once.

    `name` names the ledger chains that this store writes. No record gets into them past the redactor.
    """

    def __init__(self, dialect: Dialect, engine_dialect: EngineDialect, name: str, redactor: Redactor) -> None:
        self._name, self._redactor = name, redactor

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
            return RowsStatement(statement, (*_new_names(columns), "key"), engine_dialect)

        self._new_runs = inserting(runs, _NEW_RUN)
        self._runs = updating(runs, _CHANGED_RUN, "seq")
        self._merged_runs = updating(runs, _MERGED_RUN, "seq")
        self._agents = updating(agents, _CHANGED_AGENT, "agent")
        self._journal = inserting(journal, _JOURNAL)
        self._blobs = RowsStatement(dialect.insert(blobs).on_conflict_do_nothing(), ("hash", "content"), engine_dialect)
        self._ledger = inserting(ledger, _RECORD)
        self._heads = replacing(ledger_heads, ("tenant", "writer", "position", "hash"))
        self._keys = replacing(idempotency_keys, ("key", "body_hash", "run_id", "expires_at"))
        self._keys_since_sweep = 0
        expired = select(idempotency_keys.c.key).where(idempotency_keys.c.expires_at < bindparam("now")).limit(_SWEEP)
        self._sweep = delete(idempotency_keys).where(idempotency_keys.c.key.in_(dialect.unlocked(expired)))
        self._new_schedules = inserting(schedules, [column.name for column in SCHEDULE_COLUMNS])
        self._schedules = updating(schedules, ("status", "next_fire_at", "paused_until"), "schedule_id")
        self._ticks = inserting(ticks, [column.name for column in TICK_COLUMNS])
        self._changed_ticks = updating(ticks, _CHANGED_TICK, "firing_id")
        self._removed = [_removing(key, engine_dialect) for key in (ticks.c.firing_id, runs.c.run_id, journal.c.run_id)]
        self._accounts = updating(budgets, ("used", "reserved", "alerted"), "account")
        self._new_reservations = inserting(budget_reservations, [column.name for column in budget_reservations.c])
        self._settled = _removing(budget_reservations.c.reservation_id, engine_dialect)
        self._reservations_since_sweep = 0
        past = (budgets.c.expires_at < bindparam("past")) & (budgets.c.reserved == 0)
        self._sweep_accounts = delete(budgets).where(
            budgets.c.account.in_(dialect.unlocked(select(budgets.c.account).where(past).limit(_SWEEP)))
        )
        self._tasks = replacing(tasks, [column.name for column in TASK_COLUMNS])
        self._new_approvals = inserting(approvals, [column.name for column in APPROVAL_COLUMNS])
        self._approvals = updating(approvals, ("status", "decision", "decided_at"), "approval_id")
        self._deliveries = replacing(webhook_deliveries, [column.name for column in DELIVERY_COLUMNS])
        self._handled = RowsStatement(
            update(webhook_deliveries)
            .values(status=literal_column("'handled'"), run_id=bindparam("run", type_=NAME))
            .where(
                webhook_deliveries.c.delivery_id == bindparam("key", type_=NAME),
                webhook_deliveries.c.agent == bindparam("owner", type_=NAME),
                waiting_delivery,
            ),
            ("run", "key", "owner"),
            engine_dialect,
        )
        last = webhook_deliveries.c.failures >= literal_column(str(MAX_FAILURES - 1))
        self._failed = RowsStatement(
            update(webhook_deliveries)
            .values(
                failures=webhook_deliveries.c.failures + literal_column("1"),
                status=case((last, literal_column("'refused'")), else_=webhook_deliveries.c.status),
                reason=case((last, bindparam("why", type_=Text)), else_=webhook_deliveries.c.reason),
                run_id=case((last, bindparam("run", type_=NAME)), else_=webhook_deliveries.c.run_id),
            )
            .where(
                webhook_deliveries.c.delivery_id == bindparam("key", type_=NAME),
                webhook_deliveries.c.agent == bindparam("owner", type_=NAME),
                waiting_delivery,
            ),
            ("why", "run", "key", "owner"),
            engine_dialect,
        )
        forgotten = delete(webhook_deliveries).where(
            webhook_deliveries.c.delivery_id == bindparam("key", type_=NAME), webhook_deliveries.c.status != WAITING
        )
        self._forgotten_deliveries = RowsStatement(forgotten, ("key",), engine_dialect)
        forgotten = delete(callbacks).where(callbacks.c.callback_id == bindparam("key", type_=NAME), settled_callback)
        self._forgotten_callbacks = RowsStatement(forgotten, ("key",), engine_dialect)
        self._new_callbacks = RowsStatement(
            dialect.insert(callbacks).on_conflict_do_nothing(),
            [column.name for column in CALLBACK_COLUMNS],
            engine_dialect,
        )
        self._callbacks = replacing(callbacks, [column.name for column in CALLBACK_COLUMNS])
        self._due_callbacks = RowsStatement(
            update(callbacks)
            .values(status=literal_column("'pending'"), version=callbacks.c.version + literal_column("1"))
            .values(next_try_at=bindparam("at", type_=callbacks.c.next_try_at.type))
            .where(
                callbacks.c.run_id == bindparam("key", type_=NAME), callbacks.c.status == literal_column("'waiting'")
            ),
            ("at", "key"),
            engine_dialect,
        )
        self._read_heads = dialect.locking(
            select(ledger_heads)
            .where(dialect.among(ledger_heads.c.tenant, "tenants"), ledger_heads.c.writer == name)
            .order_by(ledger_heads.c.tenant)
        )
        self._ids = dialect.ids
        self._probe = (
            dialect.insert(probes)
            .values(writer=name, written=1)
            .on_conflict_do_update(index_elements=["writer"], set_={"written": probes.c.written + 1})
        )

    def probe(self, connection: Connection) -> None:
        """Write something that matters to nobody."""
        connection.execute(self._probe)

    def write(self, connection: Connection, changes: Changes) -> None:
        """Write all changes; whatever fails, the transaction is of no more use."""
        new = {run.seq for run in changes.new_runs}
        self._new_runs.run(connection, [_new_run(run) for run in changes.new_runs])
        self._runs.run(connection, [_changed_run(run) for run in changes.runs.values() if run.seq not in new])
        merged = [run for run in changes.merged_runs.values() if run.seq not in new]
        self._merged_runs.run(
            connection, [(run.trigger, run.payload, run.rank, run.deadline, run.seq) for run in merged]
        )
        self._agents.run(
            connection,
            [(row.epoch, row.activation_id, row.state, row.lineage, row.agent) for row in changes.agents.values()],
        )
        self._journal.run(connection, changes.journal)
        self._blobs.run(connection, [(digest, dump(text)) for digest, text in sorted(changes.blobs.items())])
        if changes.records:
            self._chain(connection, changes.records)
        if changes.keys:
            self._write_keys(connection, changes)
        self._write_schedules(connection, changes)
        self._write_approvals(connection, changes)
        self._write_tasks(connection, changes)
        self._write_webhooks(connection, changes)
        if changes.accounts:
            self._write_budgets(connection, changes)

    def _write_budgets(self, connection: Connection, changes: Changes) -> None:
        accounts = sorted(changes.accounts.values(), key=attrgetter("account"))
        self._accounts.run(connection, [(row.used, row.reserved, row.alerted, row.account) for row in accounts])
        self._settled.run(connection, [(reservation_id,) for reservation_id in sorted(changes.settled)])
        new = [row for rows in changes.new_reservations.values() for row in rows]
        self._new_reservations.run(
            connection, [(row.reservation_id, row.account, row.run_id, row.amount) for row in new]
        )
        self._reservations_since_sweep += len(new)
        if self._reservations_since_sweep >= _SWEEP_EVERY and changes.reserved_at:
            self._reservations_since_sweep = 0
            connection.execute(self._sweep_accounts, {"past": changes.reserved_at - _KEPT})

    def _write_keys(self, connection: Connection, changes: Changes) -> None:
        keys = sorted(changes.keys.items())
        self._keys.run(connection, [(key, row.body_hash, row.run_id, row.expires_at) for key, row in keys])
        self._keys_since_sweep += len(keys)
        if self._keys_since_sweep >= _SWEEP_EVERY and changes.new_runs:
            self._keys_since_sweep = 0
            connection.execute(self._sweep, {"now": min(run.created_at for run in changes.new_runs)})

    def _write_schedules(self, connection: Connection, changes: Changes) -> None:
        self._new_schedules.run(connection, [schedule_row(each) for each in changes.new_schedules.values()])
        self._schedules.run(
            connection,
            [
                (
                    each.status.value,
                    optional_micros(each.next_fire_at),
                    optional_micros(each.paused_until),
                    each.schedule_id,
                )
                for each in changes.schedules.values()
            ],
        )
        self._ticks.run(connection, [tick_row(tick) for tick in changes.ticks])
        changed = [_changed_tick(tick) for _, tick in sorted(changes.changed_ticks.items())]
        self._changed_ticks.run(connection, changed)
        removed = (changes.removed_ticks, changes.removed_runs, changes.forgotten_journals)
        for statement, ids in zip(self._removed, removed, strict=True):
            statement.run(connection, [(each,) for each in sorted(ids)])

    def _write_approvals(self, connection: Connection, changes: Changes) -> None:
        self._new_approvals.run(connection, [approval_row(each) for each in changes.new_approvals.values()])
        self._approvals.run(connection, [settled_row(each) for each in changes.approvals.values()])

    def _write_tasks(self, connection: Connection, changes: Changes) -> None:
        self._tasks.run(connection, [task_row(changes.tasks[task_id]) for task_id in sorted(changes.tasks)])

    def _write_webhooks(self, connection: Connection, changes: Changes) -> None:
        self._forgotten_deliveries.run(connection, [(each,) for each in sorted(changes.forgotten_deliveries)])
        self._forgotten_callbacks.run(connection, [(each,) for each in sorted(changes.forgotten_callbacks)])
        self._deliveries.run(connection, [delivery_row(each) for _, each in sorted(changes.deliveries.items())])
        handled = sorted(changes.handled.items())
        self._handled.run(connection, [(run.run_id, delivery_id, run.agent) for delivery_id, run in handled])
        failed = sorted(changes.failed.items(), key=itemgetter(0))
        self._failed.run(connection, [(dump(why), run.run_id, key, run.agent) for key, (run, why) in failed])
        self._new_callbacks.run(connection, [callback_row(each) for each in changes.new_callbacks.values()])
        self._due_callbacks.run(connection, [(at, run_id) for run_id, at in sorted(changes.ended.items())])
        self._callbacks.run(connection, [callback_row(each) for _, each in sorted(changes.callbacks.items())])

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
        data = canonical_data(record.data)
        return canonical_data(self._redactor.redact(record.data)) if self._redactor.suspects(data) else data


def _removing(key: Column[str], dialect: EngineDialect) -> RowsStatement:
    """Return the DELETE of rows by this column."""
    return RowsStatement(delete(key.table).where(key == bindparam("key", type_=NAME)), ("key",), dialect)


def _new_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the parameters' names of an UPDATE's new values."""
    return tuple(f"new_{column}" for column in columns)


def _new_run(run: RunRow) -> tuple[Any, ...]:
    tenant = agent_of(run.agent).tenant
    changing = _changed_run(run)[:-1]
    settled = (run.rank, run.deadline, run.merge_key, run.payload)
    return (run.seq, run.run_id, tenant, run.agent, run.trigger, run.created_at, *changing, *settled)


def _changed_run(run: RunRow) -> tuple[Any, ...]:
    return (
        run.status.value,
        run.started_at,
        run.finished_at,
        run.cancel_requested,
        run.claimed_epoch,
        run.result,
        run.interrupted_by,
        run.reserves,
        run.awaits,
        run.seq,
    )


def _changed_tick(tick: Tick) -> tuple[Any, ...]:
    return to_micros(tick.at), tick.run_id, optional_micros(tick.last_due_at), tick.count, tick.firing_id


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
