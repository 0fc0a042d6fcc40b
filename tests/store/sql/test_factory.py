from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from owlclaw_ray.errors import ConfigurationError, StoreUnavailableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.queries import AgentsWithWork, RunById
from owlclaw_ray.store.sql import databases, migrator
from owlclaw_ray.store.sql.factory import open_existing, open_store
from owlclaw_ray.store.sql.migrations import HEAD
from owlclaw_ray.store.sql.migrator import revision_of
from tests.contracts.store_commands import AGENT, one, submission


async def problem_of(url):
    with pytest.raises(ConfigurationError) as caught:
        await open_store(str(url), writer="keeper")
    return str(caught.value)


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+aiosqlite:///{}"])
async def test_a_file_is_named_in_several_ways(tmp_path, form):
    path = tmp_path / "数据 100%" / "owlclaw.db"

    store = await open_store(form.format(path), writer="keeper")
    await store.close()

    assert path.is_file()


async def test_a_relative_path_starts_where_the_process_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    await (await open_store("sqlite:///data/owlclaw.db", writer="keeper")).close()

    assert (tmp_path / "data" / "owlclaw.db").is_file()


async def test_a_store_opened_again_has_everything(store_url):
    store = await open_store(store_url, writer="keeper")
    await one(store, submission("run_1"))
    await store.close()

    again = await open_store(store_url, writer="keeper")
    assert await again.read(RunById(AGENT.tenant, RunId("run_1"))) is not None
    await again.close()


async def test_every_commit_of_a_file_reaches_the_disk_before_it_is_answered(tmp_path):
    store = await open_store(str(tmp_path / "owlclaw.db"), writer="keeper")

    def settings(connection):
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("synchronous", "journal_mode")]

    full = 2
    assert await store._database.write(settings) == [full, "wal"]
    await store.close()


async def test_many_may_open_a_new_store_at_once(tmp_path):
    stores = await asyncio.gather(*(open_store(str(tmp_path / "new.db"), writer=f"k{at}") for at in range(4)))

    await asyncio.gather(*(one(store, submission(f"run_{at}")) for at, store in enumerate(stores)))

    assert len(await stores[0].read(AgentsWithWork())) == 1
    for store in stores:
        await store.close()


async def test_a_new_file_that_another_process_writes_is_waited_for(tmp_path):
    path = tmp_path / "new.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE other (id INTEGER)")
    other.execute("BEGIN IMMEDIATE")

    asyncio.get_running_loop().call_later(0.1, other.close)
    store = await open_store(str(path), writer="keeper")

    assert await one(store, submission("run_1"))
    await store.close()


@pytest.mark.postgres
async def test_many_may_open_a_new_database_at_once(postgres_url, postgres_server):
    import asyncpg

    connection = await asyncpg.connect(postgres_server.url())
    await connection.execute("CREATE DATABASE empty TEMPLATE template0")
    await connection.close()

    stores = await asyncio.gather(*(open_store(postgres_server.url("empty"), writer=f"k{at}") for at in range(4)))

    for store in stores:
        await store.close()


@pytest.mark.postgres
async def test_a_migration_of_somebody_else_is_waited_for_longer_than_rows_are(postgres_url, monkeypatch):
    import asyncpg

    monkeypatch.setitem(databases._POSTGRESQL_SETTINGS, "lock_timeout", "20")
    other = await asyncpg.connect(postgres_url)
    await other.execute(f"SELECT pg_advisory_lock({migrator._LOCK})")

    opening = asyncio.create_task(open_store(postgres_url, writer="keeper"))
    while not opening.done() and not await other.fetchval(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    ):
        await asyncio.sleep(0)
    await other.execute("SELECT pg_sleep(0.05)")
    await other.execute(f"SELECT pg_advisory_unlock({migrator._LOCK})")

    store = await opening
    assert await store.read(AgentsWithWork()) == []
    await store.close()
    await other.close()


async def test_an_up_to_date_store_opens_without_alembic(tmp_path):
    path = tmp_path / "owlclaw.db"
    await (await open_store(str(path), writer="keeper")).close()
    program = (
        "import asyncio, sys; from owlclaw_ray.store.sql.factory import open_store\n"
        f"async def main(): await (await open_store({str(path)!r}, writer='keeper')).close()\n"
        "asyncio.run(main()); sys.exit('alembic' in sys.modules)"
    )

    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=False)

    assert done.returncode == 0


async def test_a_directory_is_no_store(tmp_path):
    assert "the path is a directory" in await problem_of(tmp_path)


async def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")

    assert "file/sub cannot be made: Not a directory" in await problem_of(tmp_path / "file" / "sub" / "owlclaw.db")


async def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "owlclaw.db"
    path.write_text("something else " * 100)

    assert "not a SQLite database" in await problem_of(path)
    assert path.read_text() == "something else " * 100


@pytest.fixture
def unwritable(tmp_path):
    """A folder that this process may enter but not write. Root gives its rights up, and needs one that others may enter."""
    if os.geteuid() != 0:
        tmp_path.chmod(0o555)
        yield tmp_path
        tmp_path.chmod(0o755)
        return
    with tempfile.TemporaryDirectory(prefix="owlclaw-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(0)


async def test_a_read_only_folder(unwritable):
    assert f"the folder {unwritable} is read-only" in await problem_of(unwritable / "owlclaw.db")
    assert "cannot be made: Permission denied" in await problem_of(unwritable / "sub" / "owlclaw.db")


async def test_a_database_of_a_newer_version(tmp_path):
    path = tmp_path / "owlclaw.db"
    await (await open_store(str(path), writer="keeper")).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.execute("UPDATE schema_compatibility SET oldest = '9998'")
    connection.commit()
    connection.close()

    assert "this version has schema" in await problem_of(path)


@pytest.mark.parametrize("url", ["mysql://host/db", "http://host", "sqlite://", ":memory:", "", "postgresql://host"])
async def test_urls_that_name_no_store(url):
    assert "sqlite:///relative.db" in await problem_of(url)


@pytest.mark.postgres
async def test_a_wrong_password(postgres_server):
    url = postgres_server.url().replace("owlclaw:", "owlclaw:wrong")

    said = await problem_of(url)

    assert "the user or the password is wrong" in said
    assert "wrong@" not in said
    assert "***" in said


@pytest.mark.postgres
async def test_a_missing_database(postgres_server):
    assert "does not exist" in await problem_of(postgres_server.url("missing"))


async def test_a_server_that_does_not_answer(unused_tcp_port):
    with pytest.raises(StoreUnavailableError, match="does not answer"):
        await open_store(f"postgresql://user:secret@127.0.0.1:{unused_tcp_port}/db", writer="keeper")


async def test_the_head_revision_is_the_one_that_a_new_store_has(tmp_path):
    path = tmp_path / "owlclaw.db"
    await (await open_store(str(path), writer="keeper")).close()

    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert revision_of(connection) == HEAD
    engine.dispose()


async def test_a_store_that_is_there_is_opened_as_it_is(store_url):
    store = await open_store(store_url, writer="keeper")
    await one(store, submission("run_1"))
    await store.close()

    reader = await open_existing(store_url)
    assert await reader.read(RunById(AGENT.tenant, RunId("run_1"))) is not None
    await reader.close()


async def test_opening_what_is_there_makes_no_file(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no store yet"):
        await open_existing(f"sqlite:///{tmp_path}/owlclaw.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("revision", ["0011"])
async def test_opening_what_is_there_migrates_nothing(sqlite_url, revision):
    engine = create_engine(sqlite_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")

    with pytest.raises(ConfigurationError, match=f"its schema is {revision}"):
        await open_existing(sqlite_url)

    with engine.begin() as connection:
        assert revision_of(connection) == revision
    engine.dispose()


@pytest.mark.postgres
async def test_a_database_without_tables_is_no_store_yet(postgres_server):
    with pytest.raises(ConfigurationError, match="its schema is not there"):
        await open_existing(postgres_server.url("postgres"))
    with pytest.raises(ConfigurationError, match="does not exist"):
        await open_existing(postgres_server.url("missing"))
