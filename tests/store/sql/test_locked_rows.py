"""A node that stops inside a transaction on PostgreSQL, as when its machine vanishes: it keeps its locks and says nothing."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest
from sqlalchemy import event, text

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.commands import AgentActivated, CommandBlocked, RunAccepted
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.group_commit import GroupCommit, unblocked
from owlclaw_ray.store.queries import AgentByRef
from owlclaw_ray.store.sql import databases
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.failures import FailureAction, failure_of
from owlclaw_ray.testing.clock import ManualClock
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


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def patient(postgres_url, clock):
    """A store whose seconds pass when the test says so."""
    opened = await open_store(postgres_url, writer="survivor", clock=clock)
    await opened.apply([activation("act_1", agent) for agent in (VICTIM, *OTHERS)])
    yield opened
    await opened.close()


@pytest.fixture
async def hold(postgres_server):
    """Changes agents' rows in a session that then does nothing more, and that nobody ends."""
    session = await asyncpg.connect(postgres_server.url("owlclaw"))

    async def change(agents):
        change_ = session.transaction()
        await change_.start()
        await session.execute("UPDATE agents SET epoch = 99 WHERE agent LIKE $1", f"%{agents}")
        return change_

    yield change
    await session.close()


class LockWaits:
    """For how long at most statements waited for locks that they did not get, in milliseconds, one after another."""

    def __init__(self, store):
        self.in_vain = []
        self._limit, engine = None, store._database._writing.sync_engine
        event.listen(engine, "begin", self._begun)
        event.listen(engine, "before_cursor_execute", self._executing)
        event.listen(engine, "handle_error", self._failed)

    def _begun(self, _connection):
        self._limit = int(databases._POSTGRESQL_SETTINGS["lock_timeout"])

    def _executing(self, _connection, _cursor, statement, *_):
        if statement.startswith("SET LOCAL lock_timeout"):
            self._limit = int(statement.rpartition("= ")[2])

    def _failed(self, context):
        if failure_of(context.sqlalchemy_exception) is FailureAction.LOCKED:
            self.in_vain.append(self._limit)


async def test_a_takeover_that_is_tried_again_while_it_is_blocked_holds_up_others_at_length_once(patient, hold):
    await hold("victim")
    waits, commits = LockWaits(patient), GroupCommit(patient)

    for number in range(4):
        blocked, *others = await asyncio.gather(
            commits.apply([activation("act_2", VICTIM)]),
            *(commits.apply([submission(f"run_{number}_{agent}", agent)]) for agent in OTHERS),
        )
        assert isinstance(blocked[0], CommandBlocked)
        assert all(isinstance(each[0], RunAccepted) for each in others)

    assert waits.in_vain == [1_000, 20] + [20, 20] * 3


async def test_rows_are_waited_for_at_length_again_once_the_server_has_ended_sessions_that_are_gone(
    patient, hold, clock
):
    await hold("victim")
    takeover, waits = activation("act_2", VICTIM), LockWaits(patient)

    await patient.apply([takeover])
    await clock.advance(3)
    await patient.apply([takeover])
    await clock.advance(2)
    await patient.apply([takeover])

    assert waits.in_vain == [1_000, 20, 20, 20, 1_000, 20]


async def test_an_agent_is_taken_over_in_the_first_batch_after_its_row_is_free(patient, hold):
    change = await hold("victim")
    assert isinstance((await patient.apply([activation("act_2", VICTIM)]))[0], CommandBlocked)

    await change.rollback()
    outcome = (await patient.apply([activation("act_2", VICTIM)]))[0]

    assert isinstance(outcome, AgentActivated)
    assert outcome.epoch == 2


async def test_of_many_blocked_commands_the_first_few_alone_are_waited_for(patient, hold):
    blocked = [AgentRef.parse(f"trader:late-{number}") for number in range(8)]
    await patient.apply([activation("act_1", agent) for agent in blocked])
    await hold("late-%")
    waits = LockWaits(patient)

    outcomes = await patient.apply([activation("act_2", agent) for agent in (*blocked, VICTIM)])

    assert all(isinstance(each, CommandBlocked) for each in outcomes[:-1])
    assert isinstance(outcomes[-1], AgentActivated)
    assert waits.in_vain == [1_000] + [20] * 5 + [1] * 3


async def test_sessions_have_the_limits_that_end_a_vanished_node(store):
    async with store._database._writing.connect() as session:
        shown = {
            name: (await session.execute(text(f"SHOW {name}"))).scalar() for name in databases._POSTGRESQL_SETTINGS
        }

    assert shown["idle_in_transaction_session_timeout"] == "4s"
    assert shown["lock_timeout"] == "1s"
