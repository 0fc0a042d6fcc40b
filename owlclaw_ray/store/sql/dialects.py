"""Where SQLite and PostgreSQL want different SQL for the same thing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Any, Protocol

import orjson
from sqlalchemy import (
    CTE,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Select,
    Text,
    any_,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.schema import Table

from owlclaw_ray.store.sql.schema import (
    IS_PENDING,
    QUEUED,
    RUNNING,
    WAITING,
    active_run,
    callbacks,
    focus_terms,
    runs,
    runs_seq,
)


class Dialect(Protocol):
    """One database's ways."""

    now: ColumnElement[int]
    """The database's clock at this moment, in microseconds since 1970."""

    def ids(self, values: Iterable[str]) -> Any:
        """Return the parameter that carries many ids, for `among` and `queue_heads`."""
        ...

    def among(self, column: ColumnElement[str], parameter: str) -> ColumnElement[bool]:
        """Return the condition that the column is one of the ids in that parameter."""
        ...

    def pairs(self, values: Collection[tuple[str, str]]) -> dict[str, Any]:
        """Return the parameters that carry many pairs of ids, for `among_pairs`."""
        ...

    def among_pairs(self, first: Column[str], second: Column[str]) -> Any:
        """Return the SELECT of those pairs that the table of these two columns has."""
        ...

    def positions(self, values: Collection[tuple[str, int]]) -> dict[str, Any]:
        """Return the parameters that carry runs, and how far each was read, for `each_position`."""
        ...

    def each_position(self) -> Any:
        """Return those as a table: `place` in their order, from 0; `run_id`, `after`."""
        ...

    def limit_lock_waits(self, connection: Connection, milliseconds: int) -> None:
        """Have statements fail, from now on in this transaction, that would wait for locks of others for longer than that."""
        ...

    def insert(self, table: Table) -> Any:
        """Return an INSERT that knows ON CONFLICT."""
        ...

    def locking(self, statement: Select[Any]) -> Select[Any]:
        """Return the SELECT so that its rows stay as they are until the end of the transaction."""
        ...

    def unlocked(self, statement: Select[Any]) -> Select[Any]:
        """Return the SELECT so that it locks its rows and leaves out those that others have locked."""
        ...

    def queue_heads(self, columns: tuple[ColumnElement[Any], ...]) -> Select[Any]:
        """Return the SELECT of the first `depth` queued runs of each agent in `agents`, in the queue's order."""
        ...

    def queue_lengths(self) -> Select[Any]:
        """Return the SELECT of each agent in `agents` and the number of its queued runs, counted up to `bound`."""
        ...

    def due_callbacks(self, columns: tuple[ColumnElement[Any], ...]) -> Select[Any]:
        """Return the SELECT of the callbacks that are due at `now`, `limit` at most: see DueCallbacks."""
        ...

    def next_seqs(self, connection: Connection, number: int) -> list[int]:
        """Return that many new numbers for runs, ascending."""
        ...

    def lock_keys(self, connection: Connection, keys: Iterable[str]) -> None:
        """Keep others from using these Idempotency-Keys until the end of the transaction."""
        ...

    def lock_tenants(self, connection: Connection, written: Iterable[str], changed: Iterable[str]) -> None:
        """Until the end of the transaction, have those who change the status of the tenants `written` wait, and those who write for the
        tenants `changed`, too.
        """
        ...

    def insert_terms(self, connection: Connection, rows: Sequence[tuple[str, int, int]]) -> None:
        """Insert rows of `focus_terms`."""
        ...

    def owner_of(self, account: ColumnElement[str]) -> ColumnElement[str]:
        """Return what follows the first `@` in the name of an account."""
        ...


class Sqlite:
    """One writer at a time: a transaction that may write begins by taking the write lock."""

    now: ColumnElement[int] = literal_column(
        "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)", BigInteger
    )

    def ids(self, values: Iterable[str]) -> str:
        """As in Dialect: a JSON array."""
        return orjson.dumps(list(values)).decode()

    def limit_lock_waits(self, connection: Connection, milliseconds: int) -> None:
        """As in Dialect: nobody else writes."""

    def among(self, column: ColumnElement[str], parameter: str) -> ColumnElement[bool]:
        """As in Dialect."""
        return column.in_(select(self._each(parameter).c.value))

    def pairs(self, values: Collection[tuple[str, str]]) -> dict[str, Any]:
        """As in Dialect: a JSON array of arrays."""
        return {"pairs": orjson.dumps(list(values)).decode()}

    def among_pairs(self, first: Column[str], second: Column[str]) -> Any:
        """As in Dialect."""
        each = self._each("pairs")
        found = (first == func.json_extract(each.c.value, "$[0]")) & (second == func.json_extract(each.c.value, "$[1]"))
        return select(first, second).select_from(each.join(first.table, found))

    def positions(self, values: Collection[tuple[str, int]]) -> dict[str, Any]:
        """As in Dialect: a JSON array of arrays."""
        return {"positions": orjson.dumps(list(values)).decode()}

    def each_position(self) -> Any:
        """As in Dialect."""
        each = func.json_each(bindparam("positions", type_=Text)).table_valued("key", "value")
        run_id = func.json_extract(each.c.value, "$[0]", type_=Text).label("run_id")
        after = func.json_extract(each.c.value, "$[1]", type_=BigInteger).label("after")
        return select(each.c.key.label("place"), run_id, after).subquery("each")

    def insert(self, table: Table) -> Insert:
        """As in Dialect."""
        return sqlite.insert(table)

    def locking(self, statement: Select[Any]) -> Select[Any]:
        """As in Dialect: nobody else writes anyway."""
        return statement

    def unlocked(self, statement: Select[Any]) -> Select[Any]:
        """As in Dialect: nobody else writes anyway."""
        return statement

    def queue_heads(self, columns: tuple[ColumnElement[Any], ...]) -> Select[Any]:
        """As in Dialect: each agent's part of the index, as far as `depth`, then those runs by their seq."""
        each = self._each("agents")
        queued = runs.alias("queued")
        heads = (
            select(queued.c.seq)
            .where(
                queued.c.agent == each.c.value,
                queued.c.status == QUEUED,
                queued.c.status.in_([QUEUED, RUNNING, WAITING]),
            )
            .order_by(queued.c.rank, queued.c.seq)
            .limit(bindparam("depth", type_=BigInteger))
        )
        return select(*columns).select_from(each.join(runs, runs.c.seq.in_(heads))).order_by(runs.c.rank, runs.c.seq)

    def queue_lengths(self) -> Select[Any]:
        """As in Dialect."""
        each = self._each("agents")
        return _lengths(each, each.c.value)

    def due_callbacks(self, columns: tuple[ColumnElement[Any], ...]) -> Select[Any]:
        """As in Dialect: each host's part of the index, as far as `per_host`, then those callbacks by their ids."""
        hosts, due = _hosts(), callbacks.alias("due")
        heads = _heads(select(due.c.callback_id), due, hosts)
        return _in_turns(select(*columns).select_from(hosts.join(callbacks, callbacks.c.callback_id.in_(heads))))

    def next_seqs(self, connection: Connection, number: int) -> list[int]:
        """As in Dialect."""
        last = connection.execute(_LAST_SEQ).scalar_one() or 0
        return list(range(last + 1, last + number + 1))

    def lock_keys(self, connection: Connection, keys: Iterable[str]) -> None:
        """As in Dialect: nobody else writes anyway."""

    def lock_tenants(self, connection: Connection, written: Iterable[str], changed: Iterable[str]) -> None:
        """As in Dialect: nobody else writes anyway."""

    def owner_of(self, account: ColumnElement[str]) -> ColumnElement[str]:
        """As in Dialect."""
        return func.substr(account, func.instr(account, "@") + 1, type_=Text)

    def insert_terms(self, connection: Connection, rows: Sequence[tuple[str, int, int]]) -> None:
        """As in Dialect."""
        connection.exec_driver_sql("INSERT INTO focus_terms (tenant, term, seq) VALUES (?, ?, ?)", list(rows))

    def _each(self, parameter: str) -> Any:
        return func.json_each(bindparam(parameter, type_=Text)).table_valued("value")


class Postgresql:
    """Many writers: each locks the rows of its agents, in the order of their keys."""

    now: ColumnElement[int] = literal_column(
        "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)", BigInteger
    )

    def ids(self, values: Iterable[str]) -> list[str]:
        """As in Dialect: an array."""
        return list(values)

    def limit_lock_waits(self, connection: Connection, milliseconds: int) -> None:
        """As in Dialect."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")

    def among(self, column: ColumnElement[str], parameter: str) -> ColumnElement[bool]:
        """As in Dialect."""
        return column == any_(bindparam(parameter, type_=postgresql.ARRAY(Text)))

    def pairs(self, values: Collection[tuple[str, str]]) -> dict[str, Any]:
        """As in Dialect: two arrays."""
        return {"firsts": [first for first, _ in values], "seconds": [second for _, second in values]}

    def among_pairs(self, first: Column[str], second: Column[str]) -> Any:
        """As in Dialect."""
        names = (bindparam(name, type_=postgresql.ARRAY(Text)) for name in ("firsts", "seconds"))
        each = func.unnest(*names).table_valued("first", "second").render_derived()
        found = (first == each.c.first) & (second == each.c.second)
        return select(first, second).select_from(each.join(first.table, found))

    def positions(self, values: Collection[tuple[str, int]]) -> dict[str, Any]:
        """As in Dialect: two arrays."""
        return {"run_ids": [run_id for run_id, _ in values], "afters": [after for _, after in values]}

    def each_position(self) -> Any:
        """As in Dialect."""
        run_ids = bindparam("run_ids", type_=postgresql.ARRAY(Text))
        afters = bindparam("afters", type_=postgresql.ARRAY(BigInteger))
        each = func.unnest(run_ids, afters).table_valued("run_id", "after", with_ordinality="number").render_derived()
        return select((each.c.number - 1).label("place"), each.c.run_id, each.c.after).subquery("each")

    def insert(self, table: Table) -> Insert:
        """As in Dialect."""
        return postgresql.insert(table)

    def locking(self, statement: Select[Any]) -> Select[Any]:
        """As in Dialect."""
        return statement.with_for_update()

    def unlocked(self, statement: Select[Any]) -> Select[Any]:
        """As in Dialect."""
        return statement.with_for_update(skip_locked=True)

    def queue_heads(self, columns: tuple[ColumnElement[Any], ...]) -> Select[Any]:
        """As in Dialect."""
        each = func.unnest(bindparam("agents", type_=postgresql.ARRAY(Text))).table_valued("agent").render_derived()
        head = (
            select(*columns)
            .where(runs.c.agent == each.c.agent, runs.c.status == QUEUED, active_run)
            .order_by(runs.c.rank, runs.c.seq)
            .limit(bindparam("depth", type_=BigInteger))
            .lateral("head")
        )
        return select(*head.c).select_from(each.join(head, true())).order_by(head.c.rank, head.c.seq)

    def queue_lengths(self) -> Select[Any]:
        """As in Dialect."""
        each = func.unnest(bindparam("agents", type_=postgresql.ARRAY(Text))).table_valued("agent").render_derived()
        return _lengths(each, each.c.agent)

    def due_callbacks(self, columns: tuple[ColumnElement[Any], ...]) -> Select[Any]:
        """As in Dialect."""
        hosts = _hosts()
        head = _heads(select(*columns), callbacks, hosts).lateral("head")
        return _in_turns(select(*head.c).select_from(hosts.join(head, true())))

    def next_seqs(self, connection: Connection, number: int) -> list[int]:
        """As in Dialect: taken while the agents are locked, so that each agent's runs are numbered in commit order."""
        return sorted(connection.execute(_NEXT_SEQS, {"number": number}).scalars())

    def lock_keys(self, connection: Connection, keys: Iterable[str]) -> None:
        """As in Dialect: by advisory locks, in the order of their numbers."""
        connection.execute(_LOCK, {"numbers": _numbers(keys)})

    def lock_tenants(self, connection: Connection, written: Iterable[str], changed: Iterable[str]) -> None:
        """As in Dialect: by advisory locks, for which everybody waits in turn: a stream of those who share one does not hold up who
        wants it alone.
        """
        for lock, names in ((_LOCK_SHARED, written), (_LOCK, changed)):
            numbers = _numbers(f"tenant {name}" for name in names)
            if numbers:
                connection.execute(lock, {"numbers": numbers})

    def owner_of(self, account: ColumnElement[str]) -> ColumnElement[str]:
        """As in Dialect."""
        return func.substr(account, func.strpos(account, "@") + 1, type_=Text)

    def insert_terms(self, connection: Connection, rows: Sequence[tuple[str, int, int]]) -> None:
        """As in Dialect: columns as arrays, in one statement."""
        tenants, terms, seqs = zip(*rows, strict=True)
        connection.execute(_INSERT_TERMS, {"tenants": list(tenants), "terms": list(terms), "seqs": list(seqs)})


def _numbers(keys: Iterable[str]) -> list[int]:
    return sorted({int.from_bytes(sha256(key.encode()).digest()[:8], signed=True) for key in keys})


def _hosts() -> CTE:
    """Return the tenants' hosts with pending callbacks, from one to the next in the index; behind the last one comes none."""
    first, later = callbacks.alias("first"), callbacks.alias("later")

    def next_of(table: Any, column: str, *where: ColumnElement[bool]) -> ColumnElement[str]:
        return select(func.min(table.c[column])).where(table.c.status == IS_PENDING, *where).scalar_subquery()

    tenants = select(next_of(first, "tenant").label("tenant")).cte("due_tenants", recursive=True)
    tenants = tenants.union_all(
        select(next_of(later, "tenant", later.c.tenant > tenants.c.tenant)).where(tenants.c.tenant.is_not(None))
    )
    host = next_of(first, "host", first.c.tenant == tenants.c.tenant).label("host")
    hosts = select(tenants.c.tenant, host).where(tenants.c.tenant.is_not(None)).cte("hosts", recursive=True)
    following = next_of(later, "host", later.c.tenant == hosts.c.tenant, later.c.host > hosts.c.host)
    return hosts.union_all(select(hosts.c.tenant, following).where(hosts.c.host.is_not(None)))


def _heads(found: Select[Any], due: Any, hosts: CTE) -> Select[Any]:
    """Return those of a tenant's host that are due."""
    found = found.where(due.c.status == IS_PENDING, due.c.tenant == hosts.c.tenant, due.c.host == hosts.c.host)
    found = found.where(due.c.next_try_at <= bindparam("now", type_=BigInteger)).order_by(due.c.next_try_at)
    return found.limit(bindparam("per_host", type_=BigInteger)).correlate(hosts)


def _in_turns(heads: Select[Any]) -> Select[Any]:
    """Return the heads with the first of each tenant before the second of any, and within a tenant likewise by host."""
    each = heads.subquery("each_head")
    of_host = func.row_number().over(partition_by=(each.c.tenant, each.c.host), order_by=each.c.next_try_at)
    placed = select(*each.c, of_host.label("of_host")).subquery("placed")
    order = (placed.c.of_host, placed.c.next_try_at)
    of_tenant = func.row_number().over(partition_by=placed.c.tenant, order_by=order)
    columns = [column for column in placed.c if column.name != "of_host"]
    return select(*columns).order_by(of_tenant, placed.c.next_try_at).limit(bindparam("limit", type_=BigInteger))


def _lengths(each: Any, agent: ColumnElement[str]) -> Select[Any]:
    queued = (
        select(literal(1).label("one"))
        .where(runs.c.agent == agent, runs.c.status == QUEUED, active_run)
        .limit(bindparam("bound", type_=BigInteger))
        .correlate(each)
        .subquery()
    )
    return select(agent, select(func.count()).select_from(queued).scalar_subquery())


_LAST_SEQ = select(func.max(runs.c.seq))
_INSERT_TERMS = focus_terms.insert().from_select(
    ["tenant", "term", "seq"],
    select(
        *func.unnest(
            bindparam("tenants", type_=postgresql.ARRAY(Text)),
            bindparam("terms", type_=postgresql.ARRAY(BigInteger)),
            bindparam("seqs", type_=postgresql.ARRAY(BigInteger)),
        )
        .table_valued(column("tenant", Text), column("term", BigInteger), column("seq", BigInteger))
        .render_derived()
        .c
    ),
)
_NEXT_SEQS = select(runs_seq.next_value()).select_from(
    func.generate_series(1, bindparam("number", type_=BigInteger)).table_valued("n")
)


def _locking(function: Any) -> Select[Any]:
    numbers = func.unnest(bindparam("numbers", type_=postgresql.ARRAY(BigInteger)))
    return select(function(column("number", BigInteger))).select_from(
        numbers.table_valued(column("number", BigInteger)).render_derived()
    )


_LOCK, _LOCK_SHARED = _locking(func.pg_advisory_xact_lock), _locking(func.pg_advisory_xact_lock_shared)
SQLITE, POSTGRESQL = Sqlite(), Postgresql()
DIALECTS: tuple[Dialect, ...] = (SQLITE, POSTGRESQL)


def dialect_of(connection: Connection) -> Dialect:
    """Return the dialect of the connection's database."""
    return SQLITE if connection.dialect.name == "sqlite" else POSTGRESQL
