"""schedule_once, schedule_cron, cancel_schedule."""

from __future__ import annotations

from datetime import timedelta

from owlclaw_ray.domain.schedule import Schedule, ScheduleRequest
from owlclaw_ray.errors import ScheduleError
from owlclaw_ray.ids import ScheduleId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.schedules.api import Schedules
from owlclaw_ray.schedules.cron import next_fire
from owlclaw_ray.schedules.timetable import new_schedule
from owlclaw_ray.store.commands import QuotaReached, TooManySchedules
from owlclaw_ray.tools.builtin.arguments import (
    CancelScheduleArguments,
    InvalidToolArgumentsError,
    ScheduleCronArguments,
    ScheduleOnceArguments,
)
from owlclaw_ray.tools.builtin.contract import BuiltInOutcome, Caller, LimitReachedError
from owlclaw_ray.tools.builtin.declarations import SCHEDULE_CRON, SCHEDULE_ONCE


class SchedulingTools:
    """The agent's own future. A repeated call finds the schedule of the first, whose times it returns."""

    def __init__(self, schedules: Schedules, clock: Clock) -> None:
        self._schedules = schedules
        self._clock = clock

    def schedule_once(self, arguments: ScheduleOnceArguments, caller: Caller) -> BuiltInOutcome:
        """Create a schedule that fires once after the delay; raises LimitReachedError."""
        delay = timedelta(seconds=arguments.delay_seconds)
        request = ScheduleRequest(arguments.focus, delay_seconds=arguments.delay_seconds)
        stored = self._create(SCHEDULE_ONCE, request, caller)
        return BuiltInOutcome(
            {
                "schedule_id": stored.schedule_id,
                "scheduled_at": (stored.next_fire_at or stored.created_at + delay).isoformat(),
                "focus": stored.focus,
            }
        )

    def schedule_cron(self, arguments: ScheduleCronArguments, caller: Caller) -> BuiltInOutcome:
        """Create a schedule that fires by the expression; raises InvalidToolArgumentsError and LimitReachedError."""
        request = ScheduleRequest(
            arguments.focus, cron_expression=arguments.cron_expression, timezone=arguments.timezone
        )
        stored = self._create(SCHEDULE_CRON, request, caller)
        after = next_fire(stored.cron_expression, stored.timezone, self._clock.now())
        return BuiltInOutcome(
            {
                "schedule_id": stored.schedule_id,
                "cron_expression": stored.cron_expression,
                "next_run_at": (stored.next_fire_at or after).isoformat(),
                "focus": stored.focus,
            }
        )

    def cancel_schedule(self, arguments: CancelScheduleArguments, caller: Caller) -> BuiltInOutcome:
        """Cancel a schedule of the caller's agent. That there is none to cancel is an answer, not an error."""
        outcome = self._schedules.cancel(caller.agent, ScheduleId(arguments.schedule_id), caller.run_id)
        return BuiltInOutcome(
            {"cancelled": outcome.cancelled, "schedule_id": outcome.schedule_id, "message": outcome.message},
        )

    def _create(self, tool: str, request: ScheduleRequest, caller: Caller) -> Schedule:
        try:
            schedule = new_schedule(
                request,
                schedule_id=ScheduleId(derived_id("sch", caller.idempotency_key)),
                agent=caller.agent,
                now=self._clock.now(),
                created_by_run=caller.run_id,
                submitters=caller.submitters,
            )
        except ScheduleError as error:
            raise InvalidToolArgumentsError(tool, [str(error)]) from None
        outcome = self._schedules.create(schedule, caller.active_schedules)
        if isinstance(outcome, TooManySchedules):
            raise LimitReachedError(
                f"you have {outcome.limit} active schedules already, which is the limit; end one with cancel_schedule first"
            )
        if isinstance(outcome, QuotaReached):
            raise LimitReachedError(f"{outcome.error(schedule.created_at)}; end one with cancel_schedule first")
        return outcome.schedule
