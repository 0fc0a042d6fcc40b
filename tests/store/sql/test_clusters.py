"""Two clusters with one database: one claims agents, and all accept triggers."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.store.commands import (
    AgentActivated,
    ClaimRun,
    HoldLease,
    LeaseHeld,
    NothingQueued,
    OnStandby,
    ReleaseLease,
    RunAccepted,
    RunClaimed,
    RunFinished,
)
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, ending, one, submission

EAST, WEST = "east", "west"


@pytest.fixture
async def clusters(store_url):
    opened = [await open_store(store_url, writer=f"keeper-{name}", cluster=name) for name in (EAST, WEST)]
    yield opened
    for store in opened:
        await store.close()


async def test_who_does_not_hold_the_lease_activates_and_claims_nothing_and_accepts_all_the_same(clusters):
    east, west = clusters
    assert await one(east, activation("act_1")) == OnStandby()
    await one(east, HoldLease(EAST))

    assert isinstance(await one(west, submission("run_1")), RunAccepted)
    assert await one(west, activation("act_1")) == OnStandby()
    activated = await one(east, activation("act_2"))

    assert isinstance(activated, AgentActivated)
    assert activated.epoch == 1


async def test_who_has_lost_the_lease_ends_the_run_that_it_has_and_gets_no_other(clusters):
    east, west = clusters
    await one(east, HoldLease(EAST))
    await east.apply([submission("run_1"), submission("run_2"), activation("act_1")])
    await claimed(east)
    await one(east, ReleaseLease(EAST))
    assert isinstance(await one(west, HoldLease(WEST)), LeaseHeld)

    assert await one(east, ending("run_1")) == RunFinished()
    assert await one(east, ClaimRun(AGENT, 1, NOW)) == NothingQueued()
    taken = await one(west, activation("act_2"))
    assert isinstance(await one(west, ClaimRun(AGENT, taken.epoch, NOW)), RunClaimed)


async def test_of_many_who_take_a_free_lease_at_the_same_time_one_gets_it(store_url):
    names = ["east", "north", "south", "west"]
    stores = [await open_store(store_url, writer=f"keeper-{name}", cluster=name) for name in names]

    for _ in range(10):
        asked = zip(stores, names, strict=True)
        outcomes = await asyncio.gather(*(one(store, HoldLease(name)) for store, name in asked))
        assert sum(isinstance(each, LeaseHeld) for each in outcomes) == 1
        for store, name in zip(stores, names, strict=True):
            await one(store, ReleaseLease(name))

    for store in stores:
        await store.close()
