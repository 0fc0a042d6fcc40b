"""Heartbeats with the real tools, sources and store."""

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.ports.store import RunFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.engine.conftest import Model, says


async def test_an_event_source_of_the_application_wakes_the_agent_for_what_is_new(agents, tmp_path):
    agents.define(heartbeat={})
    app, clock, stock = OwlClaw("shop"), ManualClock(), []

    @app.event_source("low_stock")
    def low_stock(agent: AgentRef) -> list[str]:
        return [f"{each} for {agent.agent_id}" for each in stock]

    model = Model(lambda _: says("ordered"))

    async def beat():
        clock._elapsed += 300
        assert await runtime.bell.ring_all() == 1
        [latest, *_] = await runtime.runs(RunFilter(DEFAULT_TENANT))
        while not (await runtime.run(DEFAULT_TENANT, latest.run_id)).status.final:
            await runtime.watch(DEFAULT_TENANT, latest.run_id, 99, 1)
        return await runtime.run(DEFAULT_TENANT, latest.run_id)

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
