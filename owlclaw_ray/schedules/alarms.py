"""Alarm engines: services elsewhere that keep alarms and ring for them (S1)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.ids import ScheduleId


class EngineAlarm(Struct, frozen=True):
    """An alarm that an engine keeps."""

    alarm_id: str
    schedule_id: ScheduleId
    at: datetime
    """As the engine keeps it, which may be less exact than what it was asked for."""


class AlarmEngine(Protocol):
    """Keeps alarms. Every call ends within a few seconds, whatever the engine does.

    All raise AlarmEngineUnavailableError, and then may or may not have had their effect: they are safe to repeat, because an alarm
    that is set twice rings twice, which does no harm.
    """

    async def alarms(self) -> Sequence[EngineAlarm]:
        """Return the alarms of this installation that are set and have not rung."""
        ...

    async def set(self, schedule_id: ScheduleId, at: datetime) -> str:
        """Have it ring for the schedule once, at that time or soon after; return the alarm's id."""
        ...

    async def remove(self, alarm_id: str) -> None:
        """See to it that it does not ring. One that is about to may still; one that is gone is fine."""
        ...
