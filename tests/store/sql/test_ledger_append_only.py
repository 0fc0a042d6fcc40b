from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from owlclaw_ray.store.commands import AppendLedger
from owlclaw_ray.store.queries import LedgerBreaks, LedgerFilter, MissingLedgerGuards
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_ledger_contract import AGENT, record

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
    found = await store.read(LedgerFilter(AGENT.tenant))
    assert [each.record for each in found] == [record(number) for number in range(1, 4)]
    assert await store.read(LedgerBreaks(AGENT.tenant)) == []


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

    assert len(await filled.read(LedgerFilter(AGENT.tenant))) == 5
    assert await filled.read(LedgerBreaks(AGENT.tenant)) == []


DROPPED = {
    "sqlite": ("DROP TRIGGER ledger_no_delete", "DROP TRIGGER ledger_heads_move_on"),
    "postgresql": (
        "DROP TRIGGER ledger_append_only ON ledger",
        "ALTER TABLE ledger_heads DISABLE TRIGGER ledger_heads_move_on",
    ),
}
LOST = {
    "sqlite": ["ledger_no_delete", "ledger_heads_move_on"],
    "postgresql": ["ledger_append_only", "ledger_heads_move_on"],
}
EMPTIED = {
    "sqlite": (
        "DROP TRIGGER ledger_no_update",
        "CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT 1; END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION owlclaw_refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    ),
}


async def execute(store, statements):
    for statement in statements:
        await store._database.write(lambda connection, given=statement: connection.execute(text(given)))


async def test_a_store_says_which_of_its_guards_are_gone_and_has_them_again_when_it_is_opened(
    filled, store_url, caplog
):
    kind = "postgresql" if store_url.startswith("postgresql") else "sqlite"
    assert await filled.read(MissingLedgerGuards()) == []
    await execute(filled, DROPPED[kind])
    assert await filled.read(MissingLedgerGuards()) == LOST[kind]

    again = await open_store(store_url, writer="again")

    assert again.restored_guards == tuple(LOST[kind])
    assert await again.read(MissingLedgerGuards()) == []
    assert f"had lost what keeps the ledger append-only ({', '.join(LOST[kind])}); it was put back" in caplog.text
    await refused(filled, "DELETE FROM ledger WHERE position = 2")
    await again.close()


async def test_a_guard_that_guards_nothing_is_missing(filled, store_url):
    kind = "postgresql" if store_url.startswith("postgresql") else "sqlite"
    await execute(filled, EMPTIED[kind])
    assert await filled.read(MissingLedgerGuards()) == [
        {"sqlite": "ledger_no_update", "postgresql": "owlclaw_refuse_ledger_change"}[kind]
    ]

    await (await open_store(store_url, writer="again")).close()

    await refused(filled, "UPDATE ledger SET data = '{}' WHERE position = 2")


WEAKENED = {
    "ledger_append_only": "BEFORE TRUNCATE ON ledger FOR EACH STATEMENT EXECUTE FUNCTION owlclaw_refuse_ledger_change()",
    "ledger_heads_move_on": "BEFORE UPDATE ON ledger_heads FOR EACH ROW WHEN (false) EXECUTE FUNCTION owlclaw_refuse_ledger_change()",
    "ledger_heads_no_delete": "BEFORE DELETE OR TRUNCATE ON ledger_heads FOR EACH STATEMENT EXECUTE FUNCTION "
    "suppress_redundant_updates_trigger()",
}


@pytest.mark.postgres
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("name", WEAKENED)
async def test_a_weaker_trigger_of_the_same_name_is_missing(filled, store_url, name):
    table = "ledger" if name == "ledger_append_only" else "ledger_heads"
    await execute(filled, (f"DROP TRIGGER {name} ON {table}", f"CREATE TRIGGER {name} {WEAKENED[name]}"))
    assert await filled.read(MissingLedgerGuards()) == [name]

    await (await open_store(store_url, writer="again")).close()

    assert await filled.read(MissingLedgerGuards()) == []
