"""Heartbeats with the real tools, sources and store."""

import asyncio
from datetime import timedelta

import pytest

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleRequest
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, says


async def test_an_event_source_of_the_application_wakes_the_agent_for_what_is_new(agents, tmp_path):
    agents.define(heartbeat={})
    app, clock, stock = OwlClaw("shop"), ManualClock(), []

    @app.event_source("low_stock")
    def low_stock(agent: AgentRef) -> list[str]:
        return [f"{each} for {agent.agent_id}" for each in stock]

    model = Model(lambda _: says("ordered"))

    async def beat():
        clock._elapsed += 300
        assert await runtime.schedule_firer.fire_all_due() == 1
        [latest, *_] = await runtime.runs(RunFilter(DEFAULT_TENANT))
        return await _end(runtime, latest.run_id)

    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], clock=clock, app=app
    ) as runtime:
        assert await runtime.heartbeats.tick() == 1
        quiet = await beat()
        stock.append("tea")
        woken, again = await beat(), await beat()

    assert [each.trigger.kind for each in (quiet, woken, again)] == [TriggerKind.HEARTBEAT] * 3
    assert [each.status for each in (quiet, woken, again)] == [
        RunStatus.SKIPPED,
        RunStatus.COMPLETED,
        RunStatus.SKIPPED,
    ]
    assert (quiet.result.error.type, again.result.error.type) == ("no_events", "unchanged")
    assert "tea for watch" in model.requests[0].messages[0].content
    assert len(model.requests) == 1


async def _end(runtime, run_id):
    while not (await runtime.run(DEFAULT_TENANT, run_id)).status.final:
        await runtime.watch(DEFAULT_TENANT, run_id, 99, 1)
    return await runtime.run(DEFAULT_TENANT, run_id)


@pytest.mark.parametrize("waits", ["trigger", "schedule"])
async def test_what_runs_anyway_costs_a_heartbeat_no_model_call(agents, tmp_path, waits):
    """The agent is busy; a heartbeat falls due, and behind it something waits that has its own run: two triggers, two calls."""
    agents.define(heartbeat={})
    clock, release = ManualClock(), asyncio.Event()

    async def first_waits(request):
        await release.wait()
        return says("done")

    model = Model(first_waits)
    watch = AgentRef.parse("watch")
    async with in_process_runtime(
        agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], clock=clock
    ) as runtime:
        assert await runtime.heartbeats.tick() == 1
        first = await runtime.submit(watch, Trigger(TriggerKind.API))
        await model.asked.wait()
        clock._elapsed += 300
        assert await runtime.schedule_firer.fire_all_due() == 1
        if waits == "trigger":
            await runtime.submit(watch, Trigger(TriggerKind.API))
        else:
            now = clock.now()
            await runtime.timetable.create(watch, ScheduleRequest("look", at=now + timedelta(seconds=1)))
            clock._elapsed += 2
            assert await runtime.schedule_firer.fire_all_due() == 1
        waiting = await runtime.runs(RunFilter(DEFAULT_TENANT, watch, RunStatus.QUEUED))
        release.set()
        ended = [await _end(runtime, run_id) for run_id in (first.run_id, *(each.run_id for each in waiting))]

    assert sorted(run.trigger.kind is TriggerKind.HEARTBEAT for run in ended) == [False, False, True]
    assert {run.status for run in ended if run.trigger.kind is not TriggerKind.HEARTBEAT} == {RunStatus.COMPLETED}
    assert len(model.requests) == 2
