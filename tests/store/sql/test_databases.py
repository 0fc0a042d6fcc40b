"""What work of one kind does to work of the other."""

import asyncio
import socket

import asyncpg
from sqlalchemy import make_url, text

from owlclaw_ray.store.sql.databases import PostgresqlDatabase

LOCK = "SELECT pg_advisory_lock(1)"
SAME_LOCK = "SELECT pg_advisory_xact_lock(1)"
MORE_THAN_FIT = 30


async def test_readers_that_all_wait_do_not_keep_a_writer_waiting_on_postgresql(postgres_url):
    holder = await asyncpg.connect(postgres_url)
    await holder.execute(LOCK)
    database = PostgresqlDatabase(make_url(postgres_url).set(drivername="postgresql+asyncpg"))
    readers = [
        asyncio.create_task(database.read(lambda connection: connection.execute(text(SAME_LOCK)).scalar()))
        for _ in range(MORE_THAN_FIT)
    ]
    while await holder.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 0:
        assert not any(reader.done() for reader in readers)

    written = await database.write(lambda connection: connection.execute(text("SELECT 7")).scalar())

    assert written == 7
    assert not any(reader.done() for reader in readers)
    await holder.close()
    await asyncio.gather(*readers)
    await database.close()


async def test_a_node_that_is_cut_off_from_postgresql_knows_it_as_soon_as_the_server_does(postgres_url):
    database = PostgresqlDatabase(make_url(postgres_url).set(drivername="postgresql+asyncpg"))

    def option(connection):
        line = connection.connection.driver_connection._transport.get_extra_info("socket")
        kept = connection.execute(text("SHOW tcp_user_timeout")).scalar()
        return kept, line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    limits = [await database.write(option), await database.read(option)]

    assert limits == [("5000", 5_000)] * 2
    await database.close()
