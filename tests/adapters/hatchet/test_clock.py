"""The alarm clock with Hatchet's engine, over its double, by the unmodified SDK."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from owlclaw_ray.engine.alarm_sync import AlarmCounts, SyncPace
from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.ports.store import CancelSchedule, PauseSchedule
from owlclaw_ray.testing.alarm_clock_contract import AGENT, STEADY, AlarmClockContract, steady
from tests.adapters.hatchet.world import World, all_runs
from tests.hatchet_engine.rest_side import Raw, Refusal, Silence


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
    found = await world.store.ticks(STEADY)
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
            each: len(await patient.store.ticks(ScheduleId(each))) for each in (STEADY, "sch_0", "sch_1", "sch_2")
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
    world = World(engine, clock, SyncPace(horizon=1_000, most=150))
    made = [steady(clock, 100 + number, f"sch_{number}") for number in range(0, 1_500, 6)]
    await world.store.apply([replace(each, limit=1_000) for each in made])
    await world.alarm_clock.reconcile()
    world.alarms.close()

    assert len(engine.alarms) == 150
    assert engine.alarms[-1].trigger_at == clock.now() + timedelta(seconds=100 + 149 * 6)


async def test_two_reconcilers_end_with_one_alarm_for_each_schedule(ringing):
    other = ringing.alarms
    await asyncio.gather(*(other.set(STEADY, ringing.clock.now() + timedelta(seconds=59)) for _ in range(3)))
    await ringing.clock.advance(31)

    assert len(ringing.engine.alarms) == 1
