from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from owlclaw_ray.ports.store import AppendLedger, LedgerFilter
from owlclaw_ray.testing.store_ledger_contract import AGENT, record

_RECORD = "tenant, writer, position, record_id, agent, run_id, kind, at, data, previous_hash, hash"
REFUSED = {
    "changed": "UPDATE ledger SET data = '{}' WHERE position = 2",
    "removed": "DELETE FROM ledger WHERE position = 2",
    "all removed": "DELETE FROM ledger",
    "a head removed": "DELETE FROM ledger_heads",
    "a head turned back": "UPDATE ledger_heads SET position = position - 1",
    "a head exchanged": "UPDATE ledger_heads SET hash = 'forged'",
    "a head given away": "UPDATE ledger_heads SET writer = 'somebody', position = position + 1",
}
REFUSED_BY_POSTGRESQL = {
    "truncated": "TRUNCATE ledger",
    "truncated with others": "TRUNCATE agents, ledger",
    "heads truncated": "TRUNCATE ledger_heads",
}
REFUSED_BY_SQLITE = {
    "replaced by its place": (
        f"INSERT OR REPLACE INTO ledger ({_RECORD}) SELECT tenant, writer, position, 'rec_9', agent, run_id, kind, at, '{{}}', "
        "previous_hash, hash FROM ledger WHERE position = 2"
    ),
    "replaced by its name": (
        f"INSERT OR REPLACE INTO ledger ({_RECORD}) SELECT tenant, writer, 9, record_id, agent, run_id, kind, at, '{{}}', "
        "previous_hash, hash FROM ledger WHERE position = 2"
    ),
    "replaced by its row": (
        f"INSERT OR REPLACE INTO ledger (id, {_RECORD}) SELECT id, tenant, writer, 9, 'rec_9', agent, run_id, kind, at, '{{}}', "
        "previous_hash, hash FROM ledger WHERE position = 2"
    ),
    "a head replaced": "INSERT OR REPLACE INTO ledger_heads SELECT tenant, writer, position, 'forged' FROM ledger_heads",
}


@pytest.fixture
async def filled(store):
    await store.apply([AppendLedger(tuple(record(number) for number in range(1, 4)))])
    return store


async def refused(store, statement):
    with pytest.raises(DBAPIError, match="the ledger is append-only: "):
        await store._database.write(lambda connection: connection.execute(text(statement)))
    found = await store.ledger(LedgerFilter(AGENT.tenant))
    assert [each.record for each in found] == [record(number) for number in range(1, 4)]
    assert await store.verify_ledger(AGENT.tenant) == []


@pytest.mark.parametrize("statement", REFUSED.values(), ids=REFUSED.keys())
async def test_the_database_refuses_what_is_not_an_addition(filled, statement):
    await refused(filled, statement)


@pytest.mark.postgres
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("statement", REFUSED_BY_POSTGRESQL.values(), ids=REFUSED_BY_POSTGRESQL.keys())
async def test_postgresql_refuses_to_truncate(filled, statement):
    await refused(filled, statement)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("statement", REFUSED_BY_SQLITE.values(), ids=REFUSED_BY_SQLITE.keys())
async def test_sqlite_refuses_to_replace(filled, statement):
    await refused(filled, statement)


async def test_additions_go_on(filled):
    await filled.apply([AppendLedger((record(4),)), AppendLedger((record(4), record(5)))])

    assert len(await filled.ledger(LedgerFilter(AGENT.tenant))) == 5
    assert await filled.verify_ledger(AGENT.tenant) == []
