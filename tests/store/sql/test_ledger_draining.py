"""Records are written in batches, and all of them are there after a stop."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from owlclaw_ray.store.commands import AppendLedger
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.queries import LedgerBreaks, LedgerFilter
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_ledger_contract import AGENT, record

TOLD = 500


class Counted:
    """A store that counts its transactions."""

    def __init__(self, store):
        self._store = store
        self.transactions = 0

    async def apply(self, commands):
        self.transactions += 1
        return await self._store.apply(commands)


async def test_a_stop_writes_every_record_that_was_handed_over(store_url):
    store = await open_store(store_url, writer="keeper-1")
    counted = Counted(store)
    commits = GroupCommit(counted, linger=3_600)
    told = [asyncio.create_task(commits.apply([AppendLedger((record(number),))])) for number in range(TOLD)]
    await asyncio.sleep(0)

    await commits.close()
    await store.close()

    assert all(task.done() and task.exception() is None for task in told)
    assert counted.transactions <= 1 + TOLD // 100
    reopened = await open_store(store_url, writer="keeper-1")
    found = await reopened.read(LedgerFilter(AGENT.tenant))
    assert [each.record for each in found] == [record(number) for number in range(TOLD)]
    assert await reopened.read(LedgerBreaks(AGENT.tenant)) == []
    await reopened.close()


async def test_what_was_sent_again_because_the_answer_was_lost_is_there_once(store):
    commits = GroupCommit(store)
    again = [replace(record(number), at=record(number + 7).at) for number in range(20)]

    await asyncio.gather(*(commits.apply([AppendLedger((record(number),))]) for number in range(20)))
    await asyncio.gather(*(commits.apply([AppendLedger((each,))]) for each in again))
    await commits.close()

    found = await store.read(LedgerFilter(AGENT.tenant))
    assert [each.record for each in found] == [record(number) for number in range(20)]
