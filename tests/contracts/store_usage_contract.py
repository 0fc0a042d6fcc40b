"""What every Store promises about counting what runs and tool calls came to, as tests."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import NANO
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.run import RunResult, RunStatus, Usage
from owlclaw_ray.domain.usage import Grain, RunBucket, RunCounts, ToolBucket, ToolCounts, UsageBy, floored
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AppendJournal,
    CancelRun,
    ClaimRun,
    FinishRun,
    IdleHeartbeat,
    RunFinished,
    StaleEpoch,
)
from owlclaw_ray.store.usage import RunUsage, ToolUsage
from tests.contracts.store_commands import AGENT, NOW, OTHER, activation, claimed, ending, one, submission

DAY = timedelta(days=1)
TODAY = floored(NOW, Grain.DAY)
FOREIGN = AgentRef.parse("trader:AAPL", TenantId("acme"))


def used(
    by: UsageBy = UsageBy.NONE, grain: Grain = Grain.TOTAL, days: int = 1, *agents: AgentRef, limit: int = 100
) -> RunUsage:
    """Return the query of these days from TODAY on."""
    return RunUsage(AGENT.tenant, TODAY, TODAY + days * DAY, grain, by, agents, limit)


def calls(grain: Grain = Grain.TOTAL, tenant: TenantId = AGENT.tenant) -> ToolUsage:
    """Return the query of a tenant's tools from TODAY on."""
    return ToolUsage(tenant, TODAY, TODAY + 3 * DAY, grain)


def result(status: RunStatus = RunStatus.COMPLETED, cost: float = 0.25) -> RunResult:
    """Return an end that used 10 tokens for the prompt, 4 of them cached, and 5 for the reply."""
    return RunResult(status, usage=Usage(10, 5, 4, cost))


async def ran(
    store: Store, run_id: str, agent: AgentRef = AGENT, end: RunResult | None = None, at: datetime = NOW
) -> FinishRun:
    """Have an active agent execute a run that is accepted two seconds before it begins and ends three seconds later, at that time."""
    begun = at - timedelta(seconds=3)
    await store.apply(
        [
            replace(submission(run_id, agent), at=begun - timedelta(seconds=2)),
            ClaimRun(agent, 1, begun),
        ]
    )
    finish = replace(ending(run_id, agent=agent, claim_next=False), result=end or result(), at=at)
    assert await one(store, finish) == RunFinished(None)
    return finish


def called(
    run_id: str, seq: int, tool: str, took: int, error: str = "", *, at: datetime = NOW, agent: AgentRef = AGENT
) -> AppendJournal:
    """Return the end of a call, as the entry of that number."""
    data: JsonObject = {"call_id": f"c{seq}", "tool": tool, "arguments": "{}", "duration_ms": took}
    data |= {"error": {"type": error, "message": "no"}} if error else {"content": 1}
    return AppendJournal(RunId(run_id), agent, 1, (JournalEntry(seq, EntryKind.TOOL_FINISHED, at, data),))


class UsageContract:
    """Counting what runs and tool calls came to."""

    async def test_a_run_that_ended_is_counted_with_all_that_it_used_for_its_agent_and_its_tenant(
        self, store: Store
    ) -> None:
        await store.apply([activation("act_1"), activation("act_1", OTHER), activation("act_1", FOREIGN)])
        await ran(store, "run_1")
        await ran(store, "run_2", end=result(RunStatus.FAILED, 0.5))
        await ran(store, "run_3", OTHER, result(cost=2.0))
        await ran(store, "run_4", FOREIGN)

        first = RunCounts(1, 1, 0, 0, 0, 0, 3 * NANO // 4, 20, 10, 8, 4_000, 6_000)
        second = RunCounts(1, 0, 0, 0, 0, 0, 2 * NANO, 10, 5, 4, 2_000, 3_000)
        all_ = RunCounts(2, 1, 0, 0, 0, 0, 11 * NANO // 4, 30, 15, 12, 6_000, 9_000)
        assert await store.read(used()) == [RunBucket(all_)]
        assert await store.read(used(UsageBy.AGENT)) == [RunBucket(second, agent=OTHER), RunBucket(first, agent=AGENT)]
        assert await store.read(used(UsageBy.DEFINITION)) == [RunBucket(all_, definition="trader")]
        assert await store.read(used(UsageBy.NONE, Grain.DAY, 1, AGENT)) == [RunBucket(first, TODAY)]
        assert await store.read(used(UsageBy.AGENT, Grain.TOTAL, 1, AGENT, FOREIGN)) == [RunBucket(first, agent=AGENT)]
        assert await store.read(used(UsageBy.AGENT, limit=1)) == [RunBucket(second, agent=OTHER)]
        assert (first.runs, first.failures) == (2, 1)

    async def test_a_run_counts_in_the_minute_the_hour_and_the_day_in_which_it_ended(self, store: Store) -> None:
        await store.apply([activation("act_1")])
        ends = [NOW, NOW + timedelta(seconds=59.999999), NOW + timedelta(minutes=1), TODAY + DAY, TODAY + 2 * DAY]
        for number, at in enumerate(ends):
            await ran(store, f"run_{number}", at=at)

        def times(grain: Grain, by: UsageBy = UsageBy.NONE, days: int = 2) -> RunUsage:
            return used(by, grain, days)

        async def found(query: RunUsage) -> list[tuple[datetime | None, int]]:
            return [(each.begins_at, each.counts.completed) for each in await store.read(query)]

        minute, hour = timedelta(minutes=1), floored(NOW, Grain.HOUR)
        assert await found(times(Grain.MINUTE)) == [(NOW, 2), (NOW + minute, 1), (TODAY + DAY, 1)]
        assert await found(times(Grain.HOUR)) == [(hour, 3), (TODAY + DAY, 1)]
        assert await found(times(Grain.DAY)) == [(TODAY, 3), (TODAY + DAY, 1)]
        assert await found(times(Grain.DAY, UsageBy.AGENT)) == [(TODAY, 3), (TODAY + DAY, 1)]
        assert await found(times(Grain.TOTAL, days=3)) == [(None, 5)]
        assert await found(replace(times(Grain.MINUTE), since=NOW + minute, until=NOW + 2 * minute)) == [
            (NOW + minute, 1)
        ]

    async def test_nothing_is_found_where_nothing_ended(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])

        for query in (used(), used(UsageBy.AGENT), used(UsageBy.NONE, Grain.HOUR)):
            assert await store.read(query) == []
        assert await store.read(calls()) == []

    async def test_an_end_that_is_sent_again_or_comes_too_late_counts_nothing(self, store: Store) -> None:
        await store.apply([activation("act_1")])
        finish = await ran(store, "run_1")
        once = await store.read(used())

        assert await store.apply([finish, finish]) == [RunFinished(None)] * 2
        await store.apply([submission("run_2"), ClaimRun(AGENT, 1, NOW)])
        await store.apply([activation("act_2"), ClaimRun(AGENT, 2, NOW)])
        late = ending("run_2", claim_next=False)
        assert await one(store, late) == StaleEpoch(AGENT, 2)
        assert await store.read(used()) == once

        assert await one(store, replace(late, epoch=2, entries=())) == RunFinished(None)
        assert await one(store, late) == StaleEpoch(AGENT, 2)
        (bucket,) = await store.read(used())
        assert bucket.counts.runs == 2

    async def test_runs_of_one_agent_and_of_several_in_one_batch_are_all_counted(self, store: Store) -> None:
        agents = [AgentRef.parse(f"trader:{number}") for number in range(7)]
        await store.apply([activation("act_1", agent) for agent in agents])
        for of_each in range(3):
            runs = [(f"run_{of_each}_{agent.agent_id}", agent) for agent in agents]
            await store.apply([submission(*each) for each in runs])
            await store.apply([ClaimRun(agent, 1, NOW) for agent in agents])
            outcomes = await store.apply([ending(run, agent=agent, claim_next=False) for run, agent in runs])
            assert outcomes == [RunFinished(None)] * 7

        (all_,) = await store.read(used())
        assert all_.counts.completed == 21
        by_agent = await store.read(used(UsageBy.AGENT))
        assert [(each.agent, each.counts.completed) for each in by_agent] == [(agent, 3) for agent in agents]

    async def test_a_run_that_is_cancelled_before_it_began_waited_all_its_time(self, store: Store) -> None:
        later = NOW + timedelta(seconds=4)
        await store.apply([submission("run_1"), CancelRun(AGENT.tenant, RunId("run_1"), later)])
        await store.apply([CancelRun(AGENT.tenant, RunId("run_1"), later)])

        assert await store.read(used()) == [RunBucket(RunCounts(cancelled=1, queued_ms=4_000))]

    async def test_a_heartbeat_that_found_nothing_to_do_is_no_run_of_which_anything_is_counted(
        self, store: Store
    ) -> None:
        await store.apply([submission("run_1"), activation("act_1"), ClaimRun(AGENT, 1, NOW)])
        idle = replace(
            ending("run_1", claim_next=False), result=RunResult(RunStatus.SKIPPED), idle=IdleHeartbeat(None, 60)
        )

        assert await one(store, idle) == RunFinished(None)
        assert await store.read(used()) == []

    async def test_what_cannot_be_a_number_of_one_run_keeps_no_run_from_ending(self, store: Store) -> None:
        await store.apply([activation("act_1")])
        for number, usage in enumerate((Usage(2**62, -1, 0, 1e300), Usage(2**62, 0, 0, 1e300), Usage(cost=-1.0))):
            await ran(store, f"run_{number}", end=RunResult(RunStatus.COMPLETED, usage=usage))

        (bucket,) = await store.read(used())
        assert (bucket.counts.completed, bucket.counts.cost, bucket.counts.completion_tokens) == (3, 2 * 10**15, 0)

    async def test_calls_are_counted_by_tool_with_their_failures_and_how_long_they_took(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)
        hour = floored(NOW, Grain.HOUR)
        for seq, (tool, took, error) in enumerate(
            [
                ("look", 5, ""),
                ("look", 100, ""),
                ("look", 101, "timeout"),
                ("look", 10_000, ""),
                ("look", 60_001, "execution_failed"),
                ("send", 3, ""),
            ],
            start=3,
        ):
            await one(store, called("run_1", seq, tool, took, error))
        await one(store, called("run_1", 9, "send", 4, at=hour + timedelta(hours=1)))

        look = ToolCounts(5, 2, 70_207, 60_001, 2, 1, 1, 0, 1)
        send = ToolCounts(2, 0, 7, 4, 2)
        assert await store.read(calls()) == [ToolBucket(look, "look"), ToolBucket(send, "send")]
        by_hour = [
            ToolBucket(look, "look", hour),
            ToolBucket(ToolCounts(1, 0, 3, 3, 1), "send", hour),
            ToolBucket(ToolCounts(1, 0, 4, 4, 1), "send", hour + timedelta(hours=1)),
        ]
        assert await store.read(calls(Grain.HOUR)) == by_hour
        assert await store.read(calls(tenant=FOREIGN.tenant)) == []

    async def test_a_call_counts_once_however_often_its_end_is_sent_and_also_with_the_end_of_its_run(
        self, store: Store
    ) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)
        call = called("run_1", 3, "look", 5)
        last = called("run_1", 4, "look", 6)
        end = replace(ending("run_1", 5, claim_next=False), entries=(*last.entries, *ending("run_1", 5).entries))

        await store.apply([call, call])
        await one(store, replace(call, entries=(*call.entries, *last.entries)))
        await store.apply([replace(end, entries=(*call.entries, *end.entries)), end])
        await one(store, end)

        assert await store.read(calls()) == [ToolBucket(ToolCounts(2, 0, 11, 6, 2), "look")]

    async def test_of_calls_that_end_in_one_commit_the_longest_is_told_and_all_others_are_summed(
        self, store: Store
    ) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)

        await store.apply([called("run_1", 3, "look", 5), called("run_1", 4, "look", 9), called("run_1", 5, "look", 6)])

        assert await store.read(calls()) == [ToolBucket(ToolCounts(3, 0, 20, 9, 3), "look")]

    async def test_calls_that_were_not_made_say_nothing_of_a_tool(self, store: Store) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)
        for seq, error in enumerate(("tool_not_available", "not_executed", "denied", "budget_exhausted"), start=3):
            await one(store, called("run_1", seq, f"invented_{seq}", 0, error))

        assert await store.read(calls()) == []

    async def test_a_run_that_another_activation_takes_over_is_counted_once_with_the_calls_of_both(
        self, store: Store
    ) -> None:
        await store.apply([submission("run_1"), activation("act_1")])
        await claimed(store)
        await one(store, called("run_1", 3, "look", 5))
        await one(store, ActivateAgent(AGENT, activation("act_2").activation_id, NOW, claim=True))

        again = replace(called("run_1", 5, "look", 7), epoch=2)
        outcomes = await store.apply([called("run_1", 4, "look", 6), again, again])
        assert outcomes[0] == StaleEpoch(AGENT, 2)
        await one(store, ending("run_1", 6, epoch=2, claim_next=False))

        assert await store.read(calls()) == [ToolBucket(ToolCounts(2, 0, 12, 7, 2), "look")]
        (bucket,) = await store.read(used())
        assert bucket.counts.runs == 1
