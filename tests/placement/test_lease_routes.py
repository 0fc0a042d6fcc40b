"""The lease is renewed through the Keepers of other nodes while the own one does not answer."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.placement.lease import GIVE_UP_SECONDS, LeaseHolder
from owlclaw_ray.placement.lease_routes import LeaseRoutes
from owlclaw_ray.store.commands import ClusterLease, HoldLease, LeaseHeld, LeaseReleased, ReleaseLease
from owlclaw_ray.testing.clock import ManualClock


class Keeper:
    """Grants the lease, unless it hangs or cannot; `asked` is what it was asked."""

    def __init__(self):
        self.asked, self.works, self.cut = [], asyncio.Event(), False
        self.works.set()

    async def apply(self, commands):
        self.asked += commands
        await self.works.wait()
        if self.cut:
            raise StoreUnavailableError("the line is cut")
        held = LeaseHeld(ClusterLease("east", 1, len(self.asked)))
        return [held if isinstance(each, HoldLease) else LeaseReleased() for each in commands]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def own():
    return Keeper()


@pytest.fixture
def others():
    return [Keeper(), Keeper()]


@pytest.fixture
def keepers(own, others):
    return [own, *others]


@pytest.fixture
def routes(own, others, clock):
    return LeaseRoutes(own, lambda: others, clock)


@pytest.fixture
def told():
    return []


@pytest.fixture
def lease(routes, clock, told):
    async def note():
        told.append(clock.monotonic())

    return LeaseHolder(routes, "east", "dir-east", clock, began=note, ended=note, superseded=note)


async def passing(clock, lease, seconds):
    """Let so many seconds pass, in which the lease is asked for again and again."""

    async def tick():
        while True:
            await lease.tick()
            await clock.sleep(1.0)

    ticking = asyncio.create_task(tick())
    for _ in range(int(seconds * 4)):
        await clock.advance(0.25)
    ticking.cancel()
    await asyncio.wait({ticking})


async def test_a_keeper_that_answers_is_the_only_one_that_is_asked(clock, lease, own, others):
    await passing(clock, lease, 20.0)

    assert lease.held
    assert own.asked
    assert not any(each.asked for each in others)


@pytest.mark.parametrize("hung", [1, 2])
async def test_the_agents_of_a_cluster_stay_while_keepers_hang_and_another_answers(lease, keepers, told, hung):
    clock = lease._clock
    await passing(clock, lease, 1.0)
    for each in keepers[:hung]:
        each.works.clear()

    await passing(clock, lease, 10 * GIVE_UP_SECONDS)

    assert lease.held
    assert len(told) == 1


async def test_a_keeper_that_cannot_reach_the_store_is_not_waited_for(clock, routes, own, others):
    own.cut = True

    assert await routes.apply([HoldLease("east", "dir-east", 1)]) == [LeaseHeld(ClusterLease("east", 1, 1))]
    assert clock.monotonic() == 0.0
    assert [len(each.asked) for each in others] == [1, 0]


async def test_where_no_keeper_reaches_the_store_the_agents_are_given_up_in_time(clock, lease, own, others, told):
    await passing(clock, lease, 0.25)
    own.works.clear()
    for each in others:
        each.cut = True

    await passing(clock, lease, GIVE_UP_SECONDS + 1.0)

    assert told == [0.0, GIVE_UP_SECONDS]


async def test_the_lease_is_given_back_by_the_own_keeper_alone(routes, own, others):
    own.cut = True

    with pytest.raises(StoreUnavailableError):
        await routes.apply([ReleaseLease("east", "dir-east")])
    assert not any(each.asked for each in others)
