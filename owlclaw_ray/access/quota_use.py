"""What of quotas is used at the moment, read from their accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.budget import BudgetUse, minute_of
from owlclaw_ray.domain.quota import (
    HELD,
    MODEL_TOKENS_A_MINUTE,
    STARTS_A_MINUTE,
    QuotaUse,
    held_account,
    model_tokens_budget,
    starts_account,
)
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.api import QueryStore, Store
from owlclaw_ray.store.queries import BudgetUses, TenantPage

MOST_TENANTS = 200
"""Whose use is told at once."""


class TenantQuotaUse(Struct, frozen=True):
    """What a tenant uses of one of its quotas."""

    tenant: TenantId
    quota: str
    used: int
    limit: int


def accounts_of(tenant: Tenant, now: datetime) -> Mapping[str, str]:
    """Return the accounts of the quotas that the tenant has, by their names."""
    quotas = tenant.quotas
    accounts = {name: held_account(name, tenant.tenant) for name in HELD if name in quotas.given}
    if quotas.starts_a_minute is not None:
        accounts[STARTS_A_MINUTE] = starts_account(tenant.tenant, minute_of(now))
    if (budget := model_tokens_budget(quotas)) is not None:
        accounts[MODEL_TOKENS_A_MINUTE] = budget.account(tenant.tenant, "", budget.window(now))
    return accounts


async def quota_uses(store: QueryStore, now: datetime) -> Sequence[TenantQuotaUse]:
    """Return what tenants use of the quotas that they have, of the first MOST_TENANTS tenants by id. Raises StoreUnavailableError."""
    tenants = await store.read(TenantPage("", MOST_TENANTS))
    accounts = {each.tenant: accounts_of(each, now) for each in tenants}
    asked = [account for of_tenant in accounts.values() for account in of_tenant.values()]
    found = {each.account: each for each in (await store.read(BudgetUses(tuple(asked))) if asked else ())}
    return [
        TenantQuotaUse(each.tenant, quota, use.used + use.reserved, each.quotas.given[quota])
        for each in tenants
        for quota, account in accounts[each.tenant].items()
        for use in [found.get(account, BudgetUse(account, 0, 0))]
    ]


async def quota_use(store: Store, accounts: Mapping[str, str]) -> QuotaUse:
    """Return what is used of these quotas, which are given with their accounts. Raises StoreUnavailableError."""
    if not accounts:
        return QuotaUse()
    found = {each.account: each for each in await store.read(BudgetUses(tuple(accounts.values())))}
    uses = {name: found.get(account, BudgetUse(account, 0, 0)) for name, account in accounts.items()}
    return QuotaUse(**{name: each.used + each.reserved for name, each in uses.items()})
