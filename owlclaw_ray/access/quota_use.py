"""What of quotas is used at the moment, read from their accounts."""

from __future__ import annotations

from collections.abc import Mapping

from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.quota import QuotaUse
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.queries import BudgetUses


async def quota_use(store: Store, accounts: Mapping[str, str]) -> QuotaUse:
    """Return what is used of these quotas, which are given with their accounts. Raises StoreUnavailableError."""
    if not accounts:
        return QuotaUse()
    found = {each.account: each for each in await store.read(BudgetUses(tuple(accounts.values())))}
    uses = {name: found.get(account, BudgetUse(account, 0, 0)) for name, account in accounts.items()}
    return QuotaUse(**{name: each.used + each.reserved for name, each in uses.items()})
