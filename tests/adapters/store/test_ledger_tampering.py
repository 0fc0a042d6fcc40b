from __future__ import annotations

import sqlite3

import pytest

from owlclaw_ray.adapters.store.opening import open_store
from owlclaw_ray.ports.store import AppendLedger, ChainBreak, LedgerFilter
from owlclaw_ray.testing.store_ledger_contract import AGENT, record


@pytest.fixture
async def path(tmp_path):
    path = tmp_path / "owlclaw.db"
    store = await open_store(str(path), writer="keeper")
    await store.apply([AppendLedger(tuple(record(number) for number in range(1, 6)))])
    await store.close()
    return path


async def breaks_after(path, *statements):
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    store = await open_store(str(path), writer="keeper")
    found = await store.verify_ledger(AGENT.tenant)
    await store.close()
    return [(each.position, each.problem) for each in found if isinstance(each, ChainBreak)]


@pytest.mark.parametrize(
    "change",
    [
        "data = '{}'",
        "data = 'no json'",
        "kind = 'run'",
        "at = at + 1",
        "run_id = 'run_9'",
        "agent = 'default/somebody'",
        "agent = 'elsewhere/trader:AAPL'",
    ],
)
async def test_a_changed_record_is_found(path, change):
    assert await breaks_after(path, f"UPDATE ledger SET {change} WHERE position = 3") == [
        (3, "record rec_3 was changed")
    ]


async def test_a_record_changed_with_its_own_hash_is_found_by_the_next(path):
    found = await breaks_after(path, "UPDATE ledger SET data = '{}', hash = 'forged' WHERE position = 3")

    assert [position for position, _ in found] == [3, 4]


async def test_a_removed_record_is_found(path):
    assert await breaks_after(path, "DELETE FROM ledger WHERE position = 3") == [(3, "record 3 is missing")]


async def test_a_removed_beginning_is_found(path):
    assert await breaks_after(path, "DELETE FROM ledger WHERE position < 3") == [(1, "records 1 to 2 are missing")]


async def test_a_removed_tail_is_found(path):
    assert await breaks_after(path, "DELETE FROM ledger WHERE position > 3") == [(4, "records 4 to 5 are missing")]


async def test_a_removed_chain_is_found(path):
    assert await breaks_after(path, "DELETE FROM ledger") == [(1, "records 1 to 5 are missing")]


async def test_a_removed_head_is_found(path):
    found = await breaks_after(path, "DELETE FROM ledger_heads")

    assert found == [(1, "records follow the recorded end of the chain")]


async def test_exchanged_records_are_found(path):
    found = await breaks_after(
        path,
        "UPDATE ledger SET position = 99 WHERE position = 2",
        "UPDATE ledger SET position = 2 WHERE position = 3",
        "UPDATE ledger SET position = 3 WHERE position = 99",
    )

    assert {position for position, _ in found} == {2, 3, 4}


async def test_a_restarted_writer_continues_its_chain(path):
    store = await open_store(str(path), writer="keeper")
    await store.apply([AppendLedger((record(6),))])

    found = await store.ledger(LedgerFilter(AGENT.tenant))

    assert [each.position for each in found] == [1, 2, 3, 4, 5, 6]
    assert found[5].previous_hash == found[4].hash
    assert await store.verify_ledger(AGENT.tenant) == []
    await store.close()


async def test_long_chains_are_verified_in_pages(path):
    store = await open_store(str(path), writer="keeper")
    await store.apply([AppendLedger(tuple(record(number) for number in range(6, 1_203)))])
    await store.close()

    assert await breaks_after(path, "DELETE FROM ledger WHERE position = 1001") == [(1001, "record 1001 is missing")]
