"""The watch over parts that live without doing anything, over real processes and signs of life that a test steers."""

from __future__ import annotations

import asyncio
import subprocess
import time
from contextlib import suppress

import psutil
import pytest

from actors.cluster import NAMESPACE
from actors.liveness import LivenessMonitor
from actors.remote import ProcessLocation, kill, make, registered
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.testing.clock import ManualClock

HERE = "here"
MINUTE = 70.0


class Part:
    """A part of the system that is one process after another."""

    def __init__(self):
        self.processes = []
        self.node_id = HERE
        self.hangs = False
        self.restart()

    def restart(self):
        self.processes.append(subprocess.Popen(["sleep", "3600"]))

    @property
    def pid(self):
        return self.processes[-1].pid

    def killed(self):
        with suppress(subprocess.TimeoutExpired):
            return self.processes[-1].wait(0) != 0
        return False

    async def answer(self, actor):
        if self.hangs:
            await asyncio.Event().wait()
        return ProcessLocation(self.node_id, self.pid)

    async def register(self, actor):
        return ProcessLocation(self.node_id, self.pid)


@pytest.fixture
def part():
    part = Part()
    yield part
    for process in part.processes:
        process.kill()
        process.wait()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def liveness(part, clock):
    """On a busy machine."""
    return LivenessMonitor(clock, HERE, part.answer, part.register, load=lambda: 3.0)


async def look(liveness, clock, seconds, each=8):
    """Look again and again for so long."""
    ends = clock.monotonic() + seconds
    while clock.monotonic() < ends:
        looking = asyncio.create_task(liveness.look("part", None))
        await clock.settle()
        await clock.advance(each)
        await looking


async def died(process):
    return await asyncio.to_thread(process.wait, 10)


async def test_a_part_that_answers_lives(liveness, part, clock):
    await look(liveness, clock, 3 * MINUTE)

    assert not part.killed()


async def test_a_part_that_stops_answering_is_killed(liveness, part, clock):
    await liveness.look("part", None)
    part.hangs = True

    await look(liveness, clock, 8)
    assert not part.killed()

    await look(liveness, clock, 8)
    assert await died(part.processes[0]) != 0


async def test_a_part_that_stops_answering_on_a_quiet_machine_is_killed_within_eight_seconds(part, clock):
    liveness = LivenessMonitor(clock, HERE, part.answer, part.register, load=lambda: 1.0)
    began = clock.monotonic()
    watching = asyncio.create_task(watch(liveness, clock))
    await clock.settle()
    part.hangs = True

    await pass_seconds(clock, 7)
    assert not part.killed()

    await pass_seconds(clock, 1)
    watching.cancel()
    assert await died(part.processes[0]) != 0
    assert clock.monotonic() - began == 8


async def test_parts_that_answer_are_looked_at_every_three_seconds_and_soon_again_after_the_first_miss_alone(
    part, clock
):
    liveness = LivenessMonitor(clock, HERE, part.answer, part.register, load=lambda: 1.0)
    part.node_id, pauses = "there", [liveness.pause]
    for part.hangs in (False, True, True, True, False):
        await look(liveness, clock, 2, each=2)
        pauses.append(liveness.pause)

    assert pauses == [3, 3, 1, 3, 3, 3]


async def watch(liveness, clock):
    """Look as a root does."""
    while True:
        await liveness.look("part", None)
        await clock.sleep(liveness.pause)


async def pass_seconds(clock, seconds):
    for _ in range(seconds):
        await clock.advance(1)
        await clock.settle()


async def test_a_part_that_hangs_before_it_was_first_heard_from_is_killed_in_the_end(liveness, part, clock):
    part.hangs = True

    await look(liveness, clock, 50)
    assert not part.killed()

    await look(liveness, clock, 20)
    assert await died(part.processes[0]) != 0


async def test_the_successor_of_a_part_gets_the_time_that_a_beginning_takes(liveness, part, clock):
    await liveness.look("part", None)
    part.hangs = True
    part.processes[0].kill()
    part.restart()

    await look(liveness, clock, 50)
    assert not part.killed()

    await look(liveness, clock, 20)
    assert await died(part.processes[1]) != 0


async def test_a_part_on_another_machine_is_left_to_the_watch_there(liveness, part, clock):
    part.node_id, part.hangs = "there", True

    await look(liveness, clock, 3 * MINUTE)

    assert not part.killed()


async def test_a_part_that_gives_no_sign_of_life_can_be_ended(liveness, part, clock):
    part.hangs = True
    birth = asyncio.create_task(liveness.wait_until_alive("part", None, 60.0))
    await clock.settle()
    await clock.advance(60)
    with pytest.raises(RuntimeUnavailableError, match="no sign of life within 60 s"):
        await birth

    await liveness.end("part", None)

    assert await died(part.processes[0]) != 0


class Stuck:
    """An actor that never begins to answer."""

    def __init__(self):
        time.sleep(3600)


@pytest.mark.ray
async def test_ray_knows_the_process_of_an_actor_that_is_stuck_in_its_beginning_and_replaces_it(trial):
    actor = make(Stuck, namespace=NAMESPACE, max_restarts=-1)
    try:
        first = await process_of(actor)
        await LivenessMonitor(ManualClock()).end("stuck", actor)
        second = await process_of(actor, other_than=first)
    finally:
        kill(actor)

    assert second.pid != first.pid
    assert await asyncio.to_thread(psutil.wait_procs, [first], 20) == ([first], [])


async def process_of(actor, other_than=None):
    """Wait until Ray names the actor's process."""
    async with asyncio.timeout(60):
        while (where := await registered(actor)) is None or (other_than and where.pid == other_than.pid):
            await asyncio.sleep(0)
    return psutil.Process(where.pid)
