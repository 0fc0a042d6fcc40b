"""What agents know does not change when old runs are removed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.runs.expiry import RunExpiry
from owlclaw_ray.store.queries import RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, asks, says


async def last_request(agents, data_dir, *, sweeps):
    """Return what the model is asked in the last of three runs, the first of which was removed by then, or was not."""
    clock = ManualClock()
    remembers = asks(("remember", '{"content": "Order 4711 was late."}'))
    replies = iter([remembers, says("noted"), says("nothing new"), says("I know")])
    model = Model(lambda _: next(replies))
    agents.define()
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=data_dir, models=[model], clock=clock, ids=SequentialIds()
    ) as runtime:
        first = await runtime.trigger("watch", focus="order 4711")
        second = await runtime.trigger("watch", {"price": 7})
        if sweeps:
            later = ManualClock(clock.now() + timedelta(days=30))
            assert await RunExpiry(runtime.store, timedelta(days=7), later).tick() == 1
            with pytest.raises(NotFoundError, match=first.run_id):
                await runtime.run(DEFAULT_TENANT, first.run_id)
            assert [run.run_id for run in await runtime.runs(RunFilter(DEFAULT_TENANT))] == [second.run_id]
        last = await runtime.trigger("watch", focus="order 4711")
    assert last.status is RunStatus.COMPLETED
    return model.requests[-1]


async def test_the_next_prompt_is_the_same_when_the_runs_before_are_gone(agents, tmp_path):
    kept = await last_request(agents, tmp_path / "kept", sweeps=False)
    swept = await last_request(agents, tmp_path / "swept", sweeps=True)

    assert swept == kept
    assert "Order 4711 was late." in repr(swept)
