import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds


async def _note_after(clock, seconds, name, log):
    await clock.sleep(seconds)
    log.append((name, clock.monotonic()))


async def test_time_stands_still_until_it_is_advanced():
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    before = clock.now()

    await clock.advance(90)

    assert before == datetime(2026, 3, 1, tzinfo=UTC)
    assert clock.now() - before == timedelta(seconds=90)
    assert clock.monotonic() == 90


async def test_sleepers_wake_by_due_time_and_see_the_clock_at_it():
    clock, log = ManualClock(), []
    async with asyncio.TaskGroup() as tasks:
        for name, seconds in (("late", 3), ("early", 1), ("also early", 1)):
            tasks.create_task(_note_after(clock, seconds, name, log))
        await clock.advance(10)

    assert log == [("early", 1), ("also early", 1), ("late", 3)]


async def test_a_sleeper_is_not_woken_before_its_time():
    clock, log = ManualClock(), []
    task = asyncio.create_task(_note_after(clock, 5, "five", log))

    await clock.advance(4.9)
    assert log == []
    assert clock.sleepers == 1

    await clock.advance(0.1)
    await task
    assert log == [("five", 5)]


async def test_a_periodic_sleeper_wakes_as_often_as_the_advanced_time_holds():
    clock, log = ManualClock(), []

    async def tick():
        while True:
            await _note_after(clock, 10, "tick", log)

    task = asyncio.create_task(tick())
    await clock.advance(35)
    task.cancel()

    assert log == [("tick", 10), ("tick", 20), ("tick", 30)]


async def test_a_cancelled_sleeper_is_forgotten():
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.wait_for_sleepers()

    task.cancel()
    await clock.settle()

    assert clock.sleepers == 0
    await clock.advance(10)
    assert clock.monotonic() == 10


@pytest.mark.parametrize("seconds", [0, -1])
@pytest.mark.parametrize("clock", [ManualClock(), SystemClock()], ids=["manual", "system"])
async def test_sleeping_for_no_time_lets_other_tasks_run_and_returns(clock, seconds):
    other = asyncio.create_task(asyncio.sleep(0))

    await clock.sleep(seconds)
    await clock.sleep(seconds)

    assert other.done()


async def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="does not go back"):
        await ManualClock().advance(-1)


def test_the_system_clock_is_aware_and_monotonic():
    clock = SystemClock()

    first, second = clock.monotonic(), clock.monotonic()

    assert clock.now().tzinfo is UTC
    assert first <= second


def test_sequential_ids_count_for_each_prefix():
    ids = SequentialIds()

    assert [ids.make("run"), ids.make("mem"), ids.make("run")] == ["run_000001", "mem_000001", "run_000002"]
