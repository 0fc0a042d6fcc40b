"""The retention of runs and their journals, and of what they leave behind."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.errors import OwlClawError, StoreUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.runs.leftovers import remove_old_schedules, remove_unused_texts
from owlclaw_ray.runs.submissions import IDEMPOTENCY_WINDOW
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ForgetEntries, ForgetRuns, OldRun, RunsForgotten
from owlclaw_ray.store.old_runs import OldRuns, ParentsOfOpenRuns
from owlclaw_ray.store.retention import limits_of_age, moment_of_sweep, note_sweep

_CLOCKS_DIFFER = timedelta(hours=1)
_AT_LEAST = IDEMPOTENCY_WINDOW + _CLOCKS_DIFFER
"""How long every run is kept: as long as a trigger that is repeated is answered with it."""
_RUNS, _ENTRIES, _TERMS = 100, 500, 2_000
"""What one transaction removes at most."""

logger = logging.getLogger(__name__)


class RunExpiry:
    """Removes runs that ended longer ago than their tenant keeps them, with what is theirs alone, in small transactions; then what they
    leave behind: ticks of schedules, schedules that are over, and texts of prompts that no run names any more.

    Whatever is killed meanwhile, the next tick, of whichever process, begins with what is left. What something still stands on stays
    until the first tick after that is over, see `OldRuns`. `keep` is for tenants that say nothing of their own; None: for ever.
    """

    def __init__(self, store: Store, keep: timedelta | None, clock: Clock) -> None:
        self._store, self._keep, self._clock = store, keep, clock

    async def tick(self) -> int:
        """Remove what has expired; return how many runs that was. Raises StoreUnavailableError when all tenants were gone through, if it
        failed for one.
        """
        total, failed = 0, ""
        now = await moment_of_sweep(self._store, Kept.RUNS, self._clock.now())
        async for tenant, limit in limits_of_age(self._store, Kept.RUNS, self._keep, now):
            before = min(limit, now - _AT_LEAST)
            try:
                removed = await self._remove(tenant, before, now - _CLOCKS_DIFFER)
                await remove_old_schedules(self._store, tenant, before, self._clock.now())
                await remove_unused_texts(self._store, tenant, before)
            except OwlClawError as error:
                failed = f"expired runs of tenant {tenant} were not removed: {error}"
                logger.warning("%s", failed)
                continue
            if removed:
                logger.info("%d runs of tenant %s that ended before %s were removed", removed, tenant, before)
            total += removed
        await note_sweep(self._store, Kept.RUNS, now)
        if failed:
            raise StoreUnavailableError(failed)
        return total

    async def _remove(self, tenant: TenantId, before: datetime, expired: datetime) -> int:
        # Who ended so long ago starts no others any more, so that these are all parents that there will be.
        parents = await self._store.read(ParentsOfOpenRuns(tenant))
        removed, after = 0, 0
        while True:
            page = await self._store.read(OldRuns(tenant, before, after))
            for some in _in_parts(each for each in page.runs if each.run_id not in parents):
                for up_to in range(_ENTRIES, some[0].entries, _ENTRIES):
                    await self._apply(ForgetEntries(tenant, some[0], up_to, before))
                removed += await self._apply(ForgetRuns(tenant, some, before, expired))
            if page.after is None:
                return removed
            after = page.after

    async def _apply(self, command: ForgetRuns | ForgetEntries) -> int:
        (outcome,) = await self._store.apply([command])
        if not isinstance(outcome, RunsForgotten):
            raise StoreUnavailableError(str(outcome))
        return outcome.runs


def _in_parts(runs: Iterable[OldRun]) -> Iterator[tuple[OldRun, ...]]:
    """Yield them by as many as one transaction removes; one with more entries or words than that is alone."""
    part, entries, terms = list[OldRun](), 0, 0
    for run in runs:
        entries, terms = entries + run.entries, terms + len(run.terms)
        if part and (len(part) == _RUNS or entries > _ENTRIES or terms > _TERMS):
            yield tuple(part)
            part, entries, terms = [], run.entries, len(run.terms)
        part.append(run)
    if part:
        yield tuple(part)
