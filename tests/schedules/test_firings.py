import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, Limits, ModelChoice
from owlclaw_ray.domain.schedule import OverlapPolicy, Schedule, ScheduleKind, ScheduleStatus, TickOutcome
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.errors import RuntimeUnavailableError, UnknownAgentError
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.firings import ScheduleFirer, due_times_between, plan_firing
from owlclaw_ray.schedules.scheduler import Scheduler
from owlclaw_ray.store.commands import AlreadyFired, CommandFailed, RunAccepted, ScheduleFired
from owlclaw_ray.store.queries import DueSchedules, NextDueTime, SchedulesByIds
from owlclaw_ray.testing.clock import ManualClock

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
    plan = plan_firing(once(NOON), NOON + timedelta(seconds=1), DAY)

    assert [tick.outcome for tick in plan.ticks] == [TickOutcome.FIRED]
    assert plan.next_fire_at is None
    assert plan.run is not None
    assert plan.run.trigger.kind is TriggerKind.SCHEDULE_ONCE
    assert plan.run.trigger.focus == "look again"


def test_a_run_of_a_schedule_is_of_the_schedules_type_of_task():
    for schedule in (once(NOON), every_minute(NOON)):
        plan = plan_firing(replace(schedule, task_type="summary"), NOON, DAY)

        assert plan.run is not None
        assert plan.run.trigger.task_type == "summary"


def test_a_one_time_schedule_fires_however_late_it_is():
    plan = plan_firing(once(NOON), NOON + timedelta(days=40), DAY)

    assert [tick.outcome for tick in plan.ticks] == [TickOutcome.CAUGHT_UP]
    assert plan.run is not None


def test_of_missed_cron_times_the_last_fires_and_the_others_are_accounted_for():
    plan = plan_firing(every_minute(NOON), NOON + timedelta(minutes=10, seconds=30), DAY)

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

    plan = plan_firing(daily, NOON + timedelta(hours=5), timedelta(hours=1))

    assert [tick.outcome for tick in plan.ticks] == [TickOutcome.SKIPPED]
    assert plan.run is None
    assert plan.next_fire_at == NOON + DAY


def every(seconds, due, **changes):
    schedule = Schedule(
        ScheduleId("sch_4"), AgentRef.parse("watch"), ScheduleKind.INTERVAL, "look", due, due, interval_seconds=seconds
    )
    return replace(schedule, **changes)


def counts(plan):
    return [(tick.outcome, tick.reason.partition(" ")[0], tick.count) for tick in plan.ticks]


def test_an_interval_counts_what_passed_however_long_nobody_looked():
    plan = plan_firing(every(60, NOON), NOON + timedelta(days=3_650), DAY)

    assert counts(plan) == [(TickOutcome.SKIPPED, "superseded", 3_650 * 1_440), (TickOutcome.FIRED, "", 1)]
    assert plan.next_fire_at == NOON + timedelta(days=3_650, minutes=1)


def test_times_that_passed_during_a_pause_are_skipped_as_such_and_the_last_after_it_fires():
    for schedule in (every(60, NOON), every_minute(NOON)):
        resumed = replace(schedule, paused_until=NOON + timedelta(minutes=3))

        plan = plan_firing(resumed, NOON + timedelta(minutes=5), DAY)
        quiet = plan_firing(
            replace(resumed, paused_until=NOON + timedelta(minutes=6)),
            NOON + timedelta(minutes=5, seconds=1),
            DAY,
        )

        assert counts(plan) == [
            (TickOutcome.SKIPPED, "the", 3),
            (TickOutcome.SKIPPED, "superseded", 2),
            (TickOutcome.FIRED, "", 1),
        ]
        assert counts(quiet) == [(TickOutcome.SKIPPED, "the", 6)]
        assert (quiet.run, quiet.next_fire_at) == (None, NOON + timedelta(minutes=6))


def test_a_one_time_schedule_that_was_paused_at_its_time_fires_when_it_goes_on():
    resumed = replace(once(NOON), paused_until=NOON + DAY)

    assert counts(plan_firing(resumed, NOON + DAY, DAY)) == [(TickOutcome.CAUGHT_UP, "", 1)]


def test_a_window_of_its_own_goes_before_the_general_one_and_holds_for_a_single_time_too():
    for schedule in (once(NOON), every(3_600, NOON)):
        late = NOON + timedelta(minutes=9)
        strict, lenient = (replace(schedule, catch_up_seconds=seconds) for seconds in (60, 600))

        assert counts(plan_firing(strict, late, DAY)) == [(TickOutcome.SKIPPED, "older", 1)]
        assert counts(plan_firing(lenient, late, timedelta(0))) == [(TickOutcome.CAUGHT_UP, "", 1)]


def test_no_window_is_so_small_that_a_time_which_fires_at_once_would_be_too_late():
    punctual = replace(every(60, NOON), catch_up_seconds=0)

    assert counts(plan_firing(punctual, NOON + timedelta(seconds=2), DAY)) == [(TickOutcome.FIRED, "", 1)]


def test_jitter_puts_every_time_off_by_the_same_and_spreads_schedules():
    schedules = [replace(every(60, NOON), schedule_id=ScheduleId(f"sch_{at}"), jitter_seconds=30) for at in range(300)]
    delays = [schedule.delay for schedule in schedules]

    plan = plan_firing(replace(schedules[0], next_fire_at=NOON + delays[0]), NOON + delays[0], DAY)

    assert all(timedelta(0) <= delay < timedelta(seconds=30) for delay in delays)
    assert max(delays) - min(delays) > timedelta(seconds=25)
    assert [(tick.due_at, tick.outcome) for tick in plan.ticks] == [(NOON, TickOutcome.FIRED)]
    assert plan.next_fire_at == NOON + timedelta(minutes=1) + delays[0]


def test_past_due_times_are_those_that_the_schedule_would_have_had():
    since, until = NOON - timedelta(minutes=3), NOON
    steady = every(60, NOON + timedelta(seconds=20))

    assert due_times_between(every_minute(NOON), since, until, 9) == [
        NOON - timedelta(minutes=minutes) for minutes in (3, 2, 1, 0)
    ]
    assert due_times_between(steady, since, until, 2) == [
        NOON - timedelta(minutes=2, seconds=40),
        NOON - timedelta(minutes=1, seconds=40),
    ]


def test_deciding_twice_is_deciding_once():
    late = NOON + timedelta(minutes=3)

    assert plan_firing(every_minute(NOON), late, DAY) == plan_firing(every_minute(NOON), late, DAY)


moments = st.integers(0, 3 * 86_400)


@given(
    schedule=st.builds(
        every,
        st.sampled_from([60, 61, 3_600]),
        st.just(NOON),
        kind=st.sampled_from([ScheduleKind.INTERVAL, ScheduleKind.CRON]),
        cron_expression=st.sampled_from(["* * * * *", "*/7 1-5 * * *", "@hourly"]),
        jitter_seconds=st.sampled_from([0, 90]),
        paused_until=st.none() | moments.map(lambda seconds: NOON + timedelta(seconds=seconds)),
        catch_up_seconds=st.sampled_from([None, 0, 3_600]),
    ),
    looks=st.lists(moments, min_size=1, max_size=6),
)
def test_every_due_time_ends_in_exactly_one_tick_whenever_and_however_often_one_looks(schedule, looks):
    ticks = []
    schedule = start = replace(schedule, next_fire_at=NOON + schedule.delay)
    for seconds in looks:
        now = NOON + timedelta(seconds=seconds)
        while schedule.next_fire_at <= now:
            plan = plan_firing(schedule, now, DAY)
            ticks += plan.ticks
            schedule = replace(schedule, next_fire_at=plan.next_fire_at)

    passed = NOON + timedelta(seconds=max(looks)) - schedule.delay
    due = [NOON, *due_times_between(start, NOON + timedelta(microseconds=1), passed, 10_000)]
    assert sum(tick.count for tick in ticks) == (len(due) if passed >= NOON else 0)
    assert len({tick.firing_id for tick in ticks}) == len(ticks)
    for tick in ticks:
        covered = [each for each in due if tick.due_at <= each <= (tick.last_due_at or tick.due_at)]
        assert len(covered) == tick.count


class Schedules:
    """The store's schedules, as the engine sees them; firings of those in `refused` cannot be stored."""

    def __init__(self, *schedules):
        self.stored = {schedule.schedule_id: schedule for schedule in schedules}
        self.refused = set()
        self.commands = []

    async def read(self, query):
        active = [each for each in self.stored.values() if each.next_fire_at is not None]
        match query:
            case DueSchedules(now, limit):
                due = [each for each in active if each.next_fire_at <= now]
                return sorted(due, key=lambda each: each.next_fire_at)[:limit]
            case SchedulesByIds(schedule_ids):
                return [self.stored[each] for each in schedule_ids if each in self.stored]
            case NextDueTime():
                return min((each.next_fire_at for each in active), default=None)
        raise AssertionError(query)

    async def apply(self, commands):
        self.commands += commands
        return [self._fire(command) for command in commands]

    def _fire(self, command):
        if command.run is not None and command.schedule_id in self.refused:
            return CommandFailed("no")
        schedule = self.stored[command.schedule_id]
        if schedule.next_fire_at != command.expected_due:
            return AlreadyFired()
        self.stored[command.schedule_id] = replace(schedule, next_fire_at=command.next_fire_at)
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


def firings_over(store, definitions=None, wake=None):
    """Return what fires schedules, the agents that it wakes, the runs that it signals, and its clock."""
    woken, signalled, clock = [], [], ManualClock(NOON)

    async def note(agents):
        woken.extend(agents)

    async def signal(agent, run_id):
        signalled.append(run_id)

    made = ScheduleFirer(
        store=store,
        wake=wake or note,
        cancel=signal,
        definitions=definitions or Definitions(),
        clock=clock,
    )
    return made, woken, signalled, clock


async def test_one_schedule_that_cannot_be_planned_is_skipped_with_its_reason_and_holds_up_nobody():
    broken = replace(every_minute(NOON - DAY), cron_expression="nonsense")
    store = Schedules(broken, once(NOON))
    firings, woken, _, _ = firings_over(store)

    assert await firings.fire_all_due() == 1
    assert await firings.fire_all_due() == 0

    [tick] = store.commands[0].ticks
    assert woken == [AgentRef.parse("watch")]
    assert (tick.outcome, tick.reason.partition(":")[0]) == (TickOutcome.SKIPPED, "it could not be planned")
    assert await store.read(NextDueTime()) == NOON + timedelta(hours=1)


async def test_a_time_that_the_store_refuses_is_skipped_with_its_reason_and_one_that_is_the_only_one_is_tried_again():
    store = Schedules(once(NOON), every_minute(NOON))
    store.refused = {"sch_1", "sch_2"}
    firings, _, _, clock = firings_over(store)

    assert await firings.fire_all_due() == 0
    store.refused.clear()
    await clock.advance(3_600)
    assert await firings.fire_all_due() == 2

    first, second = store.commands[2:4]
    assert [each.ticks[0].reason for each in (first, second)] == ["its firing could not be stored: no"] * 2
    assert (first.next_fire_at, second.next_fire_at) == (NOON + timedelta(hours=1), NOON + timedelta(minutes=1))
    assert sum(tick.count for each in store.commands[4:] for tick in each.ticks if each.schedule_id == "sch_2") == 60


async def test_a_firing_respects_the_queue_limit_of_its_agents_definition_unless_it_is_the_only_one_of_its_schedule():
    store = Schedules(every_minute(NOON), once(NOON))
    firings, *_ = firings_over(store)

    await firings.fire_all_due()

    assert [command.run.queue_limit for command in store.commands] == [7, None]
    assert [command.overlap for command in store.commands] == [OverlapPolicy.BUFFER_ONE, OverlapPolicy.ENQUEUE]


@pytest.mark.parametrize("failure", [unknown, unreadable])
async def test_schedules_fire_under_the_default_limits_where_the_definition_is_not_to_be_had(failure):
    definitions, store = Definitions(), Schedules(every_minute(NOON))
    firings, _, _, clock = firings_over(store, definitions)

    definitions.answer = failure
    await firings.fire_all_due()
    definitions.answer = never
    await clock.advance(60)
    ringing = asyncio.create_task(firings.fire_all_due())
    await clock.advance(3)

    assert await ringing == 1
    assert [command.run.queue_limit for command in store.commands] == [Limits().queued_runs] * 2


async def unreachable(agents):
    raise RuntimeUnavailableError("the Directory is being restarted")


@pytest.mark.parametrize("wake", [never, unreachable])
async def test_schedules_go_on_where_their_agents_cannot_be_woken(wake):
    store = Schedules(once(NOON), every_minute(NOON))
    firings, _, _, clock = firings_over(store, wake=wake)
    scheduler = Scheduler(schedule_firer=firings, store=store, clock=clock)
    scheduler.start()

    for _ in range(20):
        await clock.advance(10)
    await scheduler.stop()

    assert [command.schedule_id for command in store.commands] == ["sch_1", "sch_2", "sch_2", "sch_2", "sch_2"]


async def test_an_alarm_fires_what_is_due_and_is_told_when_to_ring_again():
    store = Schedules(
        once(NOON + timedelta(minutes=9)), every_minute(NOON), replace(every_minute(NOON), schedule_id="sch_3")
    )
    store.stored["sch_3"] = replace(store.stored["sch_3"], status=ScheduleStatus.PAUSED)
    firings, woken, _, _ = firings_over(store)

    alarms = [await firings.ring(["sch_1", "sch_2", "sch_3", "sch_4"]) for _ in range(2)]

    later = NOON + timedelta(minutes=9)
    expected = [
        Alarm("sch_1", later),
        Alarm("sch_2", NOON + timedelta(minutes=1)),
        Alarm("sch_3", None),
        Alarm("sch_4", None),
    ]
    assert alarms == [expected, expected]
    assert len(store.commands) == len(woken) == 1


async def test_runs_that_a_firing_asks_to_end_get_a_signal():
    store = Schedules(every_minute(NOON))
    store._fire = lambda command: ScheduleFired(RunAccepted("run_2", 2, command.run.agent), ("run_1",))
    firings, woken, signalled, _ = firings_over(store)

    await firings.ring(["sch_2"])

    assert (woken, signalled) == ([AgentRef.parse("watch")], ["run_1"])


async def test_many_missed_times_are_worked_out_in_steps():
    store = Schedules(*(replace(every_minute(NOON - 2 * DAY), schedule_id=f"sch_{at}") for at in range(9)))
    firings, *_ = firings_over(store)

    assert await firings.fire_all_due() == 9

    assert sum(tick.count for command in store.commands for tick in command.ticks) == 9 * (2 * 24 * 60 + 1)
    assert sum(command.run is not None for command in store.commands) == 9
    assert await store.read(NextDueTime()) == NOON + timedelta(minutes=1)
