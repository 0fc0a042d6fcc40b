"""What is left of runs that were removed: ticks of schedules, schedules that are over, texts of prompts."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ForgetSchedules, ForgetTexts, ForgetTicks, Swept
from owlclaw_ray.store.old_runs import NamedTexts, OldSchedules, OldTexts

_TEXTS_LONGER = timedelta(days=7)
"""For how much longer than runs a text is kept after it was stored last: much longer than hosts go without storing again what they name
(`DurableStore`) and than clocks differ. So all entries that name a text which is so old are of runs that were accepted before."""

logger = logging.getLogger(__name__)


async def remove_old_schedules(store: Store, tenant: TenantId, before: datetime, now: datetime) -> None:
    """Remove the tenant's ticks from before then, and the schedules that were found to be over before then and have none any more.

    See `OldSchedules` for what stays. Raises StoreUnavailableError.
    """
    after, ticks, schedules = None, 0, 0
    while True:
        page = await store.read(OldSchedules(tenant, before, after))
        if page.ticks:
            await _apply(store, ForgetTicks(tenant, page.ticks))
            ticks += len(page.ticks)
            continue
        if page.over or page.found:
            await _apply(store, ForgetSchedules(tenant, page.over, page.found, now))
            schedules += len(page.over)
        if page.after is None:
            break
        after = page.after
    if ticks or schedules:
        logger.info(
            "%d ticks and %d schedules of tenant %s from before %s were removed", ticks, schedules, tenant, before
        )


async def remove_unused_texts(store: Store, tenant: TenantId, before: datetime) -> None:
    """Remove the tenant's texts of prompts that nobody stored for as long as runs are kept and a week, and that no run names.

    What a run stores while this looks is newer than that: a text whose removal was decided stays if it was stored again, and a host
    that does not store it again did so within the hour. Raises StoreUnavailableError.
    """
    unused_since, after, removed = before - _TEXTS_LONGER, "", 0
    named: set[str] | None = None
    while old := await store.read(OldTexts(tenant, unused_since, after)):
        if named is None:
            named = await _named_texts(store, tenant, before)
        used = tuple(each for each in old if each in named)
        unused = tuple(each for each in old if each not in named)
        await _apply(store, ForgetTexts(tenant, unused, used, unused_since))
        removed, after = removed + len(unused), old[-1]
    if removed:
        logger.info("%d texts of prompts of tenant %s that no run names were removed", removed, tenant)


async def _named_texts(store: Store, tenant: TenantId, before: datetime) -> set[str]:
    """Return the hashes of all texts that runs name which are so old that they were accepted before then."""
    named, after = set[str](), 0
    while True:
        page = await store.read(NamedTexts(tenant, before, after))
        named |= page.hashes
        if page.after is None:
            return named
        after = page.after


async def _apply(store: Store, command: ForgetTicks | ForgetSchedules | ForgetTexts) -> None:
    (outcome,) = await store.apply([command])
    if not isinstance(outcome, Swept):
        raise StoreUnavailableError(str(outcome))
