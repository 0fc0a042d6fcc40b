"""What every Store promises about the ledger, as tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.domain.ledger import ChainedRecord, LedgerKind, LedgerRecord
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import ActivationId, RecordId, RunId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import (
    ActivateAgent,
    AppendJournal,
    AppendLedger,
    CancelRun,
    ClaimRun,
    LedgerAppended,
    SubmitRun,
)
from owlclaw_ray.store.queries import JournalOfRun, LedgerBreaks, LedgerChain, LedgerChains, LedgerFilter, LedgerPlace

NOW = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
AGENT = AgentRef.parse("trader:AAPL")
OTHER = AgentRef.parse("trader:AAPL", TenantId("租户/二"))


def record(number: int, agent: AgentRef = AGENT, kind: LedgerKind = LedgerKind.DECISION) -> LedgerRecord:
    """Return a record; records of higher numbers are later."""
    at = NOW + timedelta(microseconds=number)
    data = {"z": 1.0, "a": ["理由\x00", {"y": None, "b": -0.0}], "n": number}
    return LedgerRecord(
        RecordId(f"rec_{number}"), agent.tenant, agent.agent_id, RunId(f"run_{number % 2}"), kind, at, data
    )


class LedgerContract:
    """The ledger and its chains."""

    async def test_records_come_back_in_order_with_their_chain(self, store: Store) -> None:
        records = tuple(record(number) for number in range(5))

        assert await store.apply([AppendLedger(records[:3]), AppendLedger(records[3:])]) == [LedgerAppended()] * 2

        found = await store.read(LedgerFilter(AGENT.tenant))
        assert tuple(each.record for each in found) == records
        assert [each.position for each in found] == [1, 2, 3, 4, 5]
        assert [each.previous_hash for each in found[1:]] == [each.hash for each in found[:-1]]
        assert await store.read(LedgerBreaks(AGENT.tenant)) == []

    async def test_a_record_is_there_once(self, store: Store) -> None:
        await store.apply([AppendLedger((record(1),)), AppendLedger((record(1), record(2)))])
        await store.apply([AppendLedger((record(2), record(3)))])

        assert [each.record for each in await store.read(LedgerFilter(AGENT.tenant))] == [
            record(1),
            record(2),
            record(3),
        ]
        assert await store.read(LedgerBreaks(AGENT.tenant)) == []

    async def test_the_ledger_is_filtered(self, store: Store) -> None:
        stranger = AgentRef.parse("watcher")
        records = (record(1), record(2, kind=LedgerKind.RUN), record(3, stranger), record(4, OTHER))
        await store.apply([AppendLedger(records)])

        async def found(where: LedgerFilter) -> list[str]:
            return [each.record.record_id for each in await store.read(where)]

        assert await found(LedgerFilter(AGENT.tenant)) == ["rec_1", "rec_2", "rec_3"]
        assert await found(LedgerFilter(AGENT.tenant, agent=AGENT)) == ["rec_1", "rec_2"]
        assert await found(LedgerFilter(AGENT.tenant, run_id=RunId("run_1"))) == ["rec_1", "rec_3"]
        assert await found(LedgerFilter(AGENT.tenant, kind=LedgerKind.RUN)) == ["rec_2"]
        assert await found(LedgerFilter(AGENT.tenant, limit=1)) == ["rec_1"]
        assert await found(LedgerFilter(AGENT.tenant, agent=OTHER)) == []

    async def test_the_ledger_is_filtered_by_tool(self, store: Store) -> None:
        tools = ("shop.reorder", "recall", 'odd_"100%"_工具', "SHOP.REORDER")
        calls = [replace(record(number), data={"tool": tool}) for number, tool in enumerate(tools)]
        nested = replace(record(8), data={"content": {"tool": tools[0]}, "tool": tools[1]})
        await store.apply([AppendLedger((*calls, nested, record(9)))])

        for number, tool in enumerate(tools):
            found = await store.read(LedgerFilter(AGENT.tenant, tool=tool))
            expected = [calls[number], nested] if tool == "recall" else [calls[number]]
            assert [each.record for each in found] == expected
        assert await store.read(LedgerFilter(AGENT.tenant, tool="tool")) == []

    async def test_the_ledger_is_filtered_by_time(self, store: Store) -> None:
        await store.apply([AppendLedger(tuple(record(number) for number in range(1, 6)))])

        where = LedgerFilter(AGENT.tenant, since=record(2).at, until=record(4).at)
        assert [each.record for each in await store.read(where)] == [record(2), record(3)]

    async def test_the_ledger_is_read_in_pages(self, store: Store) -> None:
        same_time = [replace(record(number), at=NOW) for number in range(7)]
        await store.apply([AppendLedger((*same_time, record(7), record(8)))])
        everything = await store.read(LedgerFilter(AGENT.tenant))

        pages: list[ChainedRecord] = []
        where = LedgerFilter(AGENT.tenant, limit=2)
        while page := await store.read(where):
            pages += page
            where = replace(where, after=LedgerPlace.of(page[-1]))

        assert pages == everything
        assert [each.record for each in everything] == [*same_time, record(7), record(8)]

    async def test_the_ledger_is_read_in_pages_from_its_end_too(self, store: Store) -> None:
        same_time = [replace(record(number), at=NOW) for number in range(7)]
        await store.apply([AppendLedger((*same_time, record(7), record(8)))])
        everything = await store.read(LedgerFilter(AGENT.tenant))

        pages: list[ChainedRecord] = []
        where = LedgerFilter(AGENT.tenant, limit=2, newest_first=True)
        while page := await store.read(where):
            pages += page
            where = replace(where, after=LedgerPlace.of(page[-1]))

        assert pages == everything[::-1]

    async def test_records_of_one_tool_are_found_among_many_others(self, store: Store) -> None:
        rare = [replace(record(number), data={"tool": "rare"}) for number in (3, 900, 1_203)]
        usual = [replace(record(number), data={"content": {"tool": "rare"}}) for number in range(1_203)]
        await store.apply(
            [AppendLedger((*(each for each in usual if each.record_id not in {"rec_3", "rec_900"}), *rare))]
        )

        first = await store.read(LedgerFilter(AGENT.tenant, tool="rare", limit=2))
        rest = await store.read(LedgerFilter(AGENT.tenant, tool="rare", limit=2, after=LedgerPlace.of(first[-1])))

        assert [each.record for each in (*first, *rest)] == rare

    async def test_the_ends_of_the_chains_are_known(self, store: Store) -> None:
        await store.apply([AppendLedger((record(1), record(2, OTHER), record(3)))])

        last = (await store.read(LedgerFilter(AGENT.tenant)))[-1]
        assert await store.read(LedgerChains(AGENT.tenant)) == [LedgerChain(last.writer, 2, last.hash)]
        assert await store.read(LedgerChains(TenantId("nobody"))) == []

    async def test_each_tenant_has_its_own_chain(self, store: Store) -> None:
        await store.apply([AppendLedger((record(1), record(2, OTHER), record(3)))])

        [strange] = await store.read(LedgerFilter(OTHER.tenant))
        assert (strange.record, strange.position) == (record(2, OTHER), 1)
        assert await store.read(LedgerBreaks(OTHER.tenant)) == []

    async def test_records_are_committed_with_their_journal_entries(self, store: Store) -> None:
        run_id = RunId("run_1")
        await store.apply(
            [
                SubmitRun(run_id, AGENT, Trigger(TriggerKind.API), NOW),
                ActivateAgent(AGENT, ActivationId("act_1"), NOW),
                ClaimRun(AGENT, 1, NOW),
            ]
        )
        facts = (JournalEntry(3, EntryKind.MODEL_REPLIED, NOW, {}),)
        command = AppendJournal(run_id, AGENT, 1, facts, (record(1), record(3)))

        await store.apply([command, command])
        await store.apply([command])

        assert [each.record for each in await store.read(LedgerFilter(AGENT.tenant))] == [record(1), record(3)]

    async def test_secrets_stay_in_the_journal_and_out_of_the_ledger(self, store: Store) -> None:
        run_id, data = RunId("run_1"), {"arguments": '{"user": "猫", "password": "hunter2"}', "n": 1}
        await store.apply(
            [
                SubmitRun(run_id, AGENT, Trigger(TriggerKind.API), NOW),
                ActivateAgent(AGENT, ActivationId("act_1"), NOW),
                ClaimRun(AGENT, 1, NOW),
            ]
        )
        facts = (JournalEntry(3, EntryKind.TOOL_FINISHED, NOW, data),)

        await store.apply(
            [
                AppendJournal(run_id, AGENT, 1, facts, (replace(record(1), data=data),)),
                AppendLedger((replace(record(2), data={"sk-0123456789abcdef": ["Bearer 0123456789abcdef"]}),)),
            ]
        )

        told = [each.record.data for each in await store.read(LedgerFilter(AGENT.tenant))]
        assert told == [
            {"arguments": '{"user": "猫", "password": "[redacted:password]"}', "n": 1},
            {"[redacted:api_key]": ["Bearer [redacted:bearer_token]"]},
        ]
        assert (await store.read(JournalOfRun(AGENT.tenant, run_id)))[-1].data == data
        assert await store.read(LedgerBreaks(AGENT.tenant)) == []

    async def test_a_run_cancelled_in_the_queue_is_in_the_ledger(self, store: Store) -> None:
        run_id = RunId("run_1")
        await store.apply([SubmitRun(run_id, AGENT, Trigger(TriggerKind.API), NOW)])

        await store.apply([CancelRun(AGENT.tenant, run_id, NOW)] * 2)

        [ended] = await store.read(LedgerFilter(AGENT.tenant, run_id=run_id))
        assert (ended.record.kind, ended.record.data["status"]) == (LedgerKind.RUN, "cancelled")
