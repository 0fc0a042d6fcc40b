"""What the design takes a real engine to do, which the double imitates."""

import asyncio
from datetime import timedelta

from msgspec.structs import replace

from owlclaw_ray.ids import ScheduleId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.schedules.alarm_sync import EngineAlarmClock
from owlclaw_ray.store.commands import CreateSchedule
from owlclaw_ray.store.queries import RunFilter
from owlclaw_ray.store.sql.sql_store import SqlStore
from tests.contracts.alarm_clock_contract import AGENT, steady
from tests.hatchet_real.conftest import answering, run_command, soon, until
from tests.schedules.hatchet.world import firings_over
from tests.world import InlineDatabase

ONE = ScheduleId("sch_one")


async def test_an_alarm_rings_at_its_time_and_is_listed_until_then(alarms, rings):
    at = soon(15)
    await alarms.set(ONE, at)
    (listed,) = await alarms.alarms()

    await until(lambda: rings.of(ONE), 60)

    assert abs(listed.at - at) < timedelta(seconds=1)
    assert rings.of(ONE)[0] >= at
    assert await alarms.alarms() == []


async def test_an_alarm_that_fell_due_while_the_engine_was_down_rings_after_its_restart(alarms, rings):
    due = soon(10)
    await alarms.set(ONE, due)
    await run_command("HATCHET_KILL")
    await asyncio.sleep((due - SystemClock().now()).total_seconds() + 5)
    await run_command("HATCHET_START")
    await answering(alarms)

    await until(lambda: rings.of(ONE), 300)


async def test_an_alarm_that_is_removed_more_than_five_seconds_ahead_does_not_ring(alarms, rings):
    await alarms.set(ONE, soon(15))
    (listed,) = await alarms.alarms()

    await alarms.remove(listed.alarm_id)
    await alarms.remove(listed.alarm_id)
    await asyncio.sleep(25)

    assert rings.of(ONE) == []


async def test_an_alarm_that_is_removed_within_its_last_five_seconds_rings_once_at_most(alarms, rings):
    await alarms.set(ONE, soon(8))
    await asyncio.sleep(5)
    for each in await alarms.alarms():
        await alarms.remove(each.alarm_id)
    await asyncio.sleep(15)

    assert len(rings.of(ONE)) <= 1
    assert await alarms.alarms() == []


async def test_a_ring_that_fails_is_tried_again(alarms, rings):
    rings.broken[ONE] = 2
    await alarms.set(ONE, soon(10))

    await until(lambda: len(rings.of(ONE)) == 3, 120)

    first, second, third = rings.of(ONE)
    assert second - first >= timedelta(seconds=2)
    assert third - second >= timedelta(seconds=4)


async def fired_through_kills(alarms, rings, *, number, first_in, apart, kills):
    """Return how late so many schedules fired, of an engine that is killed: how long after the first due time, and for how long."""
    clock, store = SystemClock(), SqlStore(InlineDatabase(), "one")
    alarm_clock = EngineAlarmClock(schedule_firer=firings_over(store, clock), store=store, engine=alarms, clock=clock)
    store.tell(lambda _, schedule_ids: alarm_clock.changed(list(schedule_ids)))
    rings.schedule_firer = alarm_clock.ring
    alarm_clock.start()
    await until(lambda: alarm_clock.counts.reachable, 60)
    first = soon(first_in)
    due = {f"sch_{each}": first + timedelta(seconds=apart * each) for each in range(number)}
    made = [
        replace(steady(clock, 60, name).schedule, interval_seconds=86_400, next_fire_at=at) for name, at in due.items()
    ]
    await store.apply([CreateSchedule(each, limit=10_000) for each in made])
    await until(lambda: alarm_clock.counts.standing == number, first_in)
    seen = len(await alarms.alarms())
    for after, down in kills:
        await asyncio.sleep(max(0.0, (first - clock.now()).total_seconds() + after))
        await run_command("HATCHET_KILL")
        await asyncio.sleep(down)
        await run_command("HATCHET_START")
    await asyncio.sleep(max(0.0, (max(due.values()) - clock.now()).total_seconds()) + 30)
    runs = await store.read(RunFilter(AGENT.tenant, AGENT, limit=100_000))
    await alarm_clock.stop()
    assert (seen, sorted(run.trigger.source for run in runs)) == (number, sorted(due))
    return [(run.created_at - due[run.trigger.source]).total_seconds() for run in runs]


async def test_every_schedule_fires_once_though_the_engine_is_killed_as_it_rings(alarms, rings):
    """The engine by itself loses some alarms then, and rings twice for others."""
    late = await fired_through_kills(alarms, rings, number=50, first_in=30, apart=0.0, kills=[(0.0, 0.0)])

    assert max(late) <= 5


async def test_a_thousand_schedules_are_seen_and_each_fires_once_though_the_engine_is_killed_ten_times(alarms, rings):
    kills = [(20 + 45 * each, 10 * (each % 2)) for each in range(10)]
    late = await fired_through_kills(alarms, rings, number=1_000, first_in=45, apart=0.47, kills=kills)

    assert max(late) <= 5


async def test_alarms_a_second_apart_ring_none_before_its_time(alarms, rings):
    due = {ScheduleId(f"sch_{number}"): soon(15 + number) for number in range(10)}
    await asyncio.gather(*(alarms.set(name, at) for name, at in due.items()))

    await until(lambda: all(rings.of(name) for name in due), 120)

    assert all(rings.of(name)[0] >= at for name, at in due.items())


async def test_an_alarm_that_rings_while_there_is_no_worker_for_an_hour_is_delivered_to_the_next(alarms, rings, worker):
    await alarms.set(ONE, soon(30))
    await worker.stop()
    await asyncio.sleep(3_600)
    before = rings.of(ONE)

    worker.start()

    await until(lambda: rings.of(ONE), 300)
    assert before == []
