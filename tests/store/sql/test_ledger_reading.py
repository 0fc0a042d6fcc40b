"""A whole ledger is read a part at a time, and what is found is what one read of everything finds."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.ledger import NotedHead, NotedHeads
from owlclaw_ray.errors import VerificationBusyError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.store.commands import AppendLedger
from owlclaw_ray.store.ledger_pages import ledger_breaks, ledger_records
from owlclaw_ray.store.queries import STRETCH, ChainPage, LedgerBreaks, LedgerFilter, LedgerStretch
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_ledger_contract import AGENT, NOW, record

COUNT = 2 * STRETCH + 30


class Watched:
    """Reads of a store, of which each is noted with the records that it returned; `before` is done before each."""

    def __init__(self, store):
        self._store, self.sizes, self.before = store, [], None

    async def read(self, query):
        if self.before is not None:
            await self.before()
        found = await self._store.read(query)
        rows = found.records if isinstance(found, ChainPage | LedgerStretch) else found
        self.sizes.append(len(rows))
        return found


def with_tool(number):
    made = record(number)
    return replace(made, data={"tool": "rare" if number % 200 == 0 else "common", "n": number})


@pytest.fixture
async def store(tmp_path):
    store = await open_store(str(tmp_path / "owlclaw.db"), writer="keeper")
    await store.apply([AppendLedger(tuple(with_tool(number) for number in range(1, COUNT + 1)))])
    yield store
    await store.close()


async def test_a_whole_ledger_is_verified_in_reads_of_few_records(store):
    watched = Watched(store)
    forged = NotedHead(NOW, AGENT.tenant, "keeper", COUNT - 3, "0" * 64)

    assert await ledger_breaks(watched, AGENT.tenant) == []
    assert (max(watched.sizes), sum(watched.sizes)) == (STRETCH, COUNT + 1)
    assert await ledger_breaks(store, AGENT.tenant, [forged]) == await store.read(LedgerBreaks(AGENT.tenant, [forged]))
    assert len(await ledger_breaks(store, AGENT.tenant, [forged])) == 1
    assert await ledger_breaks(store, TenantId("nobody"), [forged]) == []


async def test_what_is_appended_while_a_ledger_is_verified_is_no_break(store):
    watched, numbers = Watched(store), iter(range(COUNT + 1, COUNT + 3_000))

    async def append():
        await store.apply([AppendLedger(tuple(with_tool(next(numbers)) for _ in range(STRETCH)))])

    watched.before = append

    assert await ledger_breaks(watched, AGENT.tenant) == []
    assert len(watched.sizes) < 8


@pytest.mark.parametrize("newest_first", [False, True])
async def test_records_of_a_tool_are_looked_for_in_reads_of_few_records(store, newest_first):
    watched = Watched(store)
    where = LedgerFilter(AGENT.tenant, tool="rare", newest_first=newest_first)

    assert await ledger_records(watched, replace(where, tool="nothing")) == []
    assert len(watched.sizes) == 3
    found = await ledger_records(store, where)
    assert found == await store.read(where)
    assert sorted(each.record.data["n"] for each in found) == [200, 400]
    assert await ledger_records(store, replace(where, limit=1)) == found[:1]
    everything = LedgerFilter(AGENT.tenant, newest_first=newest_first)
    assert await ledger_records(watched, everything) == await store.read(everything)
    assert await ledger_records(watched, replace(everything, limit=STRETCH + 1)) == await store.read(
        replace(everything, limit=STRETCH + 1)
    )
    assert max(watched.sizes) == STRETCH


class OnlyLedger(Runtime):
    """A runtime that has a ledger and nothing else."""

    def __init__(self, store):
        self._store, self._noted_heads, self._verified = store, lambda: NotedHeads((), ()), set()


async def test_one_verification_of_a_tenant_runs_at_a_time(store):
    watched, goes_on = Watched(store), asyncio.Event()
    runtime = OnlyLedger(watched)
    watched.before = goes_on.wait
    first = asyncio.create_task(runtime.verify_ledger(AGENT.tenant))
    while not runtime._verified:
        await asyncio.sleep(0)

    with pytest.raises(VerificationBusyError, match="one at a time"):
        await runtime.verify_ledger(AGENT.tenant)
    other = asyncio.create_task(runtime.verify_ledger(TenantId("other")))
    goes_on.set()
    assert not (await first).breaks
    assert not (await other).breaks
    assert not (await runtime.verify_ledger(AGENT.tenant)).breaks


async def test_a_verification_that_is_cancelled_lets_the_next_one_begin(store):
    watched, never = Watched(store), asyncio.Event()
    runtime = OnlyLedger(watched)
    watched.before = never.wait
    given_up = asyncio.create_task(runtime.verify_ledger(AGENT.tenant))
    while not runtime._verified:
        await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait({given_up})
    watched.before = None

    assert not (await runtime.verify_ledger(AGENT.tenant)).breaks
