"""Schedules, as the built-in tools use them."""

from __future__ import annotations

from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import Schedule
from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.ports.store import ScheduleCancelled, ScheduleCreated, TooManySchedules


class Schedules(Protocol):
    """Durable schedules. Synchronous: it is called from inside a tool worker."""

    def create(self, schedule: Schedule, limit: int) -> ScheduleCreated | TooManySchedules:
        """Store the schedule unless its id is there already (the first is returned) or the agent has `limit` active ones."""
        ...

    def cancel(self, agent: AgentRef, schedule_id: ScheduleId, caller_run: RunId) -> ScheduleCancelled:
        """Cancel the agent's own schedule, and the runs of its firings that are not over, except the caller's own run.

        See ScheduleCancelled for the cases.
        """
        ...
