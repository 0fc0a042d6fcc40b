"""What tenants have of what quotas count, on the working set.

Each quota of HELD has an account with the number of what there is. Every commit that makes or ends some of it changes the number, if the
tenant has the quota; the commit that gives or changes quotas counts anew. Between the two stands a lock of the tenant, which whoever
changes what is counted shares with others, and whoever changes the tenant has alone: so none is left out, and none counted twice.
"""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import Connection, Select, bindparam, func, select

from owlclaw_ray.domain.quota import AGENTS, HELD, NO_QUOTAS, OPEN_RUNS, SCHEDULES, Quotas, held_account
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.commands import QuotaReached
from owlclaw_ray.store.sql.codec import agent_of, tenant_key
from owlclaw_ray.store.sql.dialects import Dialect
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import active_run, agents, budgets, open_schedule, runs, schedules
from owlclaw_ray.store.sql.working_set import WorkingSet

_NUMBERS: dict[str, Select[int]] = {
    OPEN_RUNS: select(func.count()).select_from(runs).where(runs.c.tenant == bindparam("tenant"), active_run),
    AGENTS: select(func.count()).select_from(agents).where(agents.c.tenant == bindparam("tenant")),
    SCHEDULES: select(func.count())
    .select_from(schedules)
    .where(
        schedules.c.agent >= bindparam("first"),
        schedules.c.agent < bindparam("beyond"),
        open_schedule,
        schedules.c.kind != ScheduleKind.HEARTBEAT.value,
    ),
}


class AccountsInUse(Struct, frozen=True):
    """Which accounts of tenants a batch may change."""

    runs: bool
    agents: bool
    schedules: bool

    def of(self, quotas: Quotas) -> list[str]:
        """Return the quotas of HELD that a tenant has and the batch may change the accounts of."""
        changed = {OPEN_RUNS: self.runs, AGENTS: self.agents, SCHEDULES: self.schedules}
        return [name for name in quotas.given if changed.get(name)]


def accounts_in_use(needs: RowNeeds, store: WorkingSet) -> AccountsInUse:
    """Return which accounts of tenants a batch may change."""
    return AccountsInUse(
        runs=bool(needs.submissions or needs.finished),
        agents=bool(store.new_agents),
        schedules=bool(needs.schedules),
    )


def reached(store: WorkingSet, tenant: TenantId, quota: str, more: int = 1) -> QuotaReached | None:
    """Return the quota if so much more would exceed it."""
    limit = store.quotas.get(tenant, NO_QUOTAS).given.get(quota)
    if limit is not None and store.accounts[held_account(quota, tenant)].used + more > limit:
        return QuotaReached(quota, limit)
    return None


def count(store: WorkingSet, tenant: TenantId, quota: str, more: int) -> None:
    """Note that there is so much more; less, if it is negative."""
    if more and quota in store.quotas.get(tenant, NO_QUOTAS).given:
        store.charge({held_account(quota, tenant): more})


def no_room_for(store: WorkingSet, agent: str) -> QuotaReached | None:
    """Return the quota if an agent is new, and one more than its tenant may have."""
    return reached(store, agent_of(agent).tenant, AGENTS) if agent in store.new_agents else None


def keep(store: WorkingSet, agent: str) -> None:
    """Have an agent stay; a new one that nothing keeps does not, if agents of its tenant are counted."""
    if agent in store.new_agents:
        store.new_agents.remove(agent)
        count(store, agent_of(agent).tenant, AGENTS, 1)


def count_schedule(store: WorkingSet, schedule: Schedule, more: int) -> None:
    """Note that a schedule is made, or has ended."""
    if schedule.kind is not ScheduleKind.HEARTBEAT:
        count(store, schedule.agent.tenant, SCHEDULES, more)


def count_anew(connection: Connection, dialect: Dialect, tenant: Tenant) -> None:
    """Set the accounts of a tenant to what there is now, all changes of the transaction being written."""
    first = tenant_key(tenant.tenant, "")
    asked = {"tenant": tenant.tenant, "first": first, "beyond": first[:-1] + chr(ord(first[-1]) + 1)}
    for quota in HELD:
        if quota in tenant.quotas.given:
            number = connection.execute(_NUMBERS[quota], asked).scalar_one()
            account = {"account": held_account(quota, tenant.tenant), "used": number, "reserved": 0, "alerted": 0}
            row = dialect.insert(budgets).values(account)
            connection.execute(row.on_conflict_do_update(index_elements=["account"], set_={"used": number}))
