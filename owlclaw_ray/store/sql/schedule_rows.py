"""Schedules and ticks as rows."""

from __future__ import annotations

from typing import Any

from owlclaw_ray.domain.schedule import (
    OverlapPolicy,
    Schedule,
    ScheduleKind,
    ScheduleStatus,
    Tick,
    TickOutcome,
)
from owlclaw_ray.store.sql.codec import (
    agent_key,
    agent_of,
    dump,
    from_micros,
    load,
    optional_micros,
    optional_time,
    to_micros,
)
from owlclaw_ray.store.sql.schema import schedules, ticks

SCHEDULE_COLUMNS = tuple(schedules.c)
TICK_COLUMNS = tuple(ticks.c)


def schedule_row(schedule: Schedule) -> tuple[Any, ...]:
    """Return the values of SCHEDULE_COLUMNS."""
    rule = {
        "focus": schedule.focus,
        "cron_expression": schedule.cron_expression,
        "timezone": schedule.timezone,
        "interval_seconds": schedule.interval_seconds,
        "jitter_seconds": schedule.jitter_seconds,
        "overlap": schedule.overlap.value,
        "catch_up_seconds": schedule.catch_up_seconds,
        "task_type": schedule.task_type,
    }
    return (
        schedule.schedule_id,
        agent_key(schedule.agent),
        schedule.kind.value,
        dump(rule),
        to_micros(schedule.created_at),
        schedule.created_by_run,
        schedule.status.value,
        optional_micros(schedule.next_fire_at),
        optional_micros(schedule.paused_until),
    )


def schedule_of(row: Any) -> Schedule:
    """Return the schedule of a row of SCHEDULE_COLUMNS; what its rule does not say is as it was before it could be said."""
    rule = load(row.rule)
    return Schedule(
        schedule_id=row.schedule_id,
        agent=agent_of(row.agent),
        kind=ScheduleKind(row.kind),
        focus=rule["focus"],
        created_at=from_micros(row.created_at),
        next_fire_at=optional_time(row.next_fire_at),
        cron_expression=rule["cron_expression"],
        timezone=rule["timezone"],
        status=ScheduleStatus(row.status),
        created_by_run=row.created_by_run,
        interval_seconds=rule.get("interval_seconds", 0),
        jitter_seconds=rule.get("jitter_seconds", 0),
        overlap=OverlapPolicy(rule["overlap"]) if "overlap" in rule else OverlapPolicy.ENQUEUE,
        catch_up_seconds=rule.get("catch_up_seconds"),
        task_type=rule.get("task_type", ""),
        paused_until=optional_time(row.paused_until),
    )


def tick_row(tick: Tick) -> tuple[Any, ...]:
    """Return the values of TICK_COLUMNS."""
    return (
        tick.firing_id,
        tick.schedule_id,
        to_micros(tick.due_at),
        tick.outcome.value,
        to_micros(tick.at),
        tick.run_id,
        dump(tick.reason),
        optional_micros(tick.last_due_at),
        tick.count,
    )


def tick_of(row: Any) -> Tick:
    """Return the tick of a row of TICK_COLUMNS."""
    return Tick(
        firing_id=row.firing_id,
        schedule_id=row.schedule_id,
        due_at=from_micros(row.due_at),
        outcome=TickOutcome(row.outcome),
        at=from_micros(row.at),
        run_id=row.run_id,
        reason=load(row.reason),
        last_due_at=optional_time(row.last_due_at),
        count=row.count,
    )
