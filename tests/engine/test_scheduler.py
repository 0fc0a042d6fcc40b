import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, Limits, ModelChoice
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, TickOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.engine.scheduler import Scheduler, plan_firing
from owlclaw_ray.errors import RuntimeUnavailableError, UnknownAgentError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.ports.store import AlreadyFired, CommandFailed, RunAccepted, ScheduleFired
from owlclaw_ray.testing.clock import ManualClock
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


class Schedules:
    """The store's schedules, as the engine sees them; firings of those in `refused` cannot be stored."""

    def __init__(self, *schedules):
        self.active = {schedule.schedule_id: schedule for schedule in schedules}
        self.refused = set()
        self.commands = []

    async def due_schedules(self, now, limit=500):
        due = [each for each in self.active.values() if each.next_fire_at is not None and each.next_fire_at <= now]
        return sorted(due, key=lambda each: each.next_fire_at)[:limit]

    async def next_due(self):
        return min((each.next_fire_at for each in self.active.values() if each.next_fire_at), default=None)

    async def apply(self, commands):
        self.commands += commands
        return [self._fire(command) for command in commands]

    def _fire(self, command):
        if command.run is not None and command.schedule_id in self.refused:
            return CommandFailed("no")
        schedule = self.active[command.schedule_id]
        if schedule.next_fire_at != command.expected_due:
            return AlreadyFired()
        self.active[command.schedule_id] = replace(schedule, next_fire_at=command.next_fire_at)
        return ScheduleFired(command.run and RunAccepted(command.run.run_id, 1, command.run.agent))


class Definitions:
    """One definition, unless another answer is wanted."""

    def __init__(self):
        self.answer = self.give

    async def get(self, name):
        return await self.answer(name)

    async def give(self, name):
        return AgentDefinition(name, "1", "", "", "", "", ModelChoice(("test",)), Limits(queued_runs=7))


async def unknown(name):
    raise UnknownAgentError(name)


async def unreadable(name):
    raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


async def never(name):
    await asyncio.Event().wait()


def scheduler_over(store, definitions=None, wake=None):
    woken = []

    async def note(agents):
        woken.extend(agents)

    made = Scheduler(
        store=store,
        wake=wake or note,
        next_fire=next_fire,
        definitions=definitions or Definitions(),
        clock=ManualClock(NOON),
    )
    return made, woken


async def test_one_schedule_that_cannot_be_planned_is_skipped_with_its_reason_and_holds_up_nobody():
    broken = replace(every_minute(NOON - DAY), cron_expression="nonsense")
    store = Schedules(broken, once(NOON))
    scheduler, woken = scheduler_over(store)

    assert await scheduler.tick() == 1
    assert await scheduler.tick() == 0

    [tick] = store.commands[0].ticks
    assert woken == [AgentRef.parse("watch")]
    assert (tick.outcome, tick.reason.partition(":")[0]) == (TickOutcome.SKIPPED, "it could not be planned")
    assert await store.next_due() == NOON + timedelta(hours=1)


async def test_a_firing_that_the_store_refuses_is_skipped_with_its_reason_and_tried_again_later():
    store = Schedules(once(NOON), every_minute(NOON))
    store.refused = {"sch_1"}
    scheduler, _ = scheduler_over(store)

    assert await scheduler.tick() == 1
    assert await scheduler.tick() == 0
    store.refused.clear()
    await scheduler._clock.advance(3_600)
    assert await scheduler.tick() == 2

    [refused, _, skipped] = store.commands[:3]
    assert refused.schedule_id == skipped.schedule_id == "sch_1"
    assert skipped.ticks[0].reason == "its firing could not be stored: no"


async def test_a_firing_respects_the_queue_limit_of_its_agents_definition_unless_it_is_the_only_one_of_its_schedule():
    store = Schedules(every_minute(NOON), once(NOON))
    scheduler, _ = scheduler_over(store)

    await scheduler.tick()

    assert [command.run.queue_limit for command in store.commands] == [7, None]


@pytest.mark.parametrize("failure", [unknown, unreadable])
async def test_schedules_fire_under_the_default_limits_where_the_definition_is_not_to_be_had(failure):
    definitions, store = Definitions(), Schedules(every_minute(NOON))
    scheduler, _ = scheduler_over(store, definitions)

    definitions.answer = failure
    await scheduler.tick()
    definitions.answer = never
    await scheduler._clock.advance(60)
    ticking = asyncio.create_task(scheduler.tick())
    await scheduler._clock.advance(3)

    assert await ticking == 1
    assert [command.run.queue_limit for command in store.commands] == [Limits().queued_runs] * 2


async def unreachable(agents):
    raise RuntimeUnavailableError("the Directory is being restarted")


@pytest.mark.parametrize("wake", [never, unreachable])
async def test_schedules_go_on_where_their_agents_cannot_be_woken(wake):
    store = Schedules(once(NOON), every_minute(NOON))
    scheduler, _ = scheduler_over(store, wake=wake)
    scheduler.start()

    for _ in range(20):
        await scheduler._clock.advance(10)
    await scheduler.stop()

    assert [command.schedule_id for command in store.commands] == ["sch_1", "sch_2", "sch_2", "sch_2", "sch_2"]
