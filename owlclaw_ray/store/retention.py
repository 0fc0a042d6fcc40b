"""From when on the things of each tenant are kept, and by which clock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.api import CommandStore, QueryStore
from owlclaw_ray.store.commands import NoteSweep, Swept
from owlclaw_ray.store.old_runs import ClocksOfSweep
from owlclaw_ray.store.queries import TenantPage

_PAGE = 1_000
_STEP = timedelta(days=1)
"""By how much a sweep goes further than the one before it at most."""

logger = logging.getLogger(__name__)


async def moment_of_sweep(store: QueryStore, what: Kept, now: datetime) -> datetime:
    """Return the moment as of which things of this kind may be removed: `now`, or an earlier one if that clock may be wrong.

    It is not after what the database's clock says, nor more than a day after the last such moment that was noted (NoteSweep); if none
    was, a day after the newest run was accepted. So a clock that is far ahead removes a day's worth with each sweep, not everything at
    once, and the log says so. Raises StoreUnavailableError.
    """
    clocks = await store.read(ClocksOfSweep(what))
    moment = now if clocks.database is None else min(now, clocks.database)
    last = clocks.swept or clocks.newest
    if last is not None and last + _STEP < moment:
        logger.warning(
            "the clock says %s, but %s were last removed as of %s: this time it is done as of a day after that, so that a wrong clock "
            "does not remove everything; if the clock is right, the next times make it good",
            *(moment, what.name.lower(), last),
        )
        return last + _STEP
    return moment


async def note_sweep(store: CommandStore, what: Kept, moment: datetime) -> None:
    """Note that things of this kind were removed as of that moment, for all tenants. Raises StoreUnavailableError."""
    (outcome,) = await store.apply([NoteSweep(what, moment)])
    if not isinstance(outcome, Swept):
        raise StoreUnavailableError(f"it was not noted that {what.name.lower()} were removed: {outcome}")


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
