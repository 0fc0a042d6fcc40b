"""What agents know does not change when old runs are removed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import BackfillPlan, ScheduleRequest
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import DEFAULT_TENANT, FiringId
from owlclaw_ray.runs.expiry import RunExpiry
from owlclaw_ray.store.commands import ForgetTicks, NoteSweep, OldTick
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
            await runtime.store.apply([NoteSweep(Kept.RUNS, later.now())])
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


async def test_a_backfill_and_its_plan_reach_back_as_far_as_ticks_are_known(agents, tmp_path):
    clock, agent = ManualClock(), AgentRef.parse("watch")
    model = Model(lambda _: says("nothing new"))
    agents.define()
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path, models=[model], clock=clock, ids=SequentialIds()
    ) as runtime:
        every = ScheduleRequest("look", interval_seconds=3_600)
        made = await runtime.timetable.create(agent, every, idempotency_key="once")
        since = made.created_at
        third = since + timedelta(hours=3)
        tick = OldTick(FiringId("fir_1"), made.schedule_id, agent, third)
        await runtime.store.apply([ForgetTicks(DEFAULT_TENANT, (tick,))])
        await clock.advance(6 * 3_600)
        asked = (DEFAULT_TENANT, made.schedule_id, since + timedelta(hours=1), since + timedelta(hours=5))

        plan = await runtime.timetable.plan_backfill(*asked)
        done = await runtime.timetable.backfill(*asked)
        again = await runtime.timetable.create(agent, every, idempotency_key="once")

    assert plan == BackfillPlan((third + timedelta(hours=1), third + timedelta(hours=2)), known=3)
    assert (len(done.queued), done.known, done.refused) == (2, 3, 0)
    assert (again.schedule_id, again.forgotten_until) == (made.schedule_id, third)
