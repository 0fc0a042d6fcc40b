"""Reads a whole ledger a part at a time, so that no read of others waits longer than for one part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from owlclaw_ray.domain.ledger import ChainBreak, ChainedRecord, NotedHead
from owlclaw_ray.ids import TenantId
from owlclaw_ray.ledger.chain import ChainCheck, ChainHead
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.queries import STRETCH, LedgerFilter, LedgerWriters, NextChainPage, NextLedgerStretch


async def ledger_records(store: QueryStore, where: LedgerFilter) -> Sequence[ChainedRecord]:
    """Return the records that match, in the order that is asked for. Raises StoreUnavailableError."""
    if where.tool is None and where.limit <= STRETCH:
        return await store.read(where)
    found = list[ChainedRecord]()
    while True:
        stretch = await store.read(NextLedgerStretch(replace(where, limit=where.limit - len(found))))
        found += stretch.records
        if stretch.following is None or len(found) >= where.limit:
            return found
        where = replace(where, after=stretch.following)


async def ledger_breaks(store: QueryStore, tenant: TenantId, noted: Sequence[NotedHead] = ()) -> Sequence[ChainBreak]:
    """Return every place where a chain of the tenant is broken, as LedgerBreaks does, of what it had when the chain's turn came.

    Raises StoreUnavailableError.
    """
    own = [head for head in noted if head.tenant == tenant]
    writers = {*await store.read(LedgerWriters(tenant)), *(head.writer for head in own)}
    breaks = list[ChainBreak]()
    for writer in sorted(writers):
        breaks += await _chain_breaks(store, tenant, writer, [head for head in own if head.writer == writer])
    return breaks


async def _chain_breaks(
    store: QueryStore, tenant: TenantId, writer: str, noted: Sequence[NotedHead]
) -> Sequence[ChainBreak]:
    """Verify a chain up to the end that it has now: what is appended meanwhile is not looked at. Without that, a page that reaches behind
    the recorded end has records that nobody appended rightly.
    """
    check, first, after = ChainCheck(tenant, writer, noted), None, -1
    while True:
        page = await store.read(NextChainPage(tenant, writer, after))
        first = first or page.head
        grown = page.head.position > first.position
        records = [each for each in page.records if not grown or each.position <= first.position]
        await asyncio.to_thread(check.follow, records)
        if len(page.records) < STRETCH or len(records) < len(page.records):
            end: ChainHead = first if grown else page.head
            return await asyncio.to_thread(check.finish, end)
        after = page.records[-1].position
