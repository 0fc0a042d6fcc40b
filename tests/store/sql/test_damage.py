"""Damaged files are found before they are used, and are not changed by that."""

from __future__ import annotations

import os
import shutil
import sqlite3

import pytest

from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.store.sql.damage import inspect, require_sound
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.store.sql.locations import locate
from tests.contracts.store_commands import submission

PAGE = 4_096
LONG_ENOUGH = 150


async def fill(path, name, batches=6):
    """Return an open store with many runs."""
    store = await open_store(str(path), writer="keeper")
    for batch in range(batches):
        await store.apply([submission(f"{name}_{batch}_{at}", payload="x" * 300) for at in range(50)])
    return store


@pytest.fixture
async def path(tmp_path):
    path = tmp_path / "owlclaw.db"
    await (await fill(path, "run")).close()
    return path


def overwrite(path, offset, data):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def content(folder):
    """Return what is in the files of a folder but the index of the log, which SQLite makes again whenever it opens it."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.suffix != ".db-shm"}


def garbage_header(path):
    overwrite(path, 0, b"garbage " * 12)


def garbage_behind_the_magic(path):
    overwrite(path, 16, b"garbage " * 10)


def no_database(path):
    path.write_text("something else " * 100)


def half(path):
    os.truncate(path, path.stat().st_size // 2)


def without_its_last_page(path):
    os.truncate(path, path.stat().st_size - PAGE)


def zeroed_page(path):
    overwrite(path, path.stat().st_size // 2 // PAGE * PAGE, b"\0" * PAGE)


def only_its_log(path):
    path.with_name("owlclaw.db-wal").write_bytes(b"x" * 10_000)
    os.truncate(path, 0)


@pytest.mark.parametrize(
    "harm",
    [garbage_header, garbage_behind_the_magic, no_database, half, without_its_last_page, zeroed_page, only_its_log],
)
def test_damage_is_found_and_told_with_a_cure_and_nothing_is_changed(path, harm):
    harm(path)
    before = content(path.parent)

    with pytest.raises(ConfigurationError) as refused:
        require_sound(locate(str(path)), path, LONG_ENOUGH)

    assert f"store {path}: the file is damaged: " in str(refused.value)
    assert "sqlite3 owlclaw.db .recover" in str(refused.value)
    assert "all runs that were accepted are lost" in str(refused.value)
    assert content(path.parent) == before


async def test_the_log_of_a_smaller_database_is_found(path, tmp_path):
    other = tmp_path / "other" / "owlclaw.db"
    store = await fill(other, "other", batches=1)
    checkpoint = sqlite3.connect(other)
    checkpoint.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    checkpoint.close()
    await store.apply([submission("late", payload="x" * 300)])
    shutil.copy(f"{other}-wal", f"{path}-wal")
    await store.close()
    before = content(path.parent)

    assert inspect(path, LONG_ENOUGH).damage
    assert content(path.parent) == before


async def test_what_only_the_log_has_is_looked_at_too(tmp_path):
    path, crashed = tmp_path / "owlclaw.db", tmp_path / "crashed" / "owlclaw.db"
    store = await fill(path, "run")
    shutil.copytree(tmp_path, crashed.parent, ignore=shutil.ignore_patterns("crashed"))
    await store.close()
    before = content(crashed.parent)

    assert len(before["owlclaw.db-wal"]) > PAGE
    assert inspect(crashed, LONG_ENOUGH).damage == ""
    assert content(crashed.parent) == before


@pytest.mark.parametrize("exists", [False, True])
def test_an_empty_file_and_one_that_is_not_there_are_new(tmp_path, exists):
    path = tmp_path / "owlclaw.db"
    if exists:
        path.touch()

    found = inspect(path, LONG_ENOUGH)

    assert (found.damage, found.complete) == ("", True)
    assert path.exists() is exists


def test_a_sound_file_is_found_sound_and_leaves_nothing_beside_it(path):
    before = content(path.parent)

    found = inspect(path, LONG_ENOUGH)

    assert (found.damage, found.complete) == ("", True)
    assert [each.name for each in path.parent.iterdir()] == ["owlclaw.db"]
    assert content(path.parent) == before


def test_looking_at_a_large_file_ends_in_time_and_says_that_it_was_cut(tmp_path):
    path = tmp_path / "large.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)"
    connection.execute(f"INSERT INTO t {rows} SELECT randomblob(900) FROM n")
    connection.commit()
    connection.close()

    found = inspect(path, 0)

    assert (found.damage, found.complete) == ("", False)
