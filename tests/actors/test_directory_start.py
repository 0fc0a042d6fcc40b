"""The beginning of the Directory's actor, over a pool that a test steers."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from actors.directory import DirectoryActor
from actors.node_files import seen_mark
from actors.plan import RuntimePlan, ToolSlots, WorkerPlan
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.placement import Placement
from owlclaw_ray.errors import RuntimeUnavailableError, StoreUnavailableError
from owlclaw_ray.kernel.retry import RetryPolicy
from tests.definitions.test_folder import hanging
from tests.definitions.writing import write_definition
from tests.placement.test_directory import SteeredPool, Work


class Pool:
    """Knows its hosts only after some failures."""

    def __init__(self, *failures):
        self.nodes = {"here": 1.0}
        self.failures = list(failures)

    async def living(self):
        if self.failures:
            raise self.failures.pop(0)
        return ()


class Store:
    async def read(self, query):
        raise StoreUnavailableError("not yet")


@pytest.fixture
def plan(tmp_path):
    return RuntimePlan(
        worker=WorkerPlan("", str(tmp_path), str(tmp_path), "none", "trial", agents_dir=str(tmp_path)),
        store_url="sqlite://",
        defaults=Defaults(),
        placement=Placement(warm=0),
        slots=ToolSlots(1),
        max_concurrent_models=1,
        model_retry=RetryPolicy(),
        catch_up_seconds=60,
        drain_seconds=1,
    )


@pytest.mark.parametrize("failure", [RuntimeUnavailableError("no root"), OSError("the GCS hung up"), KeyError("Alive")])
async def test_a_directory_starts_in_the_end_whatever_fails_at_first(plan, monkeypatch, failure):
    monkeypatch.setattr("actors.directory.RootedPool", lambda *_: Pool(failure, failure))
    monkeypatch.setattr("actors.directory.KeeperClient", lambda _: Store())
    monkeypatch.setattr("actors.directory.configure", lambda _: None)
    monkeypatch.setattr("actors.directory._PAUSE", 0.0)

    directory = DirectoryActor(plan)

    assert await directory.hosts() == {}
    await directory.stop(0)


async def test_each_directory_leaves_a_mark_of_its_own_in_the_data_folder(plan, monkeypatch, tmp_path):
    monkeypatch.setattr("actors.directory.RootedPool", lambda *_: Pool())
    monkeypatch.setattr("actors.directory.KeeperClient", lambda _: Store())
    monkeypatch.setattr("actors.directory.configure", lambda _: None)
    marks = []

    for _ in range(2):
        directory = DirectoryActor(plan)
        await directory._marked
        marks.append(seen_mark(tmp_path))
        await directory.stop(0)

    assert all(marks)
    assert marks[0] != marks[1]


async def test_a_data_folder_that_cannot_be_marked_is_told_and_the_directory_starts(
    plan, monkeypatch, tmp_path, caplog
):
    monkeypatch.setattr("actors.directory.RootedPool", lambda *_: Pool())
    monkeypatch.setattr("actors.directory.KeeperClient", lambda _: Store())
    monkeypatch.setattr("actors.directory.configure", lambda _: None)
    (tmp_path / "nodes").touch()

    directory = DirectoryActor(plan)
    await directory._marked

    assert await directory.hosts() == {}
    assert "whether nodes share the data folder is not known" in caplog.text
    await directory.stop(0)


async def test_a_definition_whose_files_hang_holds_up_no_other_one(plan, monkeypatch, tmp_path):
    pool = SteeredPool()
    monkeypatch.setattr("actors.directory.RootedPool", lambda *_: pool)
    monkeypatch.setattr("actors.directory.KeeperClient", lambda _: Work())
    monkeypatch.setattr("actors.directory.configure", lambda _: None)
    monkeypatch.setattr("actors.directory._LOOK_SECONDS", 0.05)
    watch, other = AgentRef.parse("watch:1"), AgentRef.parse("other:1")
    for each in (watch, other):
        write_definition(tmp_path / each.definition, agent="isolation: shared\n")

    with hanging(tmp_path / "watch" / "SOUL.md"):
        directory = DirectoryActor(replace(plan, placement=Placement(warm=1)))
        seated = {}
        while other not in seated:
            await asyncio.sleep(0.01)
            seated = await directory.wake([watch, other])
        assert (await directory.definition("other", "")).name == "other"
        assert watch not in seated

    write_definition(tmp_path / "watch", agent="isolation: shared\n")
    while watch not in seated:
        await asyncio.sleep(0.01)
        seated = await directory.wake([watch, other])
    await directory.stop(0)
