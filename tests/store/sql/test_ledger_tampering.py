from __future__ import annotations

import sqlite3

import pytest

from owlclaw_ray.store.commands import AppendLedger
from owlclaw_ray.store.queries import LedgerBreaks, LedgerFilter
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_ledger_contract import AGENT, record


@pytest.fixture
async def path(tmp_path):
    path = tmp_path / "owlclaw.db"
    store = await open_store(str(path), writer="keeper")
    await store.apply([AppendLedger(tuple(record(number) for number in range(1, 6)))])
    await store.close()
    return path


async def breaks_after(path, *statements):
    """Do as an attacker would who has the file: the triggers that keep the ledger go first."""
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'ledger%'")
    for statement in (*(f"DROP TRIGGER {name}" for (name,) in triggers.fetchall()), *statements):
        connection.execute(statement)
    connection.commit()
    connection.close()
    store = await open_store(str(path), writer="keeper")
    found = await store.read(LedgerBreaks(AGENT.tenant))
    await store.close()
    assert all(each.writer == "keeper" for each in found)
    return [(each.position, each.kind.value, each.problem) for each in found]


@pytest.mark.parametrize(
    "change",
    [
        "data = '{}'",
        "data = 'no json'",
        "kind = 'run'",
        "at = at + 1",
        "at = 9000000000000000000",
        "at = 'yesterday'",
        "run_id = 'run_9'",
        "agent = 'default/somebody'",
        "agent = 'elsewhere/trader:AAPL'",
    ],
)
async def test_a_changed_record_is_found(path, change):
    assert await breaks_after(path, f"UPDATE ledger SET {change} WHERE position = 3") == [
        (3, "changed", "record rec_3 was changed")
    ]


async def test_a_record_at_no_place_is_found(path):
    found = await breaks_after(path, "UPDATE ledger SET position = 'nowhere' WHERE position = 3")

    assert found == [(0, "moved", "record rec_3 was moved here from position 3")]


async def test_a_ledger_with_an_unreadable_record_can_still_be_read(path):
    await breaks_after(path, "UPDATE ledger SET data = 'no json' WHERE position = 3")
    store = await open_store(str(path), writer="keeper")

    told = [each.record.data for each in await store.read(LedgerFilter(AGENT.tenant))]

    assert [told[at] == record(at + 1).data for at in range(5)] == [True, True, False, True, True]
    assert told[2] == {"what": "unreadable", "why": "no json"}
    await store.close()


async def test_a_record_changed_with_its_own_hash_is_found(path):
    found = await breaks_after(path, "UPDATE ledger SET data = '{}', hash = 'forged' WHERE position = 3")

    assert found == [(3, "changed", "record rec_3 was changed")]


REMOVED = {
    "one": ("position = 3", 3, "record 3 is missing"),
    "the beginning": ("position < 3", 1, "records 1 to 2 are missing"),
    "the tail": ("position > 3", 4, "records 4 to 5 are missing"),
    "the whole chain": ("TRUE", 1, "records 1 to 5 are missing"),
}


@pytest.mark.parametrize(("where", "position", "said"), REMOVED.values(), ids=REMOVED.keys())
async def test_removed_records_are_found(path, where, position, said):
    assert await breaks_after(path, f"DELETE FROM ledger WHERE {where}") == [(position, "removed", said)]


async def test_a_removed_head_is_found(path):
    found = await breaks_after(path, "DELETE FROM ledger_heads")

    assert found == [(1, "inserted", "records 1 to 5 come after the recorded end of the chain")]


async def test_a_head_turned_back_does_not_hide_the_removed_tail(path):
    found = await breaks_after(
        path, "DELETE FROM ledger WHERE position = 5", "UPDATE ledger_heads SET position = 4 WHERE position = 5"
    )

    assert found == [(4, "changed", "record rec_4 was replaced: what follows it followed another")]


def inserted(position, record_id="rec_99"):
    return (
        "INSERT INTO ledger (tenant, writer, position, record_id, agent, run_id, kind, at, data, previous_hash, hash)"
        f" SELECT tenant, writer, {position}, '{record_id}', agent, run_id, kind, at, data, previous_hash, hash FROM ledger"
        " WHERE position = 2"
    )


async def test_a_record_inserted_after_the_end_is_found(path):
    assert await breaks_after(path, inserted(6)) == [(6, "inserted", "record rec_99 was inserted")]


async def test_a_record_inserted_before_others_that_are_renumbered_is_found(path):
    found = await breaks_after(
        path,
        "UPDATE ledger SET position = -position WHERE position > 2",
        "UPDATE ledger SET position = 1 - position WHERE position < 0",
        inserted(3),
    )

    assert found == [(3, "inserted", "record rec_99 was inserted")]


async def test_records_in_another_order_are_found(path):
    found = await breaks_after(
        path,
        "UPDATE ledger SET position = 99 WHERE position = 2",
        "UPDATE ledger SET position = position - 1 WHERE position BETWEEN 3 AND 5",
        "UPDATE ledger SET position = 5 WHERE position = 99",
    )

    assert found == [(5, "moved", "record rec_2 was moved here from position 2")]


async def test_a_restarted_writer_continues_its_chain(path):
    store = await open_store(str(path), writer="keeper")
    await store.apply([AppendLedger((record(6),))])

    found = await store.read(LedgerFilter(AGENT.tenant))

    assert [each.position for each in found] == [1, 2, 3, 4, 5, 6]
    assert found[5].previous_hash == found[4].hash
    assert await store.read(LedgerBreaks(AGENT.tenant)) == []
    await store.close()


async def test_long_chains_are_verified_in_pages(path):
    store = await open_store(str(path), writer="keeper")
    await store.apply([AppendLedger(tuple(record(number) for number in range(6, 1_203)))])
    await store.close()

    assert await breaks_after(path, "DELETE FROM ledger WHERE position = 1001") == [
        (1001, "removed", "record 1001 is missing")
    ]
