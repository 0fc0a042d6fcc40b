"""Where callbacks of each tenant may go."""

from __future__ import annotations

from msgspec.structs import replace

from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import TenantById


class TenantCallbackRules:
    """The rules of the settings, with the networks of each tenant that has its own in the place of theirs."""

    def __init__(self, general: CallbackRules, store: QueryStore) -> None:
        self._general, self._store = general, store

    async def of(self, tenant: TenantId) -> CallbackRules:
        """Return the rules as the tenant's row has them now. Raises StoreUnavailableError: the general ones may allow more."""
        if tenant == DEFAULT_TENANT:
            return self._general
        found = await self._store.read(TenantById(tenant))
        if found is None or found.callback_networks is None:
            return self._general
        return replace(self._general, allowed_networks=found.callback_networks)

    async def problem(self, tenant: TenantId, url: str) -> str:
        """Return why no callback of the tenant can go to the address, as far as the address alone says it, or nothing.

        The store is read only for addresses that are not public. Raises StoreUnavailableError.
        """
        return (await self.of(tenant)).problem(url) if CallbackRules().problem(url) else ""
