"""Loading the working set of a batch with a number of statements that does not depend on its size.

Locks are taken in one order everywhere, which is what excludes deadlocks: the lease, nodes by id, tenants, new agents, agents by key,
Idempotency-Keys, new accounts of budgets, accounts by name, callbacks by id, new memories, memories by agent, new attempts by id.
Deliveries are locked with the Idempotency-Keys.

Who may claim agents is read once the agents are locked, where the batch does not lock it: from then on nobody else takes them, and
whoever took them while the batch waited for them has committed the lease, or the state of the node, by which that was decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from msgspec import convert
from sqlalchemy import Connection, Integer, Label, Select, bindparam, func, literal_column, null, or_, select

from owlclaw_ray.domain.agent import AgentState
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.quota import (
    KEY_QUOTAS,
    KeyQuota,
    Quotas,
    held_account,
    key_held_account,
    key_starts_account,
    starts_account,
)
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.ids import DEFAULT_TENANT, KeyId, TenantId
from owlclaw_ray.store.commands import ClusterLease
from owlclaw_ray.store.queries import LedgerChain
from owlclaw_ray.store.sql.codec import agent_key, agent_of, dump, from_micros, load, optional_micros
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.quotas import accounts_in_use, counted_memories
from owlclaw_ray.store.sql.row_codecs import (
    APPROVALS,
    BRIEF_DELIVERY_COLUMNS,
    CALLBACKS,
    DELIVERIES,
    KEYS,
    NODES,
    SCHEDULES,
    TASKS,
    TENANTS,
    TICKS,
    approval_of,
)
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import (
    access_keys,
    active_run,
    agents,
    approvals,
    artifacts,
    attempts,
    begun_run,
    budget_reservations,
    budgets,
    callbacks,
    cluster_lease,
    cluster_nodes,
    idempotency_keys,
    journal,
    ledger,
    ledger_heads,
    memories,
    mergeable_run,
    open_schedule,
    payload_left,
    pending_approval,
    runs,
    schedules,
    schema_compatibility,
    small_payload,
    tasks,
    tenants,
    ticks,
    webhook_deliveries,
)
from owlclaw_ray.store.sql.tenant_rows import remove_rows, rows_left
from owlclaw_ray.store.sql.working_set import (
    LEASE_ROW,
    AccountRow,
    AgentRow,
    KeyRow,
    MemoryRow,
    PutRow,
    ReservationRow,
    RunRow,
    WorkingSet,
)

_WITHOUT_QUOTAS = "{}"
_NOBODY = {"id": LEASE_ROW, "cluster": "", "generation": 0, "beats": 0}
_KNOWN_AGENTS = 65_536
_NEW_STATE = dump(AgentState())
_last_entry = (
    select(func.coalesce(func.max(journal.c.seq), 0)).where(journal.c.run_id == runs.c.run_id).scalar_subquery()
)
_RUN_COLUMNS = (
    runs.c.seq,
    runs.c.run_id,
    runs.c.agent,
    runs.c.created_at,
    runs.c.status,
    runs.c.started_at,
    runs.c.finished_at,
    runs.c.cancel_requested,
    runs.c.claimed_epoch,
    runs.c.result,
    runs.c.rank,
    runs.c.deadline,
    runs.c.merge_key,
    runs.c.interrupted_by,
    runs.c.reserves,
    runs.c.awaits,
    runs.c.counts_for,
)
_NOTHING_LEFT: Label[int] = literal_column("0", Integer).label("payload_left")
_AGENT_COLUMNS = [column.name for column in agents.c if column.computed is None]
_ACCOUNT_COLUMNS = [column.name for column in budgets.c]


class Loader:
    """The statements for one database, made once, and the agents that are known to be registered."""

    def __init__(self, dialect: Dialect, cluster: str = "") -> None:
        self._dialect, self._cluster, self._node_id, self._generation = dialect, cluster, "", 0
        self._known_agents: set[str] = set()
        among = dialect.among
        self._register = (
            dialect.insert(agents)
            .values({name: bindparam(f"new_{name}") for name in _AGENT_COLUMNS})
            .on_conflict_do_nothing()
            .returning(agents.c.agent)
        )
        columns = (*_RUN_COLUMNS, _last_entry.label("last_entry"))
        brief = select(*columns, null().label("trigger"), null().label("payload"), _NOTHING_LEFT)
        self._runs = brief.where(among(runs.c.run_id, "ids"))
        self._running = brief.where(among(runs.c.agent, "ids"), begun_run)
        self._queued = dialect.queue_heads((*columns, runs.c.trigger, small_payload, payload_left))
        whole = (*columns, runs.c.trigger, runs.c.payload, _NOTHING_LEFT)
        self._queue_lengths = dialect.queue_lengths()
        self._mergeable = select(*whole).where(
            among(runs.c.agent, "agents"), among(runs.c.merge_key, "ids"), mergeable_run
        )
        self._agents = dialect.locking(
            select(*(agents.c[each] for each in ("agent", "epoch", "activation_id", "state", "lineage", "node_id")))
            .where(among(agents.c.agent, "ids"))
            .order_by(agents.c.agent)
        )
        self._agents_of_runs = select(runs.c.agent).where(among(runs.c.run_id, "ids"))
        self._agents_of_schedules = select(schedules.c.agent).where(among(schedules.c.schedule_id, "ids"))
        self._keys = (
            select(
                idempotency_keys.c.key,
                idempotency_keys.c.body_hash,
                idempotency_keys.c.run_id,
                idempotency_keys.c.expires_at,
                runs.c.seq,
                runs.c.agent,
            )
            .join(runs, runs.c.run_id == idempotency_keys.c.run_id)
            .where(among(idempotency_keys.c.key, "ids"))
        )
        self._schedules = select(*SCHEDULES.columns).where(among(schedules.c.schedule_id, "ids"))
        self._store_firer = select(ticks.c.firing_id).where(among(ticks.c.firing_id, "ids"))
        self._ticks = select(*TICKS.columns).where(among(ticks.c.run_id, "ids"))
        self._open_schedules = (
            select(schedules.c.agent, func.count())
            .where(among(schedules.c.agent, "ids"), open_schedule)
            .group_by(schedules.c.agent)
        )
        self._fired_runs = (
            select(ticks.c.schedule_id, ticks.c.run_id)
            .join(runs, runs.c.run_id == ticks.c.run_id)
            .where(among(runs.c.agent, "agents"), active_run, among(ticks.c.schedule_id, "ids"))
            .order_by(runs.c.seq)
        )
        self._recorded_calls = (
            select(journal.c.run_id, func.count())
            .where(among(journal.c.run_id, "ids"), journal.c.kind == EntryKind.TOOL_FINISHED.value)
            .group_by(journal.c.run_id)
        )
        self._places = select(approvals.c.agent, approvals.c.run_id).where(among(approvals.c.approval_id, "ids"))
        self._approvals = select(*APPROVALS.columns).where(among(approvals.c.approval_id, "ids"))
        self._pending = select(*APPROVALS.columns).where(among(approvals.c.run_id, "ids"), pending_approval)
        self._tasks = select(*TASKS.columns).where(among(tasks.c.task_id, "ids"))
        self._deliveries = select(*BRIEF_DELIVERY_COLUMNS).where(among(webhook_deliveries.c.delivery_id, "ids"))
        self._callbacks = dialect.locking(
            select(*CALLBACKS.columns).where(among(callbacks.c.callback_id, "ids")).order_by(callbacks.c.callback_id)
        )
        self._records = dialect.among_pairs(ledger.c.run_id, ledger.c.record_id)
        self._artifacts = dialect.among_pairs(artifacts.c.agent, artifacts.c.artifact_id).add_columns(
            artifacts.c.size_bytes, artifacts.c.stored_at
        )
        self._open_accounts = (
            dialect.insert(budgets)
            .values({name: bindparam(f"new_{name}") for name in _ACCOUNT_COLUMNS})
            .on_conflict_do_nothing()
        )
        self._accounts = dialect.locking(
            select(budgets.c.account, budgets.c.used, budgets.c.reserved, budgets.c.alerted)
            .where(among(budgets.c.account, "ids"))
            .order_by(budgets.c.account)
        )
        reserved = select(*budget_reservations.c)
        self._lease = select(*(cluster_lease.c[name] for name in ClusterLease.__struct_fields__))
        self._locked_lease = dialect.locking(self._lease)
        self._oldest_schema = select(schema_compatibility.c.oldest)
        nodes = select(*NODES.columns).where(among(cluster_nodes.c.node_id, "ids")).order_by(cluster_nodes.c.node_id)
        self._nodes, self._locked_nodes = nodes, dialect.locking(nodes)
        self._access_keys = dialect.locking(
            select(*KEYS.columns).where(among(access_keys.c.key_id, "ids")).order_by(access_keys.c.key_id)
        )
        self._tenants = dialect.locking(
            select(*TENANTS.columns).where(among(tenants.c.tenant, "ids")).order_by(tenants.c.tenant)
        )
        self._new_lease = dialect.insert(cluster_lease).values(_NOBODY).on_conflict_do_nothing()
        nothing = {"version": 0, "change_id": "", "documents": "{}"}
        self._new_memories = (
            dialect.insert(memories).values(agent=bindparam("new_agent"), **nothing).on_conflict_do_nothing()
        )
        self._memories = dialect.locking(
            select(*memories.c).where(among(memories.c.agent, "ids")).order_by(memories.c.agent)
        )
        self._new_attempts = (
            dialect.insert(attempts)
            .values(attempt=bindparam("new_attempt"), named_at=dialect.now, begun=bindparam("new_begun"))
            .on_conflict_do_nothing()
        )
        age = (dialect.now - attempts.c.named_at).label("age")
        self._attempts = select(attempts.c.attempt, attempts.c.begun, age).where(among(attempts.c.attempt, "ids"))
        self._terms, self._key_quotas = _terms(dialect), _key_quotas(dialect)
        self._reservations = reserved.where(among(budget_reservations.c.reservation_id, "ids"))
        self._reservations_of_runs = reserved.where(among(budget_reservations.c.run_id, "ids"))

    def load(self, connection: Connection, needs: RowNeeds) -> WorkingSet:
        """Lock and return what these needs name."""
        store = WorkingSet(cluster=self._cluster, node_id=self._node_id, generation=self._generation)
        rows = partial(self._rows, connection)
        if needs.changes_lease:
            connection.execute(self._new_lease)
            store.lease = ClusterLease(*connection.execute(self._locked_lease).one())
        if needs.joins:
            store.oldest_schema = connection.execute(self._oldest_schema).scalar_one_or_none() or ""
        store.nodes = {each.node_id: each for each in map(NODES.fact, rows(self._locked_nodes, needs.nodes))}
        concerned = self._agents_concerned(connection, needs)
        counted = {agent_of(key).tenant for key in needs.counts} - {DEFAULT_TENANT}
        self._dialect.lock_tenants(connection, counted - needs.tenants - needs.locked, needs.tenants - needs.locked)
        store.tenants = {each.tenant: each for each in map(TENANTS.fact, rows(self._tenants, needs.tenants))}
        store.access_keys = {each.key_id: each for each in map(KEYS.fact, rows(self._access_keys, needs.access_keys))}
        self._load_terms(connection, counted, store)
        store.key_quotas = dict(needs.key_quotas)
        self._lock_agents(connection, needs, store, concerned)
        if needs.claims_agents:
            self._read_claimant(connection, needs, store)
        self._load_schedules(connection, needs, store)
        self._take_runs(store, rows(self._runs, needs.runs))
        self._load_queues(connection, needs, store)
        self._load_key_quotas(connection, needs, store)
        waiting = [run.run_id for run in store.runs.values() if run.status is RunStatus.WAITING]
        for row in (*rows(self._approvals, needs.approvals), *rows(self._pending, waiting)):
            store.approvals[row.approval_id] = approval_of(row)
        for row in rows(self._tasks, needs.tasks):
            store.tasks[row.task_id] = PutRow(TASKS.fact(row), row.created_at, from_micros(row.updated_at))
        if needs.keys or needs.deliveries:
            self._dialect.lock_keys(connection, needs.keys | needs.deliveries)
        store.keys = {key: KeyRow(*row) for key, *row in rows(self._keys, needs.keys)}
        deliveries = map(DELIVERIES.fact, rows(self._deliveries, needs.deliveries))
        store.deliveries = {each.delivery_id: each for each in deliveries}
        self._load_budgets(connection, needs, store)
        callbacks_ = map(CALLBACKS.fact, rows(self._callbacks, needs.callbacks))
        store.callbacks = {each.callback_id: each for each in callbacks_}
        if needs.memories:
            connection.execute(self._new_memories, [{"new_agent": key} for key in sorted(needs.memories)])
            store.memories = {
                row[0]: counted_memories(connection, MemoryRow(*row)) for row in rows(self._memories, needs.memories)
            }
        if needs.attempts:
            new = [{"new_attempt": each, "new_begun": begins} for each, begins in sorted(needs.attempts.items())]
            connection.execute(self._new_attempts, new)
            for attempt, begun, age in rows(self._attempts, needs.attempts.keys()):
                store.attempts[attempt] = max(0, age) / 1_000_000 if begun else None
        if needs.records:
            found = connection.execute(self._records, self._dialect.pairs(needs.records))
            store.records.update((row[0], row[1]) for row in found)
        if needs.submissions:
            store.free_seqs = deque(self._dialect.next_seqs(connection, needs.submissions))
        for tenant in sorted(needs.emptied | needs.seals):
            self._look_at_deleted(connection, needs, store, tenant)
        return store

    def _look_at_deleted(self, connection: Connection, needs: RowNeeds, store: WorkingSet, tenant: TenantId) -> None:
        """Remove some rows of a tenant that is being deleted, and count what is left where its ledger is to be sealed."""
        found = store.tenants.get(tenant)
        if found is None or found.status is not TenantStatus.DELETING:
            return
        if tenant in needs.emptied:
            store.removed[tenant] = remove_rows(connection, tenant)
        if tenant in needs.seals:
            store.left[tenant] = rows_left(connection, tenant)
            ends = select(ledger_heads).where(ledger_heads.c.tenant == tenant).order_by(ledger_heads.c.writer)
            store.chain_ends[tenant] = [
                LedgerChain(row.writer, row.position, row.hash) for row in connection.execute(ends)
            ]

    def serve_node(self, node_id: str, generation: int) -> None:
        """Have working sets say whether the node holds its row as this generation."""
        self._node_id, self._generation = node_id, generation

    def learn(self, agents_: set[str]) -> None:
        """Note that these agents are registered, and committed."""
        if len(self._known_agents) > _KNOWN_AGENTS:
            self._known_agents.clear()
        self._known_agents |= agents_

    def _rows(self, connection: Connection, statement: Any, ids: Collection[str]) -> Iterable[Any]:
        return connection.execute(statement, {"ids": self._dialect.ids(ids)}) if ids else ()

    def _agents_concerned(self, connection: Connection, needs: RowNeeds) -> set[str]:
        """Return the agents of which the store alone knows that the batch is about them."""
        rows = partial(self._rows, connection)
        ending = {row[0] for row in rows(self._agents_of_runs, needs.cancelled)}
        ending.update(row[0] for row in rows(self._agents_of_schedules, needs.fired))
        needs.counts |= ending
        waiting = set()
        for agent, run_id in rows(self._places, needs.settled):
            waiting.add(agent)
            needs.runs.add(run_id)
        return ending | waiting

    def _lock_agents(self, connection: Connection, needs: RowNeeds, store: WorkingSet, concerned: set[str]) -> None:
        new = sorted(needs.registered.keys() - self._known_agents)
        if new:
            rows = [_new_agent(key, needs.registered[key]) for key in new]
            made = connection.execute(self._register, rows).scalars()
            store.new_agents = {key for key in made if _counts_agents(store, key)}
        found = self._rows(connection, self._agents, needs.agents | concerned)
        store.agents = {row[0]: AgentRow(*row) for row in found}

    def _read_claimant(self, connection: Connection, needs: RowNeeds, store: WorkingSet) -> None:
        """Read who holds the lease, and the own node's row, where the batch has not locked them."""
        if self._cluster and not needs.changes_lease:
            lease = connection.execute(self._lease).one_or_none()
            store.lease = ClusterLease() if lease is None else ClusterLease(*lease)
        asked = {self._node_id} if self._node_id else set[str]()
        if store.lease.leaving:
            asked.update(each.node_id for each in store.agents.values() if each.activation_id and each.node_id)
        found = map(NODES.fact, self._rows(connection, self._nodes, asked - needs.nodes))
        store.nodes.update((each.node_id, each) for each in found)

    def _load_schedules(self, connection: Connection, needs: RowNeeds, store: WorkingSet) -> None:
        """Load schedules, and note the runs of those that are followed."""
        rows = partial(self._rows, connection)
        known = map(SCHEDULES.fact, rows(self._schedules, needs.schedules))
        store.schedules = {schedule.schedule_id: schedule for schedule in known}
        store.firings = {row[0] for row in rows(self._store_firer, needs.firings)}
        store.run_ticks = {tick.run_id: tick for tick in map(TICKS.fact, rows(self._ticks, needs.ticked))}
        for agent, number in rows(self._open_schedules, needs.limited):
            store.agents[agent].open_schedules = number
        if needs.followed:
            ids = self._dialect.ids
            owners = {agent_key(each.agent) for each in store.schedules.values()}
            parameters = {"agents": ids(owners), "ids": ids(needs.followed)}
            for schedule_id, run_id in connection.execute(self._fired_runs, parameters):
                store.fired_runs.setdefault(schedule_id, []).append(run_id)
                needs.runs.add(run_id)
                needs.cancelled.add(run_id)
                needs.finished.add(run_id)

    def _load_queues(self, connection: Connection, needs: RowNeeds, store: WorkingSet) -> None:
        """Load what is queued, and what is begun, as far as the batch may need it; `recorded_calls` where a run is resumed."""
        ids, rows = self._dialect.ids, partial(self._rows, connection)
        asked = needs.takes.keys() | needs.looks
        if asked:
            parameters = {"agents": ids(asked), "depth": needs.removals + bool(needs.looks)}
            for run in self._take_runs(store, connection.execute(self._queued, parameters)):
                store.agents[run.agent].queue.append(run)
        resumed = set()
        for run in self._take_runs(store, rows(self._running, asked)):
            store.agents[run.agent].running = run
            if run.status is RunStatus.WAITING or needs.claims.get(run.agent, set()) - {run.claimed_epoch}:
                run.recorded_calls = 0
                resumed.add(run.run_id)
        for run_id, number in rows(self._recorded_calls, resumed):
            store.runs[run_id].recorded_calls = number
        if needs.merges:
            parameters = {"agents": ids(needs.merges), "ids": ids(needs.merge_keys)}
            for run in self._take_runs(store, connection.execute(self._mergeable, parameters)):
                assert run.merge_key is not None
                store.mergeable[run.agent, run.merge_key] = run
        if needs.counted:
            parameters = {"agents": ids(needs.counted), "bound": needs.queue_limit + needs.removals}
            for agent, number in connection.execute(self._queue_lengths, parameters):
                store.agents[agent].queued = number

    def _load_terms(self, connection: Connection, tenants_: Collection[str], store: WorkingSet) -> None:
        for tenant, status, written in self._rows(connection, self._terms, tenants_):
            if status != TenantStatus.ACTIVE.value:
                store.suspended.add(tenant)
            store.quotas[tenant] = convert(load(written), Quotas)

    def _load_key_quotas(self, connection: Connection, needs: RowNeeds, store: WorkingSet) -> None:
        """Load the quotas of the keys for which runs count that begin or end. No lock: they stay as the key was made with."""
        asked = set(needs.counting_keys)
        if needs.takes or needs.finished or needs.waits:
            asked.update(key_id for run in store.runs.values() for key_id in run.keys)
        for row in self._rows(connection, self._key_quotas, asked - store.key_quotas.keys()):
            store.key_quotas[row.key_id] = KeyQuota(*row)

    def _need_accounts(self, needs: RowNeeds, store: WorkingSet) -> None:
        """Note the accounts of quotas that the batch may change, or that refuse something."""
        in_use = accounts_in_use(needs, store)
        submitting = {agent_of(key).tenant for key in needs.counts} if needs.submissions else set()
        for key_id, quota in store.key_quotas.items():
            if quota.starts_a_minute is not None:
                for minute in needs.counting_keys.get(key_id, ()):
                    needs.accounts[key_starts_account(KeyId(key_id), minute)] = optional_micros(minute.ends_at)
            concerned = submitting if key_id in needs.counting_keys else set()
            concerned = concerned | {run.tenant for run in store.runs.values() if key_id in run.keys}
            for name in in_use.of(quota):
                needs.accounts |= dict.fromkeys(key_held_account(name, KeyId(key_id), each) for each in concerned)
        for tenant, quotas in store.quotas.items():
            needs.accounts |= dict.fromkeys(held_account(name, TenantId(tenant)) for name in in_use.of(quotas))
            if quotas.starts_a_minute is not None:
                for minute in needs.starts.get(tenant, ()):
                    needs.accounts[starts_account(TenantId(tenant), minute)] = optional_micros(minute.ends_at)

    def _load_budgets(self, connection: Connection, needs: RowNeeds, store: WorkingSet) -> None:
        rows = partial(self._rows, connection)
        self._need_accounts(needs, store)
        ending = {run_id for run_id in needs.finished if run_id in store.runs and store.runs[run_id].reserves}
        found = (*rows(self._reservations, needs.reservations), *rows(self._reservations_of_runs, ending))
        reserved = {(row[0], row[1]): ReservationRow(*row) for row in found}
        for row in reserved.values():
            store.reservations.setdefault(row.reservation_id, []).append(row)
        if needs.accounts:
            unused = {"new_used": 0, "new_reserved": 0, "new_alerted": 0}
            new = [
                {"new_account": account, "new_expires_at": expires_at, **unused}
                for account, expires_at in sorted(needs.accounts.items())
            ]
            connection.execute(self._open_accounts, new)
        accounts = needs.accounts.keys() | needs.charged | {row.account for row in reserved.values()}
        store.accounts = {row[0]: AccountRow(*row) for row in rows(self._accounts, accounts)}
        if needs.artifacts and any(quotas.artifact_bytes is not None for quotas in store.quotas.values()):
            # The accounts are locked by now: nobody else changes what they count.
            sizes = connection.execute(self._artifacts, self._dialect.pairs(needs.artifacts))
            store.artifacts = {(agent, artifact_id): (size, at) for agent, artifact_id, size, at in sizes}

    def _take_runs(self, store: WorkingSet, rows: Iterable[Any]) -> list[RunRow]:
        taken = []
        for row in rows:
            run = store.runs.get(row.run_id)
            if run is None:
                run = store.runs[row.run_id] = RunRow(*row)
                run.status = RunStatus(run.status)
            if row.trigger is not None and run.payload is None:
                run.trigger, run.payload, run.payload_left = row.trigger, row.payload, row.payload_left
            taken.append(run)
        return taken


def _counts_agents(store: WorkingSet, agent: str) -> bool:
    quotas = store.quotas.get(agent_of(agent).tenant)
    return quotas is not None and quotas.agents is not None


def _terms(dialect: Dialect) -> Select[str, str, str]:
    """Return what reads the status and quotas of those tenants that are not as all are."""
    unusual = (tenants.c.quotas != _WITHOUT_QUOTAS) | (tenants.c.status != TenantStatus.ACTIVE.value)
    found = select(tenants.c.tenant, tenants.c.status, tenants.c.quotas)
    return found.where(dialect.among(tenants.c.tenant, "ids"), unusual)


def _key_quotas(dialect: Dialect) -> Select[Any]:
    """Return what reads the quotas of those keys that have one."""
    quotas = [access_keys.c[name] for name in KEY_QUOTAS]
    found = select(access_keys.c.key_id, *quotas)
    return found.where(dialect.among(access_keys.c.key_id, "ids"), or_(*(each.is_not(None) for each in quotas)))


def _new_agent(key: str, at: int) -> dict[str, Any]:
    agent = agent_of(key)
    return {
        "new_agent": key,
        "new_tenant": agent.tenant,
        "new_definition": agent.definition,
        "new_epoch": 0,
        "new_activation_id": None,
        "new_state": _NEW_STATE,
        "new_created_at": at,
        "new_lineage": None,
        "new_node_id": None,
    }
