"""A node that stops inside a transaction on PostgreSQL, as when its machine vanishes: it keeps its locks and says nothing."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.commands import AgentActivated, CommandBlocked, RunAccepted
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.group_commit import GroupCommit, unblocked
from owlclaw_ray.store.queries import AgentByRef
from owlclaw_ray.store.sql import databases, dialects
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import activation, submission

pytestmark = pytest.mark.postgres
VICTIM = AgentRef.parse("trader:victim")
OTHERS = [AgentRef.parse(f"trader:{number}") for number in range(5)]


@pytest.fixture
async def store(postgres_url):
    opened = await open_store(postgres_url, writer="survivor")
    await opened.apply([activation("act_1", agent) for agent in (VICTIM, *OTHERS)])
    yield opened
    await opened.close()


@pytest.fixture
async def vanished(postgres_url, store):
    """A session of a node that has changed the victim's row and then does nothing more."""
    lost = await open_store(postgres_url, writer="lost")
    async with lost._database._writing.connect() as session:
        await session.execute(text("UPDATE agents SET epoch = 99 WHERE agent LIKE '%victim'"))
        yield session
        await session.invalidate()
    await lost.close()


class Released:
    """A GroupCommit as callers in one process see it."""

    def __init__(self, store):
        self._commits = GroupCommit(store)

    async def apply(self, commands):
        return unblocked(await self._commits.apply(commands))


async def test_commands_of_other_agents_are_committed_beside_one_that_is_blocked(store, vanished):
    takeover = activation("act_2", VICTIM)

    outcomes = await store.apply([takeover, *(submission(f"run_{agent}", agent) for agent in OTHERS)])

    assert isinstance(outcomes[0], CommandBlocked)
    assert "activateagent" in outcomes[0].message.lower()
    assert all(isinstance(each, RunAccepted) for each in outcomes[1:])
    assert (await store.read(AgentByRef(VICTIM))).epoch == 1


async def test_who_waits_for_a_blocked_command_is_told_to_try_again_and_the_others_are_not(store, vanished):
    commits = Released(store)

    blocked, *others = await asyncio.gather(
        commits.apply([activation("act_2", VICTIM)]),
        *(commits.apply([submission(f"run_{agent}", agent)]) for agent in OTHERS),
        return_exceptions=True,
    )

    assert isinstance(blocked, StoreUnavailableError)
    assert "rows are locked by another transaction" in str(blocked)
    assert all(isinstance(each[0], RunAccepted) for each in others)


async def test_the_server_ends_the_silent_session_and_its_agent_is_taken_over(store, vanished):
    outcome = await DurableStore(Released(store), SystemClock()).apply(activation("act_2", VICTIM))

    assert isinstance(outcome, AgentActivated)
    assert outcome.epoch == 2


async def test_a_blocked_command_of_a_batch_that_has_waited_once_waits_only_briefly(store, vanished, monkeypatch):
    waits = []
    real = dialects.Postgresql.wait_briefly_for_locks

    def noted(self, connection):
        real(self, connection)
        waits.append(connection.exec_driver_sql("SHOW lock_timeout").scalar())

    monkeypatch.setattr(dialects.Postgresql, "wait_briefly_for_locks", noted)

    await store.apply([activation("act_2", VICTIM), submission("run_1", OTHERS[0])])

    assert waits == ["20ms"]


async def test_sessions_have_the_limits_that_end_a_vanished_node(store):
    async with store._database._writing.connect() as session:
        shown = {
            name: (await session.execute(text(f"SHOW {name}"))).scalar() for name in databases._POSTGRESQL_SETTINGS
        }

    assert shown["idle_in_transaction_session_timeout"] == "4s"
    assert shown["lock_timeout"] == "1s"
