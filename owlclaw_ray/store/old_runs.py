"""Queries of runs that are to be removed because they ended long ago, and of what they leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.ids import RunId, ScheduleId, TenantId
from owlclaw_ray.store.commands import OldRun, OldSchedule, OldTick
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


class SchedulePlace(Struct, frozen=True):
    """The place of a schedule in the order in which they are read."""

    agent: AgentRef
    created_at: datetime
    schedule_id: ScheduleId


class OldSchedulePage(Struct, frozen=True):
    """What may be removed of the ticks of some schedules, and of these. `after`: where to go on; None: there are no more."""

    ticks: tuple[OldTick, ...]
    """As many as were asked for at most."""
    over: tuple[OldSchedule, ...]
    """Schedules that were found to be over before the time asked for, and have no ticks."""
    found: tuple[OldSchedule, ...]
    """Schedules that are over, of which it is not noted yet."""
    after: SchedulePlace | None


class OldSchedules(Query[OldSchedulePage], frozen=True):
    """What is older than `before` of the ticks of the tenant's next `schedules` schedules after that one, and which of them are.

    Left out are ticks whose run is there, the last ones of schedules that go on, schedules made by a run that is there, and those of
    heartbeats, which say that an agent has one, or shall have none.
    """

    tenant: TenantId
    before: datetime
    after: SchedulePlace | None = None
    ticks: int = 500
    schedules: int = 100


class OldTexts(Query[Sequence[str]], frozen=True):
    """The hashes of the tenant's texts of prompts that were last stored before then, or nobody knows when: the next after that one."""

    tenant: TenantId
    before: datetime
    after: str = ""
    limit: int = 500


class NamedTextPage(Struct, frozen=True):
    """Hashes of texts. `after`: where to go on; None: there are no more."""

    hashes: AbstractSet[str]
    after: int | None


class NamedTexts(Query[NamedTextPage], frozen=True):
    """The hashes of the texts that the tenant's runs name which were accepted before then, of the next `limit` after that number."""

    tenant: TenantId
    before: datetime
    after: int = 0
    limit: int = 200


class SweepClocks(Struct, frozen=True):
    """What a store knows of the time. None: nothing."""

    database: datetime | None
    """The clock of a database that has one of its own."""
    swept: datetime | None
    """As of when things of the kind were removed last."""
    newest: datetime | None
    """When the newest run was accepted."""


class ClocksOfSweep(Query[SweepClocks], frozen=True):
    """What there is to judge a clock by before things of this kind are removed."""

    what: Kept
