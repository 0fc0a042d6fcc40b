"""Queries of runs that are to be removed because they ended long ago."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.commands import OldRun
from owlclaw_ray.store.queries import Query


class OldRunPage(Struct, frozen=True):
    """Runs that may be removed, in the order of acceptance. `after`: where to go on; None: there are no more."""

    runs: tuple[OldRun, ...]
    after: int | None


class OldRuns(Query[OldRunPage], frozen=True):
    """Those of the tenant's next `limit` runs after the one with the number `after` that ended before then, and that nothing stands on.

    Left out are the tenant's newest run, runs that an open run waits for or was started by a call of, those of the last times of
    schedules that go on, and those of which somebody is still to be told.
    """

    tenant: TenantId
    before: datetime
    after: int = 0
    limit: int = 200


class ParentsOfOpenRuns(Query[AbstractSet[RunId]], frozen=True):
    """The runs of the tenant, over or not, that started others which are not over."""

    tenant: TenantId
