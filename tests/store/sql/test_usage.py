"""What was counted equals the sum over runs and journals, whatever happened to them, and goes when its time is over."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import event, select

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunResult, RunStatus, Usage
from owlclaw_ray.domain.usage import KEPT, MINUTES_KEPT, Grain, RunCounts, UsageBy, floored
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.store.commands import AppendJournal, FinishRun, RunFinished
from owlclaw_ray.store.sql import usage_rows
from owlclaw_ray.store.sql.codec import agent_of, load, load_result
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.schema import journal, metadata, runs
from owlclaw_ray.store.sql.sql_store import SqlStore
from owlclaw_ray.store.usage import RunUsage, ToolUsage
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, ending, one, submission
from tests.contracts.store_usage_contract import TODAY, called, calls, ran, used
from tests.store.sql.emptying import emptied
from tests.store.sql.test_batches_equal_single_commands import (  # noqa: F401 - fixtures
    AGENTS,
    START,
    commands,
    databases,
    first_commands,
    runner,
)

TENANTS = {agent.tenant for agent in AGENTS}
costs = st.sampled_from([0.0, 0.25, 1e-9, 0.1])
usages = st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), costs)
calls_ = st.fixed_dictionaries(
    {
        "call_id": st.just("c"),
        "tool": st.sampled_from(["look", "send"]),
        "duration_ms": st.sampled_from([1, 100, 5_000]),
    },
    optional={"error": st.sampled_from([{"type": "timeout", "message": ""}, {"type": "denied", "message": ""}])},
)


@st.composite
def with_use(draw):
    """A command, whose calls and end used something."""
    command = draw(commands)
    if isinstance(command, AppendJournal | FinishRun):
        entries = [
            replace(each, data=draw(calls_), at=START + timedelta(minutes=draw(st.integers(0, 130))))
            if each.kind is EntryKind.TOOL_FINISHED
            else each
            for each in command.entries
        ]
        command = replace(command, entries=tuple(entries))
    if isinstance(command, FinishRun):
        command = replace(command, result=replace(command.result, usage=draw(usages)))
    return command


def summed(connection):
    """What runs and journals say, by tenant, agent and tool."""
    of_runs, of_calls = defaultdict(lambda: [0] * len(RunCounts.__struct_fields__)), defaultdict(lambda: [0, 0, 0, 0])
    owners = {}
    for row in connection.execute(select(runs)):
        agent = owners[row.run_id] = agent_of(row.agent)
        if row.finished_at is None:
            continue
        result = load_result(row.result)
        begun = row.started_at or row.finished_at
        amounts = [
            *(int(row.status == name) for name in RunCounts.__struct_fields__[:6]),
            round(result.usage.cost * NANO),
            result.usage.prompt_tokens,
            result.usage.completion_tokens,
            result.usage.cached_tokens,
            max(0, (begun - row.created_at) // 1_000),
            max(0, (row.finished_at - begun) // 1_000),
        ]
        for key in (agent.tenant, agent):
            of_runs[key] = [a + b for a, b in zip(of_runs[key], amounts, strict=True)]
    for row in connection.execute(select(journal).where(journal.c.kind == "tool_finished")):
        data = load(row.data)
        if "tool" in data and data.get("error", {}).get("type") != "denied":
            sums, took = of_calls[owners[row.run_id].tenant, data["tool"]], data["duration_ms"]
            sums[:] = [sums[0] + 1, sums[1] + ("error" in data), sums[2] + took, max(sums[3], took)]
    return {key: RunCounts(*each) for key, each in of_runs.items()}, dict(of_calls)


async def applied(database, groups):
    await database.write(emptied)
    store = SqlStore(database, "keeper")
    for group in groups:
        await store.apply(group)
    span = (floored(START, Grain.DAY) - timedelta(days=1), START + timedelta(days=2))
    found, of_calls = {}, {}
    for tenant in TENANTS:
        for query in (
            RunUsage(tenant, *span),
            RunUsage(tenant, *span, by=UsageBy.AGENT),
            RunUsage(tenant, *span, Grain.MINUTE),
        ):
            buckets = await store.read(query)
            if query.grain is Grain.MINUTE:
                minutes = sum(each.counts.runs for each in buckets)
                assert minutes == (found[tenant].runs if tenant in found else 0)
            else:
                found |= {each.agent or tenant: each.counts for each in buckets}
        for each in await store.read(ToolUsage(tenant, *span)):
            counts = each.counts
            of_calls[tenant, each.tool] = [counts.calls, counts.failures, counts.running_ms, counts.longest_ms]
    return (found, of_calls), await database.read(summed)


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(beginning=first_commands, rest=st.lists(with_use(), max_size=25), size=st.integers(1, 20))
def test_what_was_counted_equals_the_sum_over_runs_and_journals(runner, databases, beginning, rest, size):  # noqa: F811
    everything = [*beginning, *rest]
    groups = [everything[at : at + size] for at in range(0, len(everything), size)]

    counted, expected = runner.run(applied(databases[0], groups))

    assert counted == expected


async def test_what_a_transaction_counted_that_was_not_committed_counts_once_when_it_is_repeated(store):
    await store.apply([submission("run_1"), activation("act_1")])
    await claimed(store)
    last = ending("run_1", 4, claim_next=False)
    end = replace(last, entries=(*called("run_1", 3, "look", 5).entries, *last.entries))
    engine = getattr(store._database, "_engine", None) or store._database._writing.sync_engine

    def kill(_connection):
        raise ConnectionResetError("killed before the commit")

    event.listen(engine, "commit", kill)
    with pytest.raises((StoreUnavailableError, ConnectionResetError)):
        await store.apply([end])
    event.remove(engine, "commit", kill)
    assert await store.read(used()) == []
    assert await store.read(calls()) == []

    assert await store.apply([end]) == [RunFinished(None)]
    assert await store.apply([end]) == [RunFinished(None)]
    (of_runs,), (of_calls,) = await store.read(used()), await store.read(calls())
    assert (of_runs.counts.runs, of_calls.counts.calls) == (1, 1)


async def test_a_command_that_cannot_be_applied_has_the_others_of_its_batch_counted_once(store):
    await store.apply([submission("run_1"), activation("act_1")])
    await claimed(store)

    impossible = replace(ending("run_9", claim_next=False), result=RunResult(RunStatus.QUEUED))
    outcomes = await store.apply([ending("run_1", claim_next=False), impossible])

    assert outcomes[0] == RunFinished(None)
    (bucket,) = await store.read(used())
    assert bucket.counts.runs == 1


async def test_counts_go_when_their_time_is_over_with_the_ends_of_later_runs(store, monkeypatch):
    monkeypatch.setattr(usage_rows, "_SWEEP_EVERY", 1)
    await store.apply([activation("act_1")])
    for number, days in enumerate((0, 1, 3, 93, 94)):
        at = NOW + timedelta(days=days)
        await ran(store, f"run_{number}", at=at)

    tables = {name: metadata.tables[name] for name in ("usage_of_tenants", "usage_of_agents")}
    rows = {
        name: await store._database.read(lambda c, t=table: c.execute(select(t)).all())
        for name, table in tables.items()
    }

    def days_of(found):
        return sorted((at - round(TODAY.timestamp() * 10**6)) // (86_400 * 10**6) for at in found)

    assert (timedelta(days=2), timedelta(days=92)) == (MINUTES_KEPT, KEPT)
    assert days_of(row.begins_at for row in rows["usage_of_tenants"] if row.seconds == 60) == [93, 94]
    assert days_of(row.begins_at for row in rows["usage_of_tenants"] if row.seconds == 3_600) == [3, 93, 94]
    assert days_of(row.begins_at for row in rows["usage_of_agents"]) == [3, 93, 94]


async def test_calls_go_when_their_time_is_over(store, monkeypatch):
    monkeypatch.setattr(usage_rows, "_SWEEP_EVERY", 1)
    await store.apply([submission("run_1"), activation("act_1")])
    await claimed(store)
    await one(store, called("run_1", 3, "look", 5))
    later = NOW + KEPT + timedelta(hours=2)
    await one(store, replace(ending("run_1", 4, claim_next=False), at=later))

    assert await store.read(calls()) == []


@pytest.mark.postgres
async def test_keepers_that_end_runs_at_the_same_time_count_each_once_and_do_not_wait_for_one_another(postgres_url):
    keepers = await asyncio.gather(*(open_store(postgres_url, writer=f"keeper-{each}") for each in (1, 2)))
    agents = [AgentRef.parse(f"trader:{number}") for number in range(20)]
    await keepers[0].apply([activation("act_1", agent) for agent in agents])

    async def lives(keeper, of_these):
        for turn in range(5):
            named = [(f"run_{turn}_{agent.agent_id}", agent) for agent in of_these]
            for run, agent in named:
                await ran(keeper, run, agent)
            ends = [ending(run, agent=agent, claim_next=False) for run, agent in named]
            await asyncio.gather(*(each.apply(ends) for each in keepers))

    await asyncio.gather(lives(keepers[0], agents[:10]), lives(keepers[1], agents[10:]))

    (bucket,) = await keepers[0].read(used())
    assert (bucket.counts.completed, bucket.counts.cost) == (100, 25 * NANO)
    writers = await keepers[0]._database.read(
        lambda connection: (
            connection.execute(select(metadata.tables["usage_of_tenants"].c.writer).distinct()).scalars().all()
        )
    )
    assert sorted(writers) == ["keeper-1", "keeper-2"]
    by_agent = await keepers[1].read(used(UsageBy.AGENT))
    assert [each.counts.completed for each in by_agent] == [5] * 20
    assert AGENT not in {each.agent for each in by_agent}
    await asyncio.gather(*(each.close() for each in keepers))
