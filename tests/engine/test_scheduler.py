from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, TickOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.engine.scheduler import plan_firing
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.tools.cron import next_fire

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def once(due: datetime) -> Schedule:
    return Schedule(ScheduleId("sch_1"), AgentRef.parse("watch"), ScheduleKind.ONCE, "look again", NOON - DAY, due)


def every_minute(due: datetime) -> Schedule:
    return Schedule(
        ScheduleId("sch_2"),
        AgentRef.parse("watch"),
        ScheduleKind.CRON,
        "look again",
        NOON - DAY,
        due,
        cron_expression="* * * * *",
    )


def test_a_schedule_that_is_due_fires_with_its_focus():
    plan = plan_firing(once(NOON), NOON + timedelta(seconds=1), next_fire, DAY)

    assert [tick.outcome for tick in plan.ticks] == [TickOutcome.FIRED]
    assert plan.next_fire_at is None
    assert plan.run is not None
    assert plan.run.trigger.kind is TriggerKind.SCHEDULE_ONCE
    assert plan.run.trigger.focus == "look again"


def test_a_one_time_schedule_fires_however_late_it_is():
    plan = plan_firing(once(NOON), NOON + timedelta(days=40), next_fire, DAY)

    assert [tick.outcome for tick in plan.ticks] == [TickOutcome.CAUGHT_UP]
    assert plan.run is not None


def test_of_missed_cron_times_the_last_fires_and_the_others_are_accounted_for():
    plan = plan_firing(every_minute(NOON), NOON + timedelta(minutes=10, seconds=30), next_fire, DAY)

    assert [(tick.outcome, tick.count) for tick in plan.ticks] == [
        (TickOutcome.SKIPPED, 10),
        (TickOutcome.CAUGHT_UP, 1),
    ]
    assert plan.next_fire_at == NOON + timedelta(minutes=11)


def test_cron_times_older_than_the_catch_up_window_are_skipped():
    daily = Schedule(
        ScheduleId("sch_3"),
        AgentRef.parse("watch"),
        ScheduleKind.CRON,
        "daily",
        NOON - 3 * DAY,
        NOON,
        cron_expression="0 12 * * *",
    )

    plan = plan_firing(daily, NOON + timedelta(hours=5), next_fire, timedelta(hours=1))

    assert [tick.outcome for tick in plan.ticks] == [TickOutcome.SKIPPED]
    assert plan.run is None
    assert plan.next_fire_at == NOON + DAY


def test_deciding_twice_is_deciding_once():
    late = NOON + timedelta(minutes=3)

    assert plan_firing(every_minute(NOON), late, next_fire, DAY) == plan_firing(
        every_minute(NOON), late, next_fire, DAY
    )


@settings(max_examples=30)
@given(st.integers(0, 600))
def test_every_due_time_ends_in_exactly_one_tick(minutes_late):
    plan = plan_firing(every_minute(NOON), NOON + timedelta(minutes=minutes_late), next_fire, DAY)

    assert sum(tick.count for tick in plan.ticks) == minutes_late + 1
    assert plan.next_fire_at == NOON + timedelta(minutes=minutes_late + 1)
