"""A batch on PostgreSQL that waited for an agent's row, and who may take agents was decided anew meanwhile."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.store.commands import (
    AgentActivated,
    ClaimRun,
    HoldLease,
    JoinNode,
    LeaseHeld,
    MarkNode,
    NodeMarked,
    NodeState,
    NothingQueued,
    OnStandby,
    RunAccepted,
    RunFinished,
    StaleTerm,
)
from owlclaw_ray.store.queries import AgentByRef
from owlclaw_ray.store.sql import databases
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import NOW, activation, claimed, ending, one, submission

pytestmark = pytest.mark.postgres
BUSY, WANTED = (AgentRef.parse(f"trader:{name}") for name in ("a", "b"))
"""In the order in which their rows are locked."""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
async def stores(postgres_url, monkeypatch):
    """Opens stores that wait for locks for as long as it takes."""
    monkeypatch.setitem(databases._POSTGRESQL_SETTINGS, "lock_timeout", "0")
    opened = []

    async def open_one(writer, cluster=""):
        opened.append(await open_store(postgres_url, writer=writer, cluster=cluster))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


class Locked:
    """A session that locks the busy agent's row."""

    def __init__(self, session):
        self._session, self._change = session, session.transaction()

    async def begin(self):
        await self._change.start()
        assert await self._session.execute("SELECT FROM agents WHERE agent LIKE '%trader:a' FOR UPDATE") == "SELECT 1"

    async def until_one_waits(self):
        while not await self._session.fetchval(WAITING):
            pass

    async def free(self):
        await self._change.rollback()


@pytest.fixture
async def locked(postgres_server):
    session = await asyncpg.connect(postgres_server.url("owlclaw"))
    yield Locked(session)
    await session.close()


async def test_who_loses_the_lease_while_it_waits_for_agents_takes_none_back_from_their_new_owner(stores, locked):
    east, west = await stores("keeper-east", "east"), await stores("keeper-west", "west")
    held = await one(east, HoldLease("east", "dir-east", 1))
    await east.apply([activation("act_1", BUSY), activation("act_2", WANTED), submission("run_1", WANTED)])
    await locked.begin()
    late = [replace(activation(f"act_late_{agent}", agent), term=1) for agent in (BUSY, WANTED)]
    waiting = asyncio.create_task(east.apply(late))
    await locked.until_one_waits()

    assert isinstance(await one(west, HoldLease("west", "dir-west", 2, held.lease)), LeaseHeld)
    taken = await one(west, replace(activation("act_west", WANTED), term=2, claim=True))
    await locked.free()

    assert await waiting == [OnStandby(), OnStandby()]
    assert isinstance(taken, AgentActivated)
    assert await one(west, ending("run_1", 2, epoch=taken.epoch, agent=WANTED)) == RunFinished()


async def test_a_directory_that_is_superseded_while_it_waits_for_agents_takes_none_back(stores, locked):
    first, second = await stores("keeper-1", "east"), await stores("keeper-2", "east")
    await one(first, HoldLease("east", "dir-first", 1))
    await first.apply([activation("act_1", BUSY), activation("act_2", WANTED)])
    await locked.begin()
    late = [replace(activation(f"act_late_{agent}", agent), term=1) for agent in (BUSY, WANTED)]
    waiting = asyncio.create_task(first.apply(late))
    await locked.until_one_waits()

    held = await one(second, HoldLease("east", "dir-second", 2))
    taken = await one(second, replace(activation("act_second", WANTED), term=2))
    await locked.free()

    assert await waiting == [StaleTerm(held.lease)] * 2
    assert (await first.read(AgentByRef(WANTED))).epoch == taken.epoch


@pytest.mark.parametrize("state", [NodeState.LOST, NodeState.DRAINING])
async def test_a_node_that_is_marked_while_it_waits_for_agents_takes_none_and_claims_no_run(stores, locked, state):
    node, other = await stores("keeper"), await stores("other")
    await one(node, JoinNode("n1", "east", "machine-1"))
    node.serve_node("n1", 1)
    await node.apply([activation("act_1", BUSY), activation("act_2", WANTED), submission("run_1", WANTED)])
    await locked.begin()
    late = [activation(f"act_late_{agent}", agent) for agent in (BUSY, WANTED)]
    waiting = asyncio.create_task(node.apply([*late, ClaimRun(BUSY, 1, NOW)]))
    await locked.until_one_waits()

    assert isinstance(await one(other, MarkNode("n1", state)), NodeMarked)
    taken = await one(other, activation("act_other", WANTED))
    run = await claimed(other, taken.epoch, WANTED)
    await locked.free()

    assert await waiting == [OnStandby(), OnStandby(), NothingQueued()]
    assert run.run.run_id == "run_1"
    assert await one(other, ending("run_1", 2, epoch=taken.epoch, agent=WANTED)) == RunFinished()


async def test_a_trigger_that_waited_for_its_agent_is_accepted_whoever_has_the_lease_by_then(stores, locked):
    east, west = await stores("keeper-east", "east"), await stores("keeper-west", "west")
    held = await one(east, HoldLease("east", "dir-east", 1))
    await one(east, activation("act_1", BUSY))
    await locked.begin()
    waiting = asyncio.create_task(one(east, submission("run_1", BUSY)))
    await locked.until_one_waits()

    await one(west, HoldLease("west", "dir-west", 2, held.lease))
    await locked.free()

    assert isinstance(await waiting, RunAccepted)
