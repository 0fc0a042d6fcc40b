"""From when on the things of each tenant are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import TenantPage

_PAGE = 1_000


async def limits_of_age(
    store: QueryStore, what: Kept, general: timedelta | None, now: datetime
) -> AsyncIterator[tuple[TenantId, datetime]]:
    """Yield the tenants that do not keep it for ever, the default one first, each with the moment before which its things are too old.

    `general` is how long it is kept for those who say nothing themselves; None: for ever. What is being deleted anyway is left out.
    Raises StoreUnavailableError.
    """
    if general is not None:
        yield DEFAULT_TENANT, now - general
    after = ""
    while page := await store.read(TenantPage(after, _PAGE)):
        for each in page:
            keep = each.retention.keep(what, general)
            if keep is not None and not each.status.closed:
                yield each.tenant, now - keep
        after = page[-1].tenant
