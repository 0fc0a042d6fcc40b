"""Commands by which old ticks, schedules that are over and unused texts are removed, and how far removing has come; their outcome."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.ids import FiringId, ScheduleId, TenantId


class OldTick(Struct, frozen=True):
    """A tick that may be removed. `until`: the last due time that it accounts for."""

    firing_id: FiringId
    schedule_id: ScheduleId
    agent: AgentRef
    until: datetime


class ForgetTicks(Struct, frozen=True):
    """Remove these ticks, and note at their schedules up to which due time some are gone: no backfill runs those. Outcome: Swept."""

    tenant: TenantId
    ticks: tuple[OldTick, ...]


class OldSchedule(Struct, frozen=True):
    """A schedule that is over."""

    schedule_id: ScheduleId
    agent: AgentRef


class ForgetSchedules(Struct, frozen=True):
    """Remove these schedules, unless they are open or have ticks; and note that the ones `found` were found to be over at that time,
    unless that is noted. Outcome: Swept.
    """

    tenant: TenantId
    schedules: tuple[OldSchedule, ...]
    found: tuple[OldSchedule, ...]
    at: datetime


class ForgetTexts(Struct, frozen=True):
    """Remove the texts of prompts with the hashes `unused` that nobody stored again since `before`; those in `used` count as stored
    now, if they were last stored before then, or it is not known when. Outcome: Swept.
    """

    tenant: TenantId
    unused: tuple[str, ...]
    used: tuple[str, ...]
    before: datetime


class NoteSweep(Struct, frozen=True):
    """Note that things of this kind were removed as of that moment; an earlier one changes nothing. Outcome: Swept."""

    what: Kept
    at: datetime


class Swept(Struct, frozen=True):
    """It is done."""
