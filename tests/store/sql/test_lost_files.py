"""The files of a SQLite store that are deleted, moved or replaced while it is open."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId
from owlclaw_ray.store.commands import RunAccepted
from owlclaw_ray.store.queries import RunById, RunFilter
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.store_file import create_store
from tests.contracts.store_commands import AGENT, one, submission


@pytest.fixture
async def path(tmp_path):
    path = tmp_path / "data" / "owlclaw.db"
    path.parent.mkdir()
    await asyncio.to_thread(create_store, path)
    return path


@pytest.fixture
async def store(path):
    store = await open_store(str(path), writer="keeper")
    await one(store, submission("run_1"))
    yield store
    await store.close()


async def assert_refused(store, what):
    with pytest.raises(StoreUnavailableError, match=f"{what}.* would be lost"):
        await one(store, submission("run_2"))
    with pytest.raises(StoreUnavailableError, match=f"cannot be written: .*{what}"):
        await store.check_writable()
    with pytest.raises(StoreUnavailableError, match=f"cannot be read: .*{what}"):
        await store.read(RunFilter(AGENT.tenant))


def delete(path):
    path.unlink()


def delete_its_folder(path):
    shutil.rmtree(path.parent)


def rename_its_folder(path):
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_by_a_copy(path):
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    copy.rename(path)


def replace_its_folder_by_a_file(path):
    shutil.rmtree(path.parent)
    path.parent.write_text("")


GONE, REPLACED = "deleted or moved away", "replaced by another file"


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (delete, GONE),
        (delete_its_folder, GONE),
        (rename_its_folder, GONE),
        (replace_its_folder_by_a_file, GONE),
        (replace_by_a_copy, REPLACED),
    ],
)
@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
async def test_nothing_is_committed_into_a_file_that_is_not_at_its_place(store, path, harm, what, ending):
    harm(path.with_name(path.name + ending))

    await assert_refused(store, what)


async def test_a_commit_whose_file_went_meanwhile_is_not_answered_as_one(store, path):
    await store._database.write(lambda connection: connection.exec_driver_sql("SELECT 1"))

    with pytest.raises(Exception, match=GONE):
        await store._database.write(lambda _: path.unlink())


async def test_a_lost_file_is_not_made_again(store, path):
    delete(path)

    await assert_refused(store, GONE)

    assert not path.exists()


@pytest.mark.parametrize("harm", [rename_its_folder, replace_by_a_copy])
async def test_the_same_file_at_its_place_again_is_used_again(store, path, harm, tmp_path):
    folder, kept = path.parent, tmp_path / "kept"
    kept.hardlink_to(path)
    harm(path)
    await assert_refused(store, "")
    if folder.exists():
        kept.rename(path)
    else:
        folder.with_name("elsewhere").rename(folder)

    assert isinstance(await one(store, submission("run_3")), RunAccepted)
    await store.check_writable()
    assert {run.run_id for run in await store.read(RunFilter(AGENT.tenant))} == {"run_1", "run_3"}


async def test_a_runtime_whose_log_was_deleted_saves_it_when_it_is_stopped(path):
    store = await open_store(str(path), writer="keeper")
    await one(store, submission("run_1"))
    delete(path.with_name(path.name + "-wal"))
    await assert_refused(store, GONE)

    await store.close()

    again = await open_store(str(path), writer="keeper")
    assert await again.read(RunById(AGENT.tenant, RunId("run_1"))) is not None
    await again.close()


async def test_a_store_that_must_exist_is_not_made(tmp_path):
    path = tmp_path / "owlclaw.db"

    with pytest.raises(StoreUnavailableError, match="deleted or moved away since"):
        await open_store(str(path), writer="keeper", must_exist=True)

    assert not path.exists()
