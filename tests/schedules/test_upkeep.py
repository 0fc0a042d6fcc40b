"""Work that nobody asks for: done when the store says that there is some, and each kind apart from the others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.runtime.upkeep import DueWork
from owlclaw_ray.store.queries import DueUpkeep, Upkeep
from owlclaw_ray.testing.clock import ManualClock


class Store:
    """Says what there is to do, and when it was asked."""

    def __init__(self, clock):
        self.clock, self.due, self.asked = clock, frozenset(), []

    async def read(self, query):
        assert query == DueUpkeep(self.clock.now())
        self.asked.append(self.clock.monotonic())
        if self.due is None:
            raise StoreUnavailableError("away")
        return self.due


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    return Store(clock)


@pytest.fixture
def done():
    return Counter()


@pytest.fixture
async def upkeep(store, clock, done):
    made = DueWork(store, clock, {kind: doing(kind, done) for kind in Upkeep})
    made.start()
    await clock.settle()
    done.clear()
    yield made
    await made.stop()


def doing(kind, done):
    async def do():
        done[kind] += 1

    return do


async def test_every_kind_is_done_at_the_start_and_every_minute_though_the_store_names_none(store, clock, done):
    upkeep = DueWork(store, clock, {kind: doing(kind, done) for kind in Upkeep})
    upkeep.start()
    await clock.settle()
    at_the_start = Counter(done)
    await clock.advance(61)
    await upkeep.stop()

    assert at_the_start == Counter(dict.fromkeys(Upkeep, 1))
    assert done == Counter(dict.fromkeys(Upkeep, 2))


@pytest.mark.usefixtures("upkeep")
@pytest.mark.parametrize("kind", Upkeep)
async def test_what_is_due_is_done_within_five_seconds_and_nothing_else(store, clock, done, kind):
    store.due = frozenset({kind})
    await clock.advance(5.1)

    assert done == {kind: 1}


@pytest.mark.usefixtures("upkeep")
async def test_a_store_with_nothing_to_do_is_asked_once_in_five_seconds(store, clock, done):
    store.asked.clear()
    await clock.advance(50)

    assert (len(store.asked), done) == (10, Counter())


@pytest.mark.usefixtures("upkeep")
async def test_a_store_that_does_not_answer_is_asked_again(store, clock, done):
    store.due = None
    await clock.advance(5.1)
    store.due = frozenset({Upkeep.EXPIRED_APPROVALS})
    await clock.advance(5.1)

    assert done == {Upkeep.EXPIRED_APPROVALS: 1}


async def test_a_deletion_that_takes_long_holds_nothing_else_up(store, clock, done):
    async def takes_long():
        done[Upkeep.TENANT_DELETIONS] += 1
        await asyncio.Event().wait()

    upkeep = DueWork(
        store,
        clock,
        {Upkeep.TENANT_DELETIONS: takes_long, Upkeep.EXPIRED_APPROVALS: doing(Upkeep.EXPIRED_APPROVALS, done)},
    )
    store.due = frozenset({Upkeep.TENANT_DELETIONS, Upkeep.EXPIRED_APPROVALS})
    upkeep.start()
    await clock.advance(11)
    await upkeep.stop()

    assert done[Upkeep.TENANT_DELETIONS] == 1
    assert done[Upkeep.EXPIRED_APPROVALS] >= 3
