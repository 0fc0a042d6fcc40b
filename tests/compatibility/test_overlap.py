"""Two versions on one store: migrations that an older runtime survives, and what it does with those that it does not."""

import importlib
import pkgutil
import sqlite3

import pytest
from sqlalchemy import create_engine, inspect, text

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.journal import EntryKind, JournalEntry
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.ids import RunId, TenantId
from owlclaw_ray.store.commands import AppendJournal
from owlclaw_ray.store.sql import migrations
from owlclaw_ray.store.sql.factory import open_existing, open_store
from owlclaw_ray.store.sql.migrations import FIRST, HEAD, OLDEST, versions
from tests.contracts.store_commands import AGENT, NOW, activation, claimed, submission

_NEWER = "9999"


def revisions():
    """Return the modules of the migrations, by the order of their revisions."""
    modules = (
        importlib.import_module(f"{versions.__name__}.{each.name}") for each in pkgutil.iter_modules(versions.__path__)
    )
    return sorted(modules, key=lambda each: each.revision)


def tables(connection):
    """Return the columns of all tables, each with whether a row without it is refused."""
    found = inspect(connection)
    return {
        name: {
            each["name"]: not each["nullable"] and each["default"] is None and not each["primary_key"]
            for each in found.get_columns(name)
        }
        for name in found.get_table_names()
    }


def migrated_to(connection, wanted):
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    with Operations.context(MigrationContext.configure(connection)):
        for each in revisions():
            if each.revision <= wanted:
                each.upgrade()
    return tables(connection)


@pytest.fixture
async def url(tmp_path):
    url = f"sqlite:///{tmp_path}/owlclaw.db"
    store = await open_store(url, writer="keeper-a")
    await store.close()
    return url


def migrated_by_a_newer_version(url, oldest):
    """Do what a migration of a later version might, which may be one that takes nothing from older runtimes."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("ALTER TABLE runs ADD COLUMN mood TEXT")
    connection.execute("UPDATE alembic_version SET version_num = ?", [_NEWER])
    connection.execute("UPDATE schema_compatibility SET oldest = ?, migrated_by = '9.9.0'", [oldest])
    connection.commit()
    connection.close()


async def test_a_store_says_the_oldest_schema_whose_runtimes_may_work_on_it(url):
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT oldest FROM schema_compatibility")).scalar_one() == OLDEST
    engine.dispose()
    assert FIRST <= OLDEST <= HEAD


async def test_an_older_runtime_works_on_a_newer_store_that_lets_it(url):
    migrated_by_a_newer_version(url, oldest=HEAD)

    store = await open_store(url, writer="keeper-a")
    await store.apply([submission("run_1"), activation("act_1")])
    assert (await claimed(store)).run.run_id == "run_1"
    await store.close()
    reader = await open_existing(url)
    await reader.close()

    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (_NEWER,)
    connection.close()


@pytest.mark.parametrize("opened", [open_existing, lambda url: open_store(url, writer="keeper-a")])
async def test_an_older_runtime_refuses_a_newer_store_that_does_not_let_it_and_names_the_versions(url, opened):
    migrated_by_a_newer_version(url, oldest=_NEWER)

    with pytest.raises(
        ConfigurationError,
        match=rf"owlclaw-ray 9\.9\.0 migrated the database to schema {_NEWER}, which takes runtimes of schema {_NEWER} or newer; "
        rf"this version has schema {HEAD}",
    ):
        await opened(url)


async def test_a_run_that_an_older_runtime_began_goes_on_with_its_prompt(url):
    acme = AgentRef(TenantId("acme"), AGENT.agent_id)
    store = await open_store(url, writer="keeper-a")
    await store.apply([submission("run_1", acme), activation("act_1", acme)])
    await claimed(store, agent=acme)
    prompt = JournalEntry(3, EntryKind.PROMPT_BUILT, NOW, {"system": "h-1", "tools": "h-2", "user": "look"})
    await store.apply([AppendJournal(RunId("run_1"), acme, 1, (prompt,), blobs={"h-1": "You are.", "h-2": "[]"})])
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    assert connection.execute("UPDATE blobs SET hash = replace(hash, 'acme/', '')").rowcount == 2
    connection.commit()
    connection.close()

    await store.apply([activation("act_2", acme)])
    resumed = await claimed(store, agent=acme, epoch=2)

    assert resumed.blobs == {"h-1": "You are.", "h-2": "[]"}
    await store.close()


async def test_the_migrations_of_the_window_take_nothing_away_and_ask_for_nothing_that_an_older_runtime_does_not_write(
    tmp_path,
):
    """Tables and columns stay, and what is new in a table that was there may be left out of a row."""
    seen = []
    for number, wanted in enumerate((OLDEST, HEAD)):
        engine = create_engine(f"sqlite:///{tmp_path}/{number}.db")
        with engine.begin() as connection:
            seen.append(migrated_to(connection, wanted))
        engine.dispose()
    before, after = seen

    assert before.keys() <= after.keys()
    for name, columns in before.items():
        assert columns.keys() <= after[name].keys()
        assert [each for each in after[name] if each not in columns and after[name][each]] == []
        assert [each for each in columns if after[name][each] and not columns[each]] == []


def test_the_revisions_are_one_chain_that_ends_with_the_newest():
    chain = revisions()
    assert [each.revision for each in chain][-1] == HEAD
    assert [each.down_revision for each in chain[1:]] == [each.revision for each in chain[:-1]]
    assert chain[0].revision == migrations.FIRST
