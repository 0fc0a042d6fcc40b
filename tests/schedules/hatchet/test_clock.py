"""The alarm clock with Hatchet's engine, over its double, by the unmodified SDK."""

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.schedule import ScheduleKind
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.schedules.alarm_sync import AlarmCounts
from owlclaw_ray.schedules.api import SyncPace
from owlclaw_ray.store.commands import CancelSchedule, CreateSchedule, PauseSchedule
from owlclaw_ray.store.queries import DueSchedules, TicksOfSchedule
from tests.contracts.alarm_clock_contract import AGENT, STEADY, AlarmClockContract, steady
from tests.hatchet_engine.rest_side import Raw, Refusal, Silence
from tests.schedules.hatchet.world import START, World, all_runs


class TestHatchetAlarmClock(AlarmClockContract):
    """It rings as every alarm clock does."""

    @pytest.fixture
    def store(self, world):
        return world.store

    @pytest.fixture
    def alarm_clock(self, world):
        return world.alarm_clock


@pytest.fixture
async def ringing(world):
    """The world, its clock running and its schedule stored."""
    async for each in running(world):
        yield each


@pytest.fixture
async def patient(engine, clock):
    """As `ringing`, but it looks seldom, for tests of hours."""
    world = World(engine, clock, SyncPace(look=5, grace=0))
    async for each in running(world):
        yield each
    world.alarms.close()


async def running(world):
    await world.store.apply([steady(world.clock)])
    world.alarm_clock.start()
    await world.clock.advance(1)
    yield world
    await world.alarm_clock.stop()


async def ticks(world):
    found = await world.store.read(TicksOfSchedule(STEADY))
    return [(tick.outcome.value, (tick.at - tick.due_at).total_seconds()) for tick in reversed(found)]


async def test_the_engine_rings_for_each_time_and_is_given_the_next_one(ringing):
    await ringing.clock.advance(335)

    assert ringing.rung == [STEADY] * 5
    assert await ticks(ringing) == [("fired", 0.0)] * 5
    assert [each.input["schedule_id"] for each in ringing.engine.alarms] == [STEADY]
    assert ringing.alarm_clock.counts == AlarmCounts(reachable=True, standing=1, alarms_set=6, refused=0, rings=5)


async def test_what_is_sent_to_the_engine_is_the_schedules_id_and_whose_it_is(ringing):
    (alarm,) = ringing.engine.alarms

    assert (alarm.input, alarm.metadata) == ({"schedule_id": STEADY}, {"owlclaw": "default", "schedule_id": STEADY})


async def test_an_engine_that_is_down_for_an_hour_is_felt_by_nobody_and_everything_fires_once(patient):
    clock = patient.clock
    await clock.advance(100)
    with patient.engine.outage():
        before = clock.monotonic()
        await patient.store.apply([steady(clock, 600, f"sch_{number}") for number in range(3)])
        await patient.store.apply([CancelSchedule(AGENT, ScheduleId("sch_2"), clock.now())])
        waited = clock.monotonic() - before
        clock.step = 20
        await clock.advance(3_600)
        during = {
            each: len(await patient.store.read(TicksOfSchedule(ScheduleId(each))))
            for each in (STEADY, "sch_0", "sch_1", "sch_2")
        }
        counted = patient.alarm_clock.counts
    clock.step = 1
    await clock.advance(125)

    assert waited == 0
    assert (counted.reachable, counted.standing, counted.refused > 0) == (False, 0, True)
    assert patient.alarm_clock.counts.reachable
    assert during == {STEADY: 61, "sch_0": 6, "sch_1": 6, "sch_2": 0}
    fired = await all_runs(patient.store)
    assert len({(run.trigger.source, run.trigger.payload["due_at"]) for run in fired}) == len(fired)
    assert sorted(each.input["schedule_id"] for each in patient.engine.alarms) == ["sch_0", "sch_1", STEADY]
    assert max(late for _, late in await ticks(patient)) <= 5


async def test_an_engine_that_takes_calls_and_never_answers_is_felt_by_nobody(ringing):
    await ringing.clock.advance(100)
    ringing.engine.rest.fault = Silence()
    ringing.alarms._times = (1.0, 0.1)
    await ringing.clock.advance(300)
    ringing.engine.rest.fault = None
    ringing.alarms._times = (1.0, 3.0)
    await ringing.clock.advance(60)

    assert len(await all_runs(ringing.store)) == 7
    assert max(late for _, late in await ticks(ringing)) <= 3
    assert len(ringing.engine.alarms) == 1


async def test_a_lost_alarm_is_set_again(ringing):
    (alarm,) = ringing.engine.alarms
    ringing.engine.lose(alarm)

    await ringing.clock.advance(31)

    assert [each.id == alarm.id for each in ringing.engine.alarms] == [False]


async def test_a_time_whose_alarm_was_lost_too_late_fires_without_it(ringing):
    await ringing.clock.advance(50)
    ringing.engine.lose(ringing.engine.alarms[0])

    await ringing.clock.advance(15)

    ((outcome, late),) = await ticks(ringing)
    assert (outcome, late <= 3, ringing.rung) == ("fired", True, [])


async def test_an_alarm_that_rings_twice_fires_once(ringing):
    (alarm,) = ringing.engine.alarms
    await ringing.clock.advance(60)
    for _ in range(3):
        ringing.engine.ring_again(alarm)
        await ringing.clock.advance(1)

    assert ringing.rung == [STEADY] * 4
    assert len(await all_runs(ringing.store)) == 1


async def test_an_alarm_that_rings_too_early_is_made_good_at_its_time(ringing):
    (alarm,) = ringing.engine.alarms
    await ringing.clock.advance(57)
    ringing.engine.lose(alarm)
    ringing.engine.ring_again(alarm)

    await ringing.clock.advance(3)

    assert await ticks(ringing) == [("fired", 0.0)]


async def test_without_a_worker_everything_fires_within_the_grace_and_what_piled_up_does_no_harm(patient):
    patient.working = False
    await patient.clock.advance(600)
    during = await ticks(patient)

    patient.working = True
    await patient.clock.advance(20)

    assert {(outcome, late <= 5) for outcome, late in during} == {("fired", True)}
    assert len(during) in {9, 10}
    assert set(patient.rung) == {STEADY}
    assert len(await all_runs(patient.store)) == 10


async def test_what_is_paused_or_cancelled_loses_its_alarm(ringing):
    await ringing.store.apply([steady(ringing.clock, 60, "sch_other")])
    await ringing.clock.advance(31)
    assert len(ringing.engine.alarms) == 2

    now = ringing.clock.now()
    await ringing.store.apply([PauseSchedule(AGENT, STEADY, now), CancelSchedule(AGENT, ScheduleId("sch_other"), now)])
    await ringing.clock.advance(31)

    assert ringing.engine.alarms == []


async def test_alarms_of_others_in_the_same_tenant_are_left_alone(ringing):
    foreign = ringing.engine.records.schedule(
        "owlclaw-ring", ringing.clock.now() + timedelta(hours=9), {}, {"owlclaw": "other", "schedule_id": STEADY}
    )

    await ringing.clock.advance(61)

    assert foreign in ringing.engine.alarms


@pytest.mark.parametrize("fault", [Refusal(500), Refusal(429), Refusal(404), Raw(b"<html>"), Raw(b'{"rows": 3}')])
async def test_an_engine_that_answers_nonsense_delays_nothing(ringing, fault):
    ringing.engine.rest.fault = fault

    await ringing.clock.advance(150)

    assert await ticks(ringing) in ([("fired", 0.0)] * 2, [("fired", 3.0), ("fired", 0.0)])


async def test_an_alarm_that_was_set_though_the_engine_said_otherwise_ends_as_one(ringing):
    engine = ringing.engine
    await ringing.store.apply([steady(ringing.clock, 200, "sch_other")])
    healthy = engine.rest.misbehaviour
    engine.rest.misbehaviour = lambda: (
        Refusal(502, after_the_effect=True) if engine.rest.calls[-1].method == "POST" else healthy()
    )
    await ringing.clock.advance(62)
    set_twice = len(engine.alarms)
    engine.rest.misbehaviour = healthy

    await ringing.clock.advance(31)

    assert set_twice >= 2
    assert sorted(each.input["schedule_id"] for each in engine.alarms) == ["sch_other", STEADY]


async def test_only_the_schedules_that_come_first_have_alarms(engine, clock):
    world = World(engine, clock, SyncPace(most=150))
    made = [steady(clock, 100 + number, f"sch_{number}") for number in range(0, 1_500, 6)]
    await world.store.apply([replace(each, limit=1_000) for each in made])
    await world.alarm_clock.reconcile()
    full = list(engine.alarms)
    world.alarm_clock.start()
    await world.store.apply([replace(once(clock, 90, "sch_sooner"), limit=1_000)])
    await clock.advance(1)
    sooner = {each.input["schedule_id"] for each in engine.alarms}
    await clock.advance(31)
    await world.alarm_clock.stop()
    world.alarms.close()

    assert len(full) == len(engine.alarms) == 150
    assert full[-1].trigger_at == START + timedelta(seconds=100 + 149 * 6)
    assert "sch_sooner" in sooner
    assert engine.alarms[-1].trigger_at == START + timedelta(seconds=100 + 148 * 6)


def once(clock, seconds, schedule_id):
    """A schedule that falls due once, in so many seconds."""
    due = clock.now() + timedelta(seconds=seconds)
    made = steady(clock, schedule_id=schedule_id).schedule
    return CreateSchedule(replace(made, kind=ScheduleKind.ONCE, interval_seconds=0, next_fire_at=due), 1_000)


@pytest.mark.parametrize("seconds", [10, 3_600, 86_400 * 3, 86_400 * 400])
async def test_the_next_time_of_a_schedule_is_in_the_engine_as_soon_as_it_is_made_however_far_it_is(ringing, seconds):
    await ringing.store.apply([once(ringing.clock, seconds, "sch_new")])
    await ringing.clock.advance(1)

    alarms = {each.input["schedule_id"]: each.trigger_at for each in ringing.engine.alarms}
    assert alarms["sch_new"] == START + timedelta(seconds=1 + seconds)


async def test_what_is_cancelled_or_paused_leaves_the_engine_at_once(ringing):
    await ringing.store.apply([once(ringing.clock, 600, "sch_new")])
    await ringing.clock.advance(1)
    now = ringing.clock.now()
    await ringing.store.apply([CancelSchedule(AGENT, ScheduleId("sch_new"), now), PauseSchedule(AGENT, STEADY, now)])
    await ringing.clock.advance(1)

    assert ringing.engine.alarms == []


async def test_heartbeats_fire_at_their_times_and_the_engine_is_told_of_none(ringing):
    beat = steady(ringing.clock, 60, "sch_heartbeat_60_1").schedule
    await ringing.store.apply([CreateSchedule(replace(beat, kind=ScheduleKind.HEARTBEAT), 9)])
    await ringing.clock.advance(200)

    found = await ringing.store.read(TicksOfSchedule(beat.schedule_id))
    assert [tick.at - tick.due_at for tick in found] == [timedelta(0)] * 3
    assert set(ringing.rung) == {STEADY}
    assert [each.input["schedule_id"] for each in ringing.engine.alarms] == [STEADY]


async def lateness(world, schedule_ids):
    """By how many seconds each of these fired after its time, in that order."""
    runs = {run.trigger.source: run for run in await all_runs(world.store)}
    due = {each: datetime.fromisoformat(runs[each].trigger.payload["due_at"]) for each in schedule_ids}
    return [round((runs[each].created_at - due[each]).total_seconds(), 3) for each in schedule_ids]


async def a_second_apart(world, number, after):
    """Make schedules that fall due a second apart, the first in so many seconds; return their ids in that order."""
    made = [once(world.clock, after + each, f"sch_{each}") for each in range(number)]
    await world.store.apply(made)
    return [each.schedule.schedule_id for each in made]


@pytest.mark.parametrize("answers", [True, False])
async def test_an_engine_that_falls_silent_delays_what_it_should_ring_for_by_the_grace_and_nothing_after_that(
    ringing, answers
):
    """It hangs, is killed, or lost its worker: whether it still answers over REST makes no difference."""
    await ringing.clock.advance(61)
    due = await a_second_apart(ringing, 40, 10)
    await ringing.clock.advance(5)
    ringing.working = False
    if not answers:
        ringing.engine.rest.fault = Refusal(503)
    await ringing.clock.advance(60)

    late = await lateness(ringing, due)
    assert late[0] == 3.0
    assert max(late) == 3.0
    assert set(late[4:]) == {0.0}


async def test_with_nothing_armed_everything_fires_at_its_time(ringing):
    """What falls due within five seconds has no alarm, and an engine that is away has none at all."""
    ringing.engine.rest.fault = Refusal(503)
    await ringing.clock.advance(40)
    due = await a_second_apart(ringing, 30, 0.25)
    await ringing.clock.advance(40)

    assert await lateness(ringing, due) == [0.0] * 30


async def test_after_a_quick_restart_schedules_fire_at_their_times_within_ten_seconds_and_the_engine_rings_again(
    ringing,
):
    """For a minute after it the engine gives no rings to a worker that it knew before, though it answers."""
    await ringing.clock.advance(61)
    due = await a_second_apart(ringing, 120, 10)
    await ringing.clock.advance(10)
    ringing.working = False
    with ringing.engine.outage():
        await ringing.clock.advance(2)
    await ringing.clock.advance(58)
    rung_before = len(ringing.rung)
    ringing.working = True
    await ringing.clock.advance(60)

    late = await lateness(ringing, due)
    assert max(late) <= 3.0
    assert max(late[10:]) == 0.0
    assert len(ringing.rung) > rung_before + 40


async def test_while_the_engine_is_well_the_store_is_looked_at_every_thirty_seconds(ringing):
    looks, read = [], ringing.store.read

    async def counted(query):
        if isinstance(query, DueSchedules):
            looks.append(ringing.clock.monotonic())
        return await read(query)

    ringing.store.read = counted
    await ringing.clock.advance(600)

    assert len(looks) <= 21
    assert {late for _, late in await ticks(ringing)} == {0.0}


async def test_two_reconcilers_end_with_one_alarm_for_each_schedule(ringing):
    other = ringing.alarms
    await asyncio.gather(*(other.set(STEADY, ringing.clock.now() + timedelta(seconds=59)) for _ in range(3)))
    await ringing.clock.advance(31)

    assert len(ringing.engine.alarms) == 1
