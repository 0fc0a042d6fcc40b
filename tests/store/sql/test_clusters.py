"""Two clusters with one database: one claims agents, and all accept triggers."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

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
    StaleTerm,
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
    await one(east, HoldLease(EAST, "dir-east", 1))

    assert isinstance(await one(west, submission("run_1")), RunAccepted)
    assert await one(west, activation("act_1")) == OnStandby()
    activated = await one(east, activation("act_2"))

    assert isinstance(activated, AgentActivated)
    assert activated.epoch == 1


async def test_who_has_lost_the_lease_ends_the_run_that_it_has_and_gets_no_other(clusters):
    east, west = clusters
    await one(east, HoldLease(EAST, "dir-east", 1))
    await east.apply([submission("run_1"), submission("run_2"), activation("act_1")])
    await claimed(east)
    await one(east, ReleaseLease(EAST, "dir-east"))
    assert isinstance(await one(west, HoldLease(WEST, "dir-west", 2)), LeaseHeld)

    assert await one(east, ending("run_1")) == RunFinished()
    assert await one(east, ClaimRun(AGENT, 1, NOW)) == NothingQueued()
    taken = await one(west, activation("act_2"))
    assert isinstance(await one(west, ClaimRun(AGENT, taken.epoch, NOW)), RunClaimed)


async def test_of_many_who_take_a_free_lease_at_the_same_time_one_gets_it(store_url):
    names = ["east", "north", "south", "west"]
    stores = [await open_store(store_url, writer=f"keeper-{name}", cluster=name) for name in names]

    for term in range(1, 11):
        asked = zip(stores, names, strict=True)
        outcomes = await asyncio.gather(*(one(store, HoldLease(name, f"dir-{name}", term)) for store, name in asked))
        assert sum(isinstance(each, LeaseHeld) for each in outcomes) == 1
        for store, name in zip(stores, names, strict=True):
            await one(store, ReleaseLease(name, f"dir-{name}"))

    for store in stores:
        await store.close()


async def test_the_agents_that_a_superseded_directory_places_are_refused_wherever_it_places_them(clusters):
    east, _ = clusters
    await one(east, HoldLease(EAST, "dir-first", 1))
    assert isinstance(await one(east, replace(activation("act_1"), term=1)), AgentActivated)
    held = await one(east, HoldLease(EAST, "dir-second", 2))

    assert await one(east, replace(activation("act_2"), term=1)) == StaleTerm(held.lease)
    taken = await one(east, replace(activation("act_3"), term=2))

    assert (held.lease.term, taken.epoch) == (2, 2)


async def test_a_batch_in_which_the_lease_changes_hands_refuses_what_comes_after(clusters):
    east, _ = clusters
    await one(east, HoldLease(EAST, "dir-first", 1))
    placed = replace(activation("act_1"), term=1)

    first, _, late = await east.apply(
        [placed, HoldLease(EAST, "dir-second", 2), replace(placed, activation_id="act_2")]
    )

    assert isinstance(first, AgentActivated)
    assert isinstance(late, StaleTerm)


async def test_of_many_directories_of_one_cluster_that_claim_the_same_term_at_the_same_time_one_gets_it(store_url):
    names = [f"dir-{number}" for number in range(4)]
    stores = [await open_store(store_url, writer=name, cluster=EAST) for name in names]

    for term in range(1, 11):
        claimants = [f"{name}-{term}" for name in names]
        asked = zip(stores, claimants, strict=True)
        outcomes = await asyncio.gather(*(one(store, HoldLease(EAST, name, term)) for store, name in asked))
        [held] = [each for each in outcomes if isinstance(each, LeaseHeld)]
        assert {(each.lease.term, each.lease.directory) for each in outcomes} == {(term, held.lease.directory)}

    for store in stores:
        await store.close()
