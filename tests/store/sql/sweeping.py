"""Stores whose clocks say what a test says."""

from __future__ import annotations

from sqlalchemy import update

from owlclaw_ray.store.old_runs import ClocksOfSweep, SweepClocks
from owlclaw_ray.store.sql.codec import to_micros
from owlclaw_ray.store.sql.schema import blobs, schedules


class SweptAt:
    """A store of which things were removed at that moment already, so that removing them as of then is nothing unusual."""

    def __init__(self, store, at):
        self._store, self._at, self.apply = store, at, store.apply

    async def read(self, query):
        if isinstance(query, ClocksOfSweep):
            return SweepClocks(None, self._at, None)
        return await self._store.read(query)


async def texts_stored_at(store, at):
    """Have all texts count as stored last at that time; None: when nobody knows."""
    await store._database.write(lambda connection: connection.execute(update(blobs).values(used_at=_micros(at))))


async def found_over_at(store, at):
    """Have all schedules count as found to be over at that time, if they are; None: when nobody noted."""
    await store._database.write(lambda found: found.execute(update(schedules).values(found_over_at=_micros(at))))


def _micros(at):
    return None if at is None else to_micros(at)
