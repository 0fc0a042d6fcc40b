"""Memories that a runtime which did not count them has stored."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import create_engine, select

from owlclaw_ray.domain.memory import ACKNOWLEDGED
from owlclaw_ray.domain.quota import MEMORIES, Quotas
from owlclaw_ray.store.commands import MemoriesStored, PutTenant, QuotaReached
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.schema import memories
from tests.contracts.store_commands import one
from tests.contracts.store_memory_contract import appended, change, written
from tests.contracts.store_quota_contract import CLERK, tenant, used

TEXT = b"# Memory\n\n## mem_1 \xc2\xb7 2026-11-01\n\none\n\n---\n## By hand\n\ntwo\n\n---\n"


@pytest.fixture
async def store(tmp_path):
    opened = await open_store(f"sqlite:///{tmp_path / 'store.db'}", writer="keeper-1")
    yield opened
    await opened.close()


def forget_counts(tmp_path):
    """Leave the documents as a runtime leaves them that knows no numbers of memories."""
    engine = create_engine(f"sqlite:///{tmp_path / 'store.db'}")
    with engine.begin() as connection:
        for agent, text in connection.execute(select(memories.c.agent, memories.c.documents)).all():
            plain = {
                name: {key: value for key, value in each.items() if key != "memories"}
                for name, each in msgspec.json.decode(text).items()
            }
            told = memories.update().where(memories.c.agent == agent)
            connection.execute(told.values(documents=msgspec.json.encode(plain).decode()))
    engine.dispose()


async def test_they_are_counted_by_their_headings_when_the_quota_is_given_and_by_what_is_said_from_then_on(
    store, tmp_path
):
    made = tenant(Quotas())
    await one(store, made)
    await one(store, change(0, written(TEXT, memories=2), written(b"## x", ACKNOWLEDGED), agent=CLERK))
    forget_counts(tmp_path)
    await one(store, change(1, appended(b"## mem_3\n\nthree\n\n---\n", memories=1), agent=CLERK))

    await one(store, PutTenant(replace(made.tenant, quotas=Quotas(memories=4)), made.tenant))
    counted = await used(store, MEMORIES)
    more = await one(store, change(2, appended(b"## mem_4\n\nfour\n\n---\n", memories=1), agent=CLERK))
    refused = await one(store, change(3, appended(b"## mem_5\n\nfive\n\n---\n", memories=1), agent=CLERK))

    assert (counted, more, refused) == (3, MemoriesStored(3), QuotaReached("memories", 4))
    assert await used(store, MEMORIES) == 4


async def test_what_an_older_runtime_writes_under_the_quota_counts_once_from_the_next_change_on(store, tmp_path):
    await one(store, tenant(Quotas(memories=4)))
    await one(store, change(0, written(TEXT, memories=2), agent=CLERK))
    forget_counts(tmp_path)

    await one(store, change(1, written(TEXT + b"## mem_3\n\nthree\n\n---\n", memories=3), agent=CLERK))
    whole = await used(store, MEMORIES)
    forget_counts(tmp_path)
    await one(store, change(2, appended(b"## mem_4\n\nfour\n\n---\n", memories=1), agent=CLERK))

    assert (whole, await used(store, MEMORIES)) == (3, 4)
