"""What tenants have of what quotas count, on the working set.

Each quota of HELD has an account with the number of what there is. Every commit that makes or ends some of it changes the number, if the
tenant has the quota; the commit that gives or changes quotas counts anew. Between the two stands a lock of the tenant, which whoever
changes what is counted shares with others, and whoever changes the tenant has alone: so none is left out, and none counted twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection, Select, bindparam, exists, func, literal_column, select, tuple_

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import ACKNOWLEDGED, StoredDocument
from owlclaw_ray.domain.quota import (
    AGENTS,
    ARTIFACT_BYTES,
    HELD,
    MEMORIES,
    MEMORY_BYTES,
    OPEN_RUNS,
    RUNNING_RUNS,
    SCHEDULES,
    KeyQuota,
    Quotas,
    held_account,
    key_held_account,
)
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.ids import KeyId, TenantId
from owlclaw_ray.store.commands import QuotaReached
from owlclaw_ray.store.sql.codec import agent_of, load, tenant_range
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import (
    QUEUED,
    RUNNING,
    WAITING,
    access_keys,
    active_run,
    agents,
    artifacts,
    budgets,
    executed_run,
    key_run,
    memories,
    memory_parts,
    open_schedule,
    runs,
    schedules,
    tenants,
)
from owlclaw_ray.store.sql.working_set import EPOCH_AFTER_WAIT, MemoryRow, RunRow, WorkingSet, keys_of

_HEADING = re.compile(rb"^## ", re.MULTILINE)
"""Begins an entry of a memory document."""
_NUMBERS: dict[str, Select[int]] = {
    OPEN_RUNS: select(func.count()).select_from(runs).where(runs.c.tenant == bindparam("tenant"), active_run),
    RUNNING_RUNS: select(func.count()).select_from(runs).where(runs.c.tenant == bindparam("tenant"), executed_run),
    ARTIFACT_BYTES: select(func.coalesce(func.sum(artifacts.c.size_bytes), 0)).where(
        artifacts.c.agent >= bindparam("first"), artifacts.c.agent < bindparam("end")
    ),
    AGENTS: select(func.count()).select_from(agents).where(agents.c.tenant == bindparam("tenant")),
    SCHEDULES: select(func.count())
    .select_from(schedules)
    .where(
        schedules.c.agent >= bindparam("first"),
        schedules.c.agent < bindparam("end"),
        open_schedule,
        schedules.c.kind != ScheduleKind.HEARTBEAT.value,
    ),
}


_LOOKED_AT = 1_000
"""Runs that are looked at to find whose turn it is, where keys are in the way of some."""
_before = runs.alias("before")
_resuming = (
    select(runs.c.agent, runs.c.counts_for)
    .where(
        runs.c.tenant == bindparam("tenant"),
        runs.c.status == RUNNING,
        runs.c.claimed_epoch == literal_column(str(EPOCH_AFTER_WAIT)),
    )
    .order_by(runs.c.seq)
    .limit(bindparam("most"))
)
_first_queued = (
    select(runs.c.agent, runs.c.counts_for)
    .where(
        runs.c.tenant == bindparam("tenant"),
        runs.c.status == QUEUED,
        ~exists().where(
            _before.c.agent == runs.c.agent,
            _before.c.status.in_([QUEUED, RUNNING, WAITING]),
            (_before.c.status != QUEUED) | (tuple_(_before.c.rank, _before.c.seq) < tuple_(runs.c.rank, runs.c.seq)),
        ),
    )
    .order_by(runs.c.seq)
    .limit(bindparam("most"))
)
_key_limits = select(access_keys.c.key_id, access_keys.c.tenant, access_keys.c.running_runs).where(
    access_keys.c.running_runs.is_not(None)
)


class AccountsInUse(Struct, frozen=True):
    """Which accounts of tenants a batch may change."""

    ends: bool
    executions: bool
    agents: bool
    schedules: bool
    memories: bool
    artifacts: bool

    def of(self, quotas: Quotas | KeyQuota) -> list[str]:
        """Return the quotas of HELD that a tenant, or a key, has and the batch may change the accounts of."""
        changed = {OPEN_RUNS: self.ends, RUNNING_RUNS: self.executions, AGENTS: self.agents, SCHEDULES: self.schedules}
        changed |= {MEMORIES: self.memories, MEMORY_BYTES: self.memories, ARTIFACT_BYTES: self.artifacts}
        return [name for name in quotas.given if changed.get(name)]


def accounts_in_use(needs: RowNeeds, store: WorkingSet) -> AccountsInUse:
    """Return which accounts of tenants a batch may change."""
    return AccountsInUse(
        ends=bool(needs.submissions or needs.finished),
        executions=bool(needs.takes or needs.finished or needs.waits),
        agents=bool(store.new_agents),
        schedules=bool(needs.schedules),
        memories=bool(needs.memories),
        artifacts=bool(needs.artifacts),
    )


def _limit(store: WorkingSet, tenant: TenantId, quota: str) -> int | None:
    quotas = store.quotas.get(tenant)
    return None if quotas is None else quotas.given.get(quota)


def reached(store: WorkingSet, tenant: TenantId, quota: str, more: int = 1) -> QuotaReached | None:
    """Return the quota if so much more would exceed it."""
    limit = _limit(store, tenant, quota)
    if limit is not None and store.accounts[held_account(quota, tenant)].used + more > limit:
        return QuotaReached(quota, limit)
    return None


def count(store: WorkingSet, tenant: TenantId, quota: str, more: int) -> None:
    """Note that there is so much more; less, if it is negative."""
    if more and _limit(store, tenant, quota) is not None:
        store.charge({held_account(quota, tenant): more})


def key_reached(store: WorkingSet, tenant: TenantId, quota: KeyQuota, name: str) -> QuotaReached | None:
    """Return the quota of HELD if one more would exceed what the key may have."""
    limit = quota.given.get(name)
    if limit is not None and store.accounts[key_held_account(name, quota.key_id, tenant)].used >= limit:
        return QuotaReached(name, limit, of_key=True)
    return None


def count_for_keys(store: WorkingSet, run: RunRow, name: str, more: int) -> list[KeyId]:
    """Note that there is so much more of the keys that the run counts for, and that have the quota; return these."""
    counting = [each for each in run.keys if each in store.key_quotas and name in store.key_quotas[each].given]
    for key_id in counting:
        store.charge({key_held_account(name, key_id, run.tenant): more})
    return counting


def full_keys(store: WorkingSet, run: RunRow) -> set[KeyId]:
    """Return the keys that the run counts for, and of which no run more may be executed."""
    known = [store.key_quotas[key_id] for key_id in run.keys if key_id in store.key_quotas]
    return {each.key_id for each in known if key_reached(store, run.tenant, each, RUNNING_RUNS) is not None}


def no_room_for(store: WorkingSet, agent: str) -> QuotaReached | None:
    """Return the quota if an agent is new, and one more than its tenant may have."""
    return reached(store, agent_of(agent).tenant, AGENTS) if agent in store.new_agents else None


def keep(store: WorkingSet, agent: str) -> None:
    """Have an agent stay; a new one that nothing keeps does not, if agents of its tenant are counted."""
    if agent in store.new_agents:
        store.new_agents.remove(agent)
        count(store, agent_of(agent).tenant, AGENTS, 1)


def begin(store: WorkingSet, run: RunRow) -> bool:
    """Give a run a place among those that are executed, unless it has one; return whether it has one then."""
    tenant = agent_of(run.agent).tenant
    if run.is_executed:
        return True
    if reached(store, tenant, RUNNING_RUNS) is not None or full_keys(store, run):
        return False
    count(store, tenant, RUNNING_RUNS, 1)
    count_for_keys(store, run, RUNNING_RUNS, 1)
    return True


def stop(store: WorkingSet, run: RunRow) -> None:
    """Take the place from a run that ends, or is to wait."""
    if not run.is_executed:
        return
    tenant = run.tenant
    if _limit(store, tenant, RUNNING_RUNS) is not None:
        count(store, tenant, RUNNING_RUNS, -1)
        store.freed.add(tenant)
    store.freed_keys.update((tenant, key_id) for key_id in count_for_keys(store, run, RUNNING_RUNS, -1))


def admitted(connection: Connection, store: WorkingSet) -> dict[TenantId, tuple[AgentRef, ...]]:
    """Return, of each tenant of which places have become free, or of a key of it, the agents whose turn it is: those whose runs go on
    after waiting, then those whose first run was queued earliest. All changes of the batch are written.
    """
    found = {}
    for tenant in {*store.freed, *(each for each, _ in store.freed_keys)} - store.suspended:
        limit = _limit(store, tenant, RUNNING_RUNS)
        free = None if limit is None else limit - store.accounts[held_account(RUNNING_RUNS, tenant)].used
        if free is None or free > 0:
            found[tenant] = _whose_turn(connection, store, tenant, free)
    return found


def _whose_turn(connection: Connection, store: WorkingSet, tenant: TenantId, free: int | None) -> tuple[AgentRef, ...]:
    """Return the agents of a tenant that may begin in its `free` places; None: of those keys alone of which places have become free."""
    of_keys = free_places_of_keys(connection, tenant)
    freed = {key_id for each, key_id in store.freed_keys if each == tenant}
    asked = {"tenant": tenant, "most": _LOOKED_AT if of_keys else free}
    turns: list[AgentRef] = []
    for statement in (_resuming, _first_queued):
        where = statement.where(key_run) if free is None else statement
        for agent, counts_for in connection.execute(where, asked):
            keys = [key_id for key_id in keys_of(counts_for) if key_id in of_keys]
            if (free is None and freed.isdisjoint(keys)) or any(of_keys[key_id] <= 0 for key_id in keys):
                continue
            turns.append(agent_of(agent))
            for key_id in keys:
                of_keys[key_id] -= 1
            if free is not None and len(turns) == free:
                return tuple(turns)
    return tuple(turns)


def free_places_of_keys(connection: Connection, of: TenantId | None = None) -> dict[KeyId, int]:
    """Return of each key, or each of that tenant, that has a quota of running runs how many more of its runs may be executed."""
    quoted = _key_limits if of is None else _key_limits.where(access_keys.c.tenant == of)
    limits, accounts = {}, {}
    for key_id, tenant, limit in connection.execute(quoted):
        limits[KeyId(key_id)] = limit
        accounts[key_held_account(RUNNING_RUNS, KeyId(key_id), TenantId(tenant))] = KeyId(key_id)
    if accounts:
        for account, used in connection.execute(
            select(budgets.c.account, budgets.c.used).where(budgets.c.account.in_(accounts))
        ):
            limits[accounts[account]] -= used
    return limits


def free_places_of(counts_for: str, of_keys: Mapping[KeyId, int]) -> int | None:
    """Return how many more of the runs that count for these keys may be executed; None: any number."""
    return min((max(0, of_keys[each]) for each in keys_of(counts_for) if each in of_keys), default=None)


def free_places(connection: Connection, of: TenantId | None = None) -> dict[TenantId, int]:
    """Return of each tenant with a quota of running runs, or of that one, how many more it may execute."""
    quoted = select(tenants.c.tenant, tenants.c.quotas).where(tenants.c.quotas.contains(RUNNING_RUNS))
    if of is not None:
        quoted = quoted.where(tenants.c.tenant == of)
    limits = {row.tenant: load(row.quotas)[RUNNING_RUNS] for row in connection.execute(quoted)}
    accounts = {held_account(RUNNING_RUNS, tenant): tenant for tenant in limits}
    if accounts:
        for account, used in connection.execute(
            select(budgets.c.account, budgets.c.used).where(budgets.c.account.in_(accounts))
        ):
            limits[accounts[account]] -= used
    return {tenant: max(0, free) for tenant, free in limits.items()}


def count_schedule(store: WorkingSet, schedule: Schedule, more: int) -> None:
    """Note that a schedule is made, or has ended."""
    if schedule.kind is not ScheduleKind.HEARTBEAT:
        count(store, schedule.agent.tenant, SCHEDULES, more)


def _number_of(connection: Connection, quota: str, asked: dict[str, str]) -> int:
    if quota in {MEMORIES, MEMORY_BYTES}:
        found = select(memories.c.agent, memories.c.documents).where(
            memories.c.agent >= asked["first"], memories.c.agent < asked["end"]
        )
        kept = {agent: documents_of(text) for agent, text in connection.execute(found)}
        if quota == MEMORY_BYTES:
            return sum(map(bytes_of, kept.values()))
        return sum(memories_of(_counted(connection, agent, each)) for agent, each in kept.items())
    return int(connection.execute(_NUMBERS[quota], asked).scalar_one())


def counted_memories(connection: Connection, row: MemoryRow) -> MemoryRow:
    """Return the documents of an agent with the numbers of their memories, also of those that an older version wrote, which says none."""
    documents = documents_of(row.documents)
    if all(each.memories is not None for each in documents.values()):
        return row
    return replace(row, documents=msgspec.json.encode(_counted(connection, row.agent, documents)).decode())


def _counted(
    connection: Connection, agent: str, documents: Mapping[str, StoredDocument]
) -> Mapping[str, StoredDocument]:
    """Return the documents of an agent with the numbers of their memories: those that nobody has counted have as many as headings, and
    this is noted.
    """
    found = dict(documents)
    for name, document in documents.items():
        if document.memories is None:
            parts = select(memory_parts.c.content).where(memory_parts.c.agent == agent, memory_parts.c.document == name)
            texts = connection.execute(parts.order_by(memory_parts.c.version)).scalars()
            headings = len(_HEADING.findall(b"".join(texts)))
            found[name] = replace(document, memories=0 if name == ACKNOWLEDGED else headings)
    if found != documents:
        text = msgspec.json.encode(found).decode()
        connection.execute(memories.update().where(memories.c.agent == agent).values(documents=text))
    return found


def documents_of(text: str) -> dict[str, StoredDocument]:
    """Return the documents of a memory from their column."""
    return msgspec.json.decode(text, type=dict[str, StoredDocument])


def bytes_of(documents: Mapping[str, StoredDocument]) -> int:
    """Return how much of the documents of a memory counts."""
    return sum(each.size for name, each in documents.items() if name != ACKNOWLEDGED)


def memories_of(documents: Mapping[str, StoredDocument]) -> int:
    """Return how many memories an agent has, as far as they were counted."""
    return sum(each.memories or 0 for name, each in documents.items() if name != ACKNOWLEDGED)


def count_anew(connection: Connection, dialect: Dialect, tenant: Tenant) -> None:
    """Set the accounts of a tenant to what there is now, all changes of the transaction being written."""
    first, end = tenant_range(tenant.tenant)
    asked = {"tenant": tenant.tenant, "first": first, "end": end}
    for quota in HELD:
        if quota in tenant.quotas.given:
            number = _number_of(connection, quota, asked)
            account = {"account": held_account(quota, tenant.tenant), "used": number, "reserved": 0, "alerted": 0}
            row = dialect.insert(budgets).values(account)
            connection.execute(row.on_conflict_do_update(index_elements=["account"], set_={"used": number}))
