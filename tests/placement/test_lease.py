"""Who holds the lease of a store, on clocks that have nothing to do with one another."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS, LeaseHolder
from owlclaw_ray.store.commands import ClusterLease, HoldLease, LeaseHeld
from owlclaw_ray.store.commands.lease import EXPIRE_SECONDS
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock


class Line:
    """The way of a cluster to the store, until it is cut."""

    def __init__(self, store):
        self._store, self.cut = store, False

    async def apply(self, commands):
        if self.cut:
            raise StoreUnavailableError("the line is cut")
        return await self._store.apply(commands)


class Cluster:
    """A cluster that wants the lease; `told` is what it was told to do."""

    def __init__(self, name, store, start):
        self.clock, self.line, self.told, self._start = ManualClock(), Line(store), [], start
        self.lease = LeaseHolder(self.line, name, self.clock, began=self._note("begin"), ended=self._note("end"))

    def _note(self, what):
        async def note():
            self.told.append(what)

        return note

    async def tick(self, seconds=0.0):
        """Have that many seconds pass on its clock, and ask for the lease."""
        await self.clock.advance(self._start + seconds)
        self._start = 0.0
        await self.lease.tick()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture
async def store(tmp_path):
    store = await open_store(f"sqlite:///{tmp_path / 'owlclaw.db'}", writer="keeper")
    yield store
    await store.close()


@pytest.fixture
def east(store):
    return Cluster("east", store, 1_000.0)


@pytest.fixture
def west(store):
    return Cluster("west", store, 5.0)


async def test_the_first_runs_the_agents_and_the_other_stands_by_as_long_as_the_lease_is_renewed(east, west):
    for _ in range(20):
        await east.tick(1.0)
        await west.tick(1.0)

    assert (east.told, west.told) == (["begin"], [])
    assert (east.lease.held, west.lease.held) == (True, False)
    assert west.lease.holder == "east"


async def test_a_lease_that_stands_still_is_taken_after_its_time_and_not_sooner(east, west):
    await east.tick()
    await west.tick()

    await west.tick(EXPIRE_SECONDS - 0.1)
    assert not west.lease.held
    await west.tick(0.2)

    assert (west.lease.held, west.told) == (True, ["begin"])
    await east.tick(1.0)
    assert (east.lease.held, east.told) == (False, ["begin", "end"])


async def test_who_cannot_renew_it_gives_up_before_another_may_take_it(east, west):
    await east.tick()
    await west.tick()
    east.line.cut = True

    await east.tick(GIVE_UP_SECONDS - 0.1)
    assert east.lease.held
    await east.tick(0.1)

    assert GIVE_UP_SECONDS < EXPIRE_SECONDS
    assert (east.lease.held, east.told) == (False, ["begin", "end"])
    await west.tick(GIVE_UP_SECONDS)
    assert not west.lease.held


async def test_one_that_is_given_back_is_taken_at_once(east, west):
    await east.tick()
    await west.tick()

    await east.lease.release()
    await west.tick()

    assert west.told == ["begin"]


async def test_who_gets_no_answer_gives_up_as_soon_as_who_is_refused_one(store):
    clock, told, asked = ManualClock(), [], []

    class Silent(Line):
        async def apply(self, commands):
            if not self.cut:
                return await super().apply(commands)
            asked.append(commands)
            return await asyncio.Event().wait()

    async def note():
        told.append(clock.monotonic())

    line = Silent(store)
    lease = LeaseHolder(line, "east", clock, began=note, ended=note)
    await lease.tick()
    line.cut = True
    while lease.held:
        waiting = asyncio.create_task(lease.tick())
        await asyncio.sleep(0)
        while not waiting.done():
            await clock.advance(0.5)
        if lease.held:
            await clock.advance(1.0)
    await clock.advance(0)

    assert len(asked) == 1
    assert told == [0.0, GIVE_UP_SECONDS]


@pytest.fixture
def slow():
    """A cluster whose store answers every other question late, and what it was told to do."""
    clock, told = ManualClock(), []

    class Slow:
        late, asked = 0.0, 0

        async def apply(self, commands):
            self.asked += 1
            await clock.sleep(self.late * (self.asked % 2))
            return [LeaseHeld(ClusterLease("east", 1, self.asked)) for _ in commands]

    async def note():
        told.append(clock.monotonic())

    line = Slow()
    return clock, line, LeaseHolder(line, "east", clock, began=note, ended=note), told


async def ticks(clock, lease, seconds):
    async def tick():
        while True:
            await lease.tick()
            await clock.sleep(1.0)

    ticking = asyncio.create_task(tick())
    for _ in range(int(seconds * 4)):
        await clock.advance(0.25)
    ticking.cancel()
    await asyncio.wait({ticking})


async def test_an_answer_that_is_late_renews_the_lease_as_of_when_it_was_asked_for(slow):
    clock, line, lease, told = slow
    await ticks(clock, lease, 1.0)
    line.late = 2.5
    await ticks(clock, lease, 60.0)

    assert lease.held
    assert len(told) == 1


async def test_an_answer_that_comes_after_the_lease_would_have_been_given_up_grants_nothing(slow):
    clock, line, lease, told = slow
    line.late = GIVE_UP_SECONDS
    await ticks(clock, lease, GIVE_UP_SECONDS)

    assert (lease.held, told) == (False, [])


async def test_what_fails_at_a_change_is_tried_again(store):
    clock, tries = ManualClock(), []

    async def begin():
        tries.append("begin")
        if len(tries) == 1:
            raise StoreUnavailableError("not now")

    lease = LeaseHolder(store, "east", clock, began=begin, ended=begin)
    for _ in range(3):
        await lease.tick()
        for _ in range(3):
            await asyncio.sleep(0)

    assert tries == ["begin", "begin"]


async def test_who_is_cut_off_for_a_moment_keeps_it(east, west):
    await east.tick()
    east.line.cut = True
    await east.tick(GIVE_UP_SECONDS / 2)
    east.line.cut = False

    await east.tick(GIVE_UP_SECONDS / 4)

    assert (east.lease.held, east.told) == (True, ["begin"])


async def test_a_change_that_comes_while_one_is_carried_out_waits_for_it(store):
    gate, clock, told = asyncio.Event(), ManualClock(), []

    async def begin():
        told.append("begin")
        await gate.wait()
        told.append("begun")

    async def end():
        told.append("end")

    lease = LeaseHolder(store, "east", clock, began=begin, ended=end)
    await lease.tick()
    await asyncio.sleep(0)
    assert isinstance((await store.apply([HoldLease("west", ClusterLease("east", 1, 0))]))[0], LeaseHeld)
    await lease.tick()
    assert told == ["begin"]
    gate.set()
    for _ in range(5):
        await asyncio.sleep(0)

    assert told == ["begin", "begun", "end"]


async def test_a_cluster_that_stands_back_gives_its_agents_up_and_the_other_takes_the_lease_at_once(east, west):
    await east.tick()
    await west.tick()
    await east.lease.stand_back()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await west.tick(1.0)

    assert east.told == ["begin", "end"]
    assert west.told == ["begin"]


async def test_a_cluster_that_stood_back_asks_for_the_lease_again(east):
    await east.tick()
    await east.lease.stand_back()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await east.tick(1.0)

    assert east.lease.held
    assert east.told == ["begin", "end", "begin"]
