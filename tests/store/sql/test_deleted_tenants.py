"""Deleting a tenant from a database: everything of it goes, nothing of others, and nothing comes after."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import access_record
from owlclaw_ray.domain.tenant import Deletion, Tenant, TenantStatus
from owlclaw_ray.ids import AgentId, TenantId
from owlclaw_ray.store.commands import (
    AppendLedger,
    Command,
    CommandFailed,
    PutTenant,
    RemoveTenantRows,
    SealTenant,
    TenantLeft,
    TenantRowsRemoved,
    TenantSealed,
)
from owlclaw_ray.store.queries import LedgerBreaks, LedgerFilter, MissingLedgerGuards, TenantById
from owlclaw_ray.store.sql import tenant_rows
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.schema import metadata
from owlclaw_ray.store.sql.tenant_fence import TENANTS_OF
from owlclaw_ray.store.tenant_rows import RowsLeft
from tests.contracts.store_commands import NOW, one, submission
from tests.store.sql.tenant_worlds import dump, fill, rows_of

ACME, OTHER = TenantId("acme"), TenantId("acme-2")
TRADER = AgentRef(ACME, AgentId("trader:AAPL"))


def record(number, tenant=ACME):
    return access_record(f"rec_{number}", tenant, "key_created", NOW, {"key_id": "k"})


async def deleting(store, tenant=ACME):
    """Have the store hold a tenant that is being deleted, with some records in its ledger."""
    made = Tenant(tenant, "Acme", NOW, "ada", TenantStatus.SUSPENDED)
    await one(store, PutTenant(made, None, (record(1, tenant), record(2, tenant))))
    wanted = replace(made, status=TenantStatus.DELETING, deletion=Deletion("ada", NOW))
    await one(store, PutTenant(wanted, made, (record(3, tenant),)))
    return wanted


async def removed_all(store, tenant=ACME):
    """Remove rows until there are none; return in how many transactions."""
    times = 0
    while True:
        outcome = await one(store, RemoveTenantRows(tenant))
        assert isinstance(outcome, TenantRowsRemoved), outcome
        if not outcome.removed:
            return times
        times += 1


async def write(store, work, *args):
    return await store._database.write(work, *args)


def test_every_table_of_the_schema_is_emptied_kept_or_of_nobody():
    emptied = {each.table for each in tenant_rows.EMPTIED}

    assert len(emptied) == len(tenant_rows.EMPTIED)
    assert emptied | tenant_rows.KEPT | tenant_rows.OF_NOBODY == set(metadata.tables.values())
    assert not emptied & tenant_rows.KEPT
    assert not emptied & tenant_rows.OF_NOBODY
    owners = {"tenant", "agent", "run_id", "account", "schedule_id"}
    assert not [table.name for table in tenant_rows.OF_NOBODY if owners & set(table.c.keys())]


def test_the_rows_of_these_tests_are_in_every_table_that_is_emptied():
    assert rows_of(ACME).keys() == {each.table.name for each in tenant_rows.EMPTIED}


def test_of_every_command_it_is_known_for_which_tenants_it_writes():
    assert TENANTS_OF.keys() == set(get_args(Command))


async def test_every_row_of_the_tenant_goes_and_every_row_of_another_one_with_the_same_agents_stays(store):
    for tenant in (OTHER, ACME, TenantId("acm"), TenantId("default")):
        await write(store, fill, tenant)
    await one(store, PutTenant(Tenant(OTHER, "Other", NOW, "ada"), None, (record(1, OTHER),)))
    before = await store._database.read(dump)
    await deleting(store)

    await removed_all(store)
    assert await store.read(RowsLeft(ACME)) == {}
    assert await one(store, SealTenant(ACME, NOW)) == TenantSealed()

    after = await store._database.read(dump)
    mine = {
        name: {tuple(row.get(column.name) for column in metadata.tables[name].c) for row in rows}
        for name, rows in rows_of(ACME).items()
    }
    for name in before:
        gone = before[name] - after[name]
        if name in mine:
            assert len(gone) == len(mine[name]), name
            assert all("acme-2" not in str(row) for row in gone), name
            assert not [row for row in after[name] if tuple(row) in mine[name]], name
        else:
            assert not gone, name
    added = {name: after[name] - before[name] for name in before if after[name] - before[name]}
    assert added.keys() == {"tenants", "ledger", "ledger_heads"}
    assert all(row[added_tenant(name)] == ACME for name, rows in added.items() for row in rows)


def added_tenant(name):
    return metadata.tables[name].c.keys().index("tenant")


async def test_what_was_removed_is_counted_once_whatever_is_repeated(store):
    await write(store, fill, ACME, 150)
    await deleting(store)

    passes = await removed_all(store)

    await one(store, RemoveTenantRows(ACME, {"files of data_dir": 7}))

    found = await store.read(TenantById(ACME))
    assert passes > 2
    expected = {name: len(rows) for name, rows in rows_of(ACME, 150).items()}
    assert found.deletion.removed == dict(sorted({**expected, "files of data_dir": 7}.items()))


async def test_a_deletion_goes_on_where_a_killed_process_left_it(store_url):
    first = await open_store(store_url, writer="keeper-1")
    await write(first, fill, ACME, 150)
    await write(first, fill, OTHER)
    await deleting(first)
    await one(first, RemoveTenantRows(ACME))
    in_between = (await first.read(TenantById(ACME))).deletion.removed
    await first.close()

    second = await open_store(store_url, writer="keeper-2")
    left = await one(second, SealTenant(ACME, NOW))
    await removed_all(second)
    sealed = await one(second, SealTenant(ACME, NOW + timedelta(minutes=1)))
    found = await second.read(TenantById(ACME))
    breaks = await second.read(LedgerBreaks(ACME))
    await second.close()

    assert in_between
    assert isinstance(left, TenantLeft)
    assert left.left["runs"] == 150
    assert sealed == TenantSealed()
    assert found.status is TenantStatus.DELETED
    assert found.deletion.removed == {name: len(rows) for name, rows in sorted(rows_of(ACME, 150).items())}
    assert breaks == []


async def test_nothing_is_sealed_while_a_row_or_a_file_is_left_and_the_tenant_says_which(store):
    await write(store, fill, ACME, 1)
    await deleting(store)

    rows = await one(store, SealTenant(ACME, NOW))
    shown = await store.read(TenantById(ACME))
    await removed_all(store)
    files = await one(store, SealTenant(ACME, NOW, {"files of data_dir": 2}, ("node-b",)))

    assert rows == TenantLeft({name: len(each) for name, each in rows_of(ACME, 1).items()})
    assert (shown.status, shown.deletion.left, shown.deletion.checked_at) == (TenantStatus.DELETING, rows.left, NOW)
    assert files == TenantLeft({"files of data_dir": 2})
    assert (await store.read(TenantById(ACME))).deletion.unreached == ("node-b",)


async def test_the_last_record_says_who_deleted_it_and_what_was_removed_and_names_the_ends_of_all_chains(
    store, store_url
):
    await write(store, fill, ACME, 1)
    await deleting(store)
    beside = await open_store(store_url, writer="keeper-2")
    before = (await store.read(LedgerFilter(ACME)))[-1]
    await removed_all(beside)
    assert await one(beside, SealTenant(ACME, NOW + timedelta(hours=1))) == TenantSealed()
    assert await one(beside, SealTenant(ACME, NOW + timedelta(hours=2))) == TenantSealed()
    await beside.close()

    *_, last = await store.read(LedgerFilter(ACME))

    assert last.writer == "keeper-2"
    assert last.record.at == NOW + timedelta(hours=1)
    assert last.record.data == {
        "what": "tenant_deleted",
        "tenant": ACME,
        "by": "ada",
        "requested_at": NOW.isoformat(),
        "removed": [{"of": name, "number": len(rows)} for name, rows in sorted(rows_of(ACME, 1).items())],
        "left": [],
        "unreached": [],
        "chains": [{"writer": "keeper-1", "position": 3, "hash": before.hash}],
    }
    assert await store.read(LedgerBreaks(ACME)) == []


SEALED = {
    "a chain goes on": "UPDATE ledger_heads SET position = position + 1, hash = 'forged' WHERE tenant = 'acme'",
    "another chain begins": "INSERT INTO ledger_heads (tenant, writer, position, hash) VALUES ('acme', 'new', 1, 'forged')",
}


@pytest.mark.parametrize("statement", SEALED.values(), ids=SEALED.keys())
async def test_the_database_refuses_whatever_would_make_a_sealed_ledger_longer(store, statement):
    await deleting(store)
    assert await one(store, SealTenant(ACME, NOW)) == TenantSealed()

    with pytest.raises(DBAPIError, match="the chains of a deleted tenant are sealed"):
        await write(store, lambda connection: connection.execute(text(statement)))

    assert await store.read(LedgerBreaks(ACME)) == []
    assert await store.read(MissingLedgerGuards()) == []


async def test_a_record_that_is_put_into_a_sealed_ledger_past_its_end_is_found(store):
    await deleting(store)
    await one(store, SealTenant(ACME, NOW))
    copied = "tenant, writer, position + 1, 'rec_9', agent, 'run_9', kind, at, data, hash, hash"
    columns = "tenant, writer, position, record_id, agent, run_id, kind, at, data, previous_hash, hash"
    forged = f"INSERT INTO ledger ({columns}) SELECT {copied} FROM ledger WHERE record_id = 'rec_3'"
    forged = forged.replace("position + 1", "position + 2")

    await write(store, lambda connection: connection.execute(text(forged)))

    assert [each.position for each in await store.read(LedgerBreaks(ACME))] == [5]


async def test_no_record_is_appended_once_a_tenant_is_being_deleted(store):
    await deleting(store)

    refused = await one(store, AppendLedger((record(4),)))
    await one(store, SealTenant(ACME, NOW))
    later = await one(store, AppendLedger((record(5),)))

    assert isinstance(refused, CommandFailed)
    assert isinstance(later, CommandFailed)
    told = [each.record.record_id for each in await store.read(LedgerFilter(ACME))]
    assert told[:3] == ["rec_1", "rec_2", "rec_3"]
    assert len(told) == 4


async def test_others_of_a_batch_are_committed_beside_those_that_come_too_late(store):
    await deleting(store)
    ours = submission("run_1")

    late, accepted = await store.apply([submission("run_2", TRADER), ours])

    assert late.quota == "suspended"
    assert accepted.run_id == "run_1"
    assert await store.read(RowsLeft(ACME)) == {}
