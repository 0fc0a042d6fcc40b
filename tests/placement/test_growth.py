"""When more machines are asked for, by a requester that notes it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from owlclaw_ray.domain.agent import Isolation
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.placement.directory import Directory
from owlclaw_ray.placement.growth import QUIET_BEATS, WAIT_BEATS, Growth
from owlclaw_ray.testing.clock import ManualClock
from tests.placement.test_directory import SteeredPool, Work, beats, refs, seated

TWO = {"a": 4.0, "b": 2.0}


class Cloud:
    """Notes what it is asked for."""

    def __init__(self, most):
        self.asked = []
        self.growth = Growth(self._note, most)

    async def _note(self, bundles):
        self.asked.append([each["CPU"] for each in bundles])

    async def beats(self, number, cpus=TWO, *, waited=0, room=0, used=20):
        for _ in range(number):
            await self.growth.beat(cpus, waited=waited, room=room, used=used, most_hosts=10)


async def test_a_machine_is_asked_for_once_beside_the_present_ones_when_agents_have_waited_and_no_host_can_be_made():
    cloud = Cloud(5)

    await cloud.beats(10, waited=WAIT_BEATS - 1)
    await cloud.beats(10, waited=WAIT_BEATS, room=1)
    before = list(cloud.asked)
    await cloud.beats(10, waited=WAIT_BEATS)

    assert (before, cloud.asked) == ([], [[2.0, 4.0, 1.0]])


async def test_a_machine_that_offers_no_cpus_is_in_no_request_that_nothing_there_could_satisfy():
    cloud = Cloud(5)

    await cloud.beats(1, {**TWO, "head": 0.0}, waited=WAIT_BEATS)
    await cloud.beats(QUIET_BEATS, {**TWO, "head": 0.0}, used=25)

    assert cloud.asked == [[2.0, 4.0, 1.0], [2.0, 4.0]]


async def test_the_next_machine_is_asked_for_when_the_first_is_full_too_and_none_beyond_the_limit():
    cloud, three, four = Cloud(4), {**TWO, "c": 4.0}, {**TWO, "c": 4.0, "d": 4.0}

    for cpus in (TWO, three, four):
        await cloud.beats(3, cpus, waited=WAIT_BEATS)

    assert cloud.asked == [[2.0, 4.0, 1.0], [2.0, 4.0, 4.0, 1.0]]


@pytest.mark.parametrize(("used", "kept"), [(7, []), (8, [2.0, 4.0])])
async def test_the_request_is_withdrawn_when_nobody_waits_and_machines_that_are_needed_are_kept(used, kept):
    cloud = Cloud(4)
    await cloud.beats(1, waited=WAIT_BEATS)
    await cloud.beats(QUIET_BEATS - 1, used=used)
    before = list(cloud.asked)

    await cloud.beats(QUIET_BEATS + 5, used=used)

    assert before == [[2.0, 4.0, 1.0]]
    assert cloud.asked[1:] == [kept]


async def test_a_request_whose_withdrawal_failed_is_withdrawn_again():
    cloud = Cloud(4)
    await cloud.beats(1, waited=WAIT_BEATS)
    note, failures = cloud.growth._request, [OSError("no answer")]

    async def fail_once(bundles):
        if failures:
            raise failures.pop()
        await note(bundles)

    cloud.growth._request = fail_once
    with pytest.raises(OSError, match="no answer"):
        await cloud.beats(QUIET_BEATS, used=0)
    await cloud.beats(1, used=0)

    assert cloud.asked[1:] == [[]]


async def test_a_request_is_withdrawn_at_the_end_whatever_an_earlier_directory_asked_for_too_and_once():
    new, used = Cloud(4), Cloud(4)
    await used.beats(1, waited=WAIT_BEATS)

    for cloud in (new, used):
        await cloud.growth.withdraw()
        await cloud.growth.withdraw()

    assert (new.asked, used.asked) == ([[]], [[2.0, 4.0, 1.0], []])


async def test_what_is_being_asked_when_the_end_comes_is_answered_before_it_is_withdrawn():
    cloud, answer = Cloud(4), asyncio.Event()
    note = cloud.growth._request

    async def slowly(bundles):
        if bundles:
            await answer.wait()
        await note(bundles)

    cloud.growth._request = slowly
    asking = asyncio.create_task(cloud.beats(1, waited=WAIT_BEATS))
    await asyncio.sleep(0)
    asking.cancel()
    ending = asyncio.create_task(cloud.growth.withdraw())
    await asyncio.wait({asking})
    before = list(cloud.asked)
    answer.set()
    await ending

    assert (before, cloud.asked) == ([], [[2.0, 4.0, 1.0], []])


@asynccontextmanager
async def directory_that_asked(cloud, pool=None):
    """A Directory for whose third agent there was no place, and what it asked for before that had waited for long."""
    pool, agents = pool or SteeredPool(), refs(3)
    directory = Directory(
        pool=pool,
        store=Work(),
        isolation_of=lambda _: Isolation.DEDICATED,
        placement=Placement(warm=0, most=2, heartbeat=1e9, sweep=1e9),
        clock=ManualClock(),
        growth=cloud.growth,
    )
    await directory.start()
    await directory.wake(agents)
    await seated(pool, *agents[:2])
    for host in pool.hosts.values():
        host.run_ends.clear()
    await beats(directory, WAIT_BEATS - 1)
    before = list(cloud.asked)
    await beats(directory, 2)
    for host in pool.hosts.values():
        host.run_ends.set()
    yield directory, before


@pytest.mark.parametrize(("bare", "asked"), [(frozenset(), [1.0, 1.0]), (frozenset({"here"}), [1.0])])
async def test_the_directory_asks_for_a_machine_while_agents_wait_behind_others_that_are_never_idle(bare, asked):
    pool, cloud = SteeredPool(), Cloud(2)
    pool.bare = bare

    async with directory_that_asked(cloud, pool) as (directory, before):
        asked_for = list(cloud.asked)
        await directory.stop(0)

    assert (before, asked_for) == ([], [asked])


async def test_a_directory_that_ends_asks_for_no_machines_any_more():
    cloud = Cloud(2)

    async with directory_that_asked(cloud) as (directory, _):
        await directory.stop(0)

    assert cloud.asked == [[1.0, 1.0], []]


async def test_a_directory_whose_cluster_hands_its_agents_over_asks_for_no_machines_any_more_and_places_nobody():
    pool, cloud = SteeredPool(), Cloud(2)

    async with directory_that_asked(cloud, pool) as (directory, _):
        directory.close()
        await beats(directory, WAIT_BEATS + 1)
        await pool.kill(next(iter(pool.hosts.values())))
        await beats(directory, WAIT_BEATS + 1)

    assert cloud.asked == [[1.0, 1.0], []]
    assert (len(pool.hosts), pool.made) == (1, 2)


async def test_a_directory_that_ends_for_its_own_node_alone_leaves_the_request_to_its_successor():
    cloud = Cloud(2)

    async with directory_that_asked(cloud) as (directory, _):
        await directory.stop(0, "here")

    assert cloud.asked == [[1.0, 1.0]]


async def test_hosts_are_drained_though_the_request_cannot_be_withdrawn(caplog):
    pool, cloud = SteeredPool(), Cloud(2)

    async def fail(_bundles):
        raise OSError("no answer")

    async with directory_that_asked(cloud, pool) as (directory, _):
        cloud.growth._request = fail
        await directory.stop(0)

    assert all(host.told_to_drain for host in pool.hosts.values())
    assert "the request for machines was not withdrawn" in caplog.text
