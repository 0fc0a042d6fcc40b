"""The Keeper without Ray: it is a plain class."""

from __future__ import annotations

import resource

import pytest

from actors.keeper import KeeperActor
from actors.plan import RuntimePlan, WorkerPlan
from owlclaw_ray.engine.directory import Placement
from owlclaw_ray.engine.retry import RetryPolicy
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.identity.defaults import Defaults


@pytest.fixture
async def keeper(tmp_path, monkeypatch):
    monkeypatch.setattr("actors.keeper.configure", lambda _: None)
    monkeypatch.setattr("actors.keeper.writer_name", lambda: "keeper")
    plan = RuntimePlan(
        worker=WorkerPlan("", "", str(tmp_path), "none", "test"),
        agents_dir=str(tmp_path),
        store_url=f"sqlite:///{tmp_path}/owlclaw.db",
        defaults=Defaults(),
        placement=Placement(),
        tool_slots=1,
        max_concurrent_models=1,
        model_retry=RetryPolicy(),
        catch_up_seconds=1,
        drain_seconds=1,
    )
    keeper = KeeperActor(plan)
    yield keeper
    await keeper.stop()


async def test_it_is_ready_only_while_its_store_takes_commits(keeper, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.adapters.store.sql_store._WRITABLE_SECONDS", 0)
    assert await keeper.ready()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        with pytest.raises(StoreUnavailableError, match="cannot be written"):
            await keeper.ready()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert await keeper.ready()
