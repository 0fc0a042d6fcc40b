"""What the design takes a real engine to do, which the double imitates."""

import asyncio
from datetime import timedelta

from owlclaw_ray.ids import ScheduleId
from tests.hatchet_real.conftest import answering, run_command, soon, until

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
    await alarms.set(ONE, soon(20))
    run_command("HATCHET_RESTART")
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


async def test_every_alarm_rings_at_least_once_though_the_engine_is_killed_meanwhile(alarms, rings):
    names = [ScheduleId(f"sch_{number}") for number in range(50)]
    await asyncio.gather(*(alarms.set(name, soon(20)) for name in names))
    await asyncio.sleep(20)
    run_command("HATCHET_KILL")
    run_command("HATCHET_RESTART")
    await answering(alarms)

    await until(lambda: all(rings.of(name) for name in names), 600)


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
