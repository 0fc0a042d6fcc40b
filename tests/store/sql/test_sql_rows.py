import sqlite3

import asyncpg
import pytest

from owlclaw_ray.store.sql.failures import FAILURES
from owlclaw_ray.tools.sql_rows import read_rows


@pytest.fixture
def shop(tmp_path):
    """A SQLite database with three orders, as its URL."""
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, item TEXT)")
        connection.executemany("INSERT INTO orders VALUES (?, ?)", [(1, "茶"), (2, "tea"), (3, "tea")])
    connection.close()
    return f"sqlite:///{tmp_path / 'shop.db'}"


def test_the_first_rows_of_a_query_are_objects(shop):
    assert read_rows(shop, "SELECT * FROM orders ORDER BY id", 2) == [{"id": 1, "item": "茶"}, {"id": 2, "item": "tea"}]
    assert read_rows(shop, "SELECT * FROM orders WHERE id > 9", 2) == []


def test_a_query_cannot_change_anything(shop):
    with pytest.raises(FAILURES, match="readonly"):
        read_rows(shop, "DELETE FROM orders RETURNING id", 9)

    assert len(read_rows(shop, "SELECT id FROM orders", 9)) == 3


@pytest.mark.postgres
async def test_postgresql_is_asked_in_a_transaction_that_reads(postgres_server):
    import asyncio

    url = postgres_server.url("owlclaw")
    assert await asyncio.to_thread(read_rows, url, "SELECT 7 AS id, 'tea' AS item", 9) == [{"id": 7, "item": "tea"}]
    with pytest.raises(FAILURES, match="read-only"):
        await asyncio.to_thread(read_rows, url, "CREATE TABLE nothing (id int)", 9)
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT to_regclass('nothing')") is None
    await connection.close()
