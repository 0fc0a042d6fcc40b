from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from owlclaw_ray.adapters.store.databases import SqliteDatabase
from owlclaw_ray.adapters.store.locations import locate
from owlclaw_ray.adapters.store.migrating import migrate
from owlclaw_ray.adapters.store.schema import metadata
from owlclaw_ray.adapters.store.sql_store import SqlStore
from owlclaw_ray.domain.agent import AgentRef, AgentState
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.run import RunResult, RunStatus
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, Tick, TickOutcome
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ports.store import (
    ActivateAgent,
    AppendJournal,
    AppendLedger,
    CancelRun,
    CancelSchedule,
    ClaimRun,
    CreateSchedule,
    FinishRun,
    FireSchedule,
    IdempotencyClaim,
    ReleaseAgent,
    SubmitRun,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
AGENTS = [AgentRef.parse("trader"), AgentRef.parse("trader:AAPL"), AgentRef.parse("trader", "张三/x")]
times = st.integers(0, 5).map(lambda minutes: START + timedelta(minutes=minutes))
agents = st.sampled_from(AGENTS)
run_ids = st.sampled_from([f"run_{number}" for number in range(5)])
epochs = st.sampled_from([1, 1, 1, 2, 3])
schedule_ids = st.sampled_from(["sch_1", "sch_2"])
texts = st.sampled_from(["看一下", "nul \x00 inside", "plain"])
keys = st.builds(
    IdempotencyClaim,
    key=st.sampled_from(["k1", "k2"]),
    body_hash=st.sampled_from(["same", "same", "other"]),
    expires_at=times,
)
triggers = st.builds(Trigger, kind=st.sampled_from(TriggerKind), payload=texts, focus=texts)
bad_triggers = st.just(Trigger(TriggerKind.API, payload=object()))
submits = st.builds(
    SubmitRun,
    run_id=run_ids,
    agent=agents,
    trigger=st.one_of(triggers, triggers, triggers, bad_triggers),
    at=times,
    idempotency=st.one_of(st.none(), keys),
)


@st.composite
def entry_lists(draw):
    first = draw(st.integers(3, 5))
    kinds = draw(st.lists(st.sampled_from([EntryKind.PROMPT_BUILT, EntryKind.TOOL_FINISHED]), max_size=2))
    data = {EntryKind.PROMPT_BUILT: {"system": "h1", "tools": "h2"}, EntryKind.TOOL_FINISHED: {"call_id": "c"}}
    return tuple(JournalEntry(first + at, kind, START, data[kind]) for at, kind in enumerate(kinds))


@st.composite
def record_lists(draw):
    agent = draw(agents)
    numbers = draw(st.lists(st.integers(1, 6), max_size=2))
    return tuple(
        LedgerRecord(f"rec_{number}", agent.tenant, agent.agent_id, "run_0", LedgerKind.DECISION, START, {"n": number})
        for number in numbers
    )


@st.composite
def firings(draw):
    schedule_id, due, run = draw(schedule_ids), draw(times), draw(st.one_of(st.none(), submits))
    following = draw(st.one_of(st.none(), times))
    firing_id = f"fire_{schedule_id}_{due.minute}"
    outcome = TickOutcome.FIRED if run else TickOutcome.SKIPPED
    tick = Tick(firing_id, schedule_id, due, outcome, due, run.run_id if run else None, reason="原因")
    return FireSchedule(schedule_id, due, (tick,), following, run)


schedules = st.builds(
    Schedule,
    schedule_id=schedule_ids,
    agent=agents,
    kind=st.sampled_from(ScheduleKind),
    focus=texts,
    created_at=times,
    next_fire_at=times,
)
blobs = st.sampled_from([{}, {"h1": "system \x00 text"}, {"h1": "system \x00 text", "h2": "[]"}])
results = st.builds(RunResult, status=st.sampled_from([RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.RUNNING]))
states = st.builds(AgentState, recent_outcomes=st.tuples(texts), runs=st.integers(0, 9))
commands = st.one_of(
    submits,
    submits,
    st.builds(ActivateAgent, agent=agents, activation_id=st.sampled_from(["act_1", "act_2"]), at=times),
    st.builds(ClaimRun, agent=agents, epoch=epochs, at=times),
    st.builds(ClaimRun, agent=agents, epoch=epochs, at=times),
    st.builds(
        AppendJournal,
        run_id=run_ids,
        agent=agents,
        epoch=epochs,
        entries=entry_lists(),
        ledger=record_lists(),
        blobs=blobs,
    ),
    st.builds(
        FinishRun,
        run_id=run_ids,
        agent=agents,
        epoch=epochs,
        entries=entry_lists(),
        result=results,
        state=states,
        at=times,
        ledger=record_lists(),
        blobs=blobs,
        claim_next=st.booleans(),
    ),
    st.builds(ReleaseAgent, agent=agents, epoch=epochs, state=states, at=times),
    st.builds(CancelRun, tenant=agents.map(lambda agent: agent.tenant), run_id=run_ids, at=times),
    st.builds(CreateSchedule, schedule=schedules, limit=st.integers(1, 2)),
    st.builds(CancelSchedule, agent=agents, schedule_id=schedule_ids, at=times),
    firings(),
    st.builds(AppendLedger, records=record_lists()),
)
beginnings = st.permutations(
    [
        *(ActivateAgent(agent, "act_0", START) for agent in AGENTS),
        *(SubmitRun(f"run_{at}", agent, Trigger(TriggerKind.API), START) for at, agent in enumerate(AGENTS)),
    ]
)


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def databases(runner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    made = [SqliteDatabase(locate(str(folder / name)).url) for name in ("together.db", "alone.db")]
    for database in made:
        runner.run(database.write(migrate))
    yield made
    for database in made:
        runner.run(database.close())


def emptied(connection):
    for table in metadata.sorted_tables:
        connection.execute(table.delete())


def contents_of(connection):
    return {table.name: sorted(connection.execute(table.select()).all(), key=repr) for table in metadata.sorted_tables}


async def apply_groups(database, groups):
    await database.write(emptied)
    store = SqlStore(database, "keeper")
    outcomes = [outcome for group in groups for outcome in await store.apply(group)]
    breaks = [each for agent in AGENTS for each in await store.verify_ledger(agent.tenant)]
    return outcomes, breaks, await database.read(contents_of)


@pytest.mark.property
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(beginning=beginnings, rest=st.lists(commands, max_size=25), size=st.integers(2, 40))
def test_a_batch_does_what_its_commands_do_one_by_one(runner, databases, beginning, rest, size):
    everything = [*beginning, *rest]
    groups = [everything[at : at + size] for at in range(0, len(everything), size)]

    together, alone = databases
    in_batches = runner.run(apply_groups(together, groups))
    one_by_one = runner.run(apply_groups(alone, [[command] for command in everything]))

    assert in_batches == one_by_one
    assert not in_batches[1]
