"""Tenants with definitions and settings of their own, through the whole engine: what the model gets, and which agents there are."""

from __future__ import annotations

import pytest
import yaml

from owlclaw_ray.domain.agent import AgentRef, Limits
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.domain.schedule import ScheduleRequest
from owlclaw_ray.errors import DefinitionError, TooManySchedulesError, UnknownAgentError
from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.store.commands import FireSchedule
from owlclaw_ray.store.queries import ScheduleFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime, isolation_of
from owlclaw_ray.tools.host import AgentOptions, HostTools
from tests.definitions.writing import write_skill
from tests.runs.test_runs import api
from tests.worlds import Model, asks, says

ACME, OTHER = TenantId("acme"), TenantId("other")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def running(agents, tmp_path):
    def made(model, **options):
        return in_process_runtime(
            agents_dir=agents.folder, data_dir=tmp_path / "data", models=[model], **{"clock": ManualClock(), **options}
        )

    return made


class Noted:
    """A store that notes the firings that it is given."""

    def __init__(self, store, fired):
        self._store, self._fired = store, fired

    async def apply(self, commands):
        self._fired.extend(each for each in commands if isinstance(each, FireSchedule))
        return await self._store.apply(commands)

    def __getattr__(self, name):
        return getattr(self._store, name)


def own(agents, name="watch", soul="You are Acme's.", **options):
    folder = agents.define(f"@acme/{name}", **options)
    (folder / "SOUL.md").write_text(soul)
    return folder


async def run(runtime, tenant, agent="watch"):
    return await runtime.outcome(await runtime.submit(AgentRef.parse(agent, tenant), api()))


def text_of(request):
    return "\n".join([request.system, *(message.content for message in request.messages)])


async def test_the_model_gets_the_tenants_own_definition(running, agents):
    agents.define()
    own(agents)
    model = Model(lambda _: says("done"))

    async with running(model) as runtime:
        for tenant in (ACME, OTHER, DEFAULT_TENANT):
            assert (await run(runtime, tenant)).status is RunStatus.COMPLETED

    assert ["You are Acme's." in text_of(each) for each in model.requests] == [True, False, False]
    assert ["You are calm." in text_of(each) for each in model.requests] == [False, True, True]


async def test_a_tenants_settings_hold_for_its_runs(running, agents):
    agents.define()
    own(agents, "buyer")
    (agents.folder / "@acme" / "tenant.yaml").write_text(
        yaml.safe_dump(
            {
                "definitions": ["watch"],
                "limits": {"turns": 1},
                "budgets": [{"name": "little", "unit": "tokens", "limit": 20, "reserve": 1}],
            }
        )
    )
    agents.define("clerk")
    model = Model(
        lambda _: asks(("builtin__query_state", '{"name": "x"}')) if len(model.requests) % 2 else says("done")
    )

    async with running(model) as runtime:
        first = await run(runtime, ACME)
        other = await run(runtime, OTHER)
        with pytest.raises(UnknownAgentError, match=r"'clerk'; defined here: buyer, watch$"):
            await run(runtime, ACME, "clerk")
        assert [each.agent.agent_id for each in await runtime.agents(ACME)] == ["buyer", "watch"]
        assert [each.agent.agent_id for each in await runtime.agents(OTHER)] == ["clerk", "watch"]

    assert (first.status, other.status) == (RunStatus.TERMINATED, RunStatus.COMPLETED)


async def test_a_budget_of_a_tenant_is_its_own(running, agents):
    agents.define()
    (agents.folder / "@acme").mkdir()
    (agents.folder / "@acme" / "tenant.yaml").write_text(
        yaml.safe_dump({"budgets": [{"name": "little", "unit": "calls", "limit": 1}]})
    )

    async with running(Model(lambda _: says("done"))) as runtime:
        statuses = [(await run(runtime, tenant)).status for tenant in (ACME, ACME, OTHER, OTHER)]

    assert statuses == [RunStatus.COMPLETED, RunStatus.TERMINATED, RunStatus.COMPLETED, RunStatus.COMPLETED]


async def test_an_agent_reads_skills_of_its_own_tenants_definition(running, agents):
    shared, mine = agents.define(), own(agents)
    write_skill(shared, "restock", "---\nname: restock\ndescription: x\n---\nShared words.")
    write_skill(mine, "restock", "---\nname: restock\ndescription: x\n---\nWords of Acme.")
    model = Model(
        lambda request: (
            says("done") if len(request.messages) > 1 else asks(("internal__load_skill", '{"name": "restock"}'))
        )
    )

    async with running(model) as runtime:
        for tenant in (ACME, OTHER):
            assert (await run(runtime, tenant)).status is RunStatus.COMPLETED

    told = [text_of(each) for each in model.requests[1::2]]
    assert ["Words of Acme." in each for each in told] == [True, False]
    assert ["Shared words." in each for each in told] == [False, True]


async def test_agents_see_and_start_the_definitions_of_their_tenant_alone(running, agents):
    agents.define()
    own(agents, "buyer")
    model = Model(
        lambda request: says("done") if len(request.messages) > 1 else asks(("agent__list_agent_definitions", "{}"))
    )

    async with running(model, host_tools=HostTools(agents=AgentOptions())) as runtime:
        for tenant in (ACME, OTHER):
            await run(runtime, tenant)

    assert ["buyer" in text_of(each) for each in model.requests[1::2]] == [True, False]


async def test_heartbeats_are_those_of_the_tenants_own_definition(running, agents):
    agents.define()
    own(agents, heartbeat={"every_seconds": 60})
    own(agents, "buyer", heartbeat={"every_seconds": 60})

    async with running(Model(lambda _: says("done"))) as runtime:
        await run(runtime, OTHER)
        assert await runtime.heartbeats.tick() == 2
        assert await runtime.heartbeats.tick() == 0
        beats = [await runtime._submissions.heartbeat_of(AgentRef.parse("watch", each)) for each in (ACME, OTHER)]
        assert [beat is not None for beat in beats] == [True, False]


async def test_schedules_of_a_tenants_agents_are_bounded_by_its_own_definition(running, agents):
    agents.define()
    own(agents, limits={"active_schedules": 1, "queued_runs": 1})
    own(agents, "buyer")
    request = ScheduleRequest("look", interval_seconds=60)

    async with running(Model(lambda _: says("done"))) as runtime:
        for tenant, number in ((ACME, 1), (OTHER, 2)):
            agent = AgentRef.parse("watch", tenant)
            for _ in range(number):
                await runtime.timetable.create(agent, request)
        with pytest.raises(TooManySchedulesError):
            await runtime.timetable.create(AgentRef.parse("watch", ACME), request)
        await runtime.timetable.create(AgentRef.parse("buyer", ACME), request)
        assert len(await runtime.timetable.schedules(ScheduleFilter(ACME, AgentRef.parse("buyer", ACME)))) == 1
        with pytest.raises(UnknownAgentError):
            await runtime.timetable.schedules(ScheduleFilter(OTHER, AgentRef.parse("buyer", OTHER)))


async def test_a_schedule_fires_on_the_terms_of_its_tenants_own_definition(running, agents, clock):
    agents.define(isolation="shared")
    own(agents, limits={"queued_runs": 7})
    request = ScheduleRequest("look", interval_seconds=60)

    async with running(Model(lambda _: says("done")), clock=clock) as runtime:
        for tenant in (ACME, OTHER):
            await runtime.timetable.create(AgentRef.parse("watch", tenant), request)
        await clock.advance(61)
        fired = []
        runtime.schedule_firer._store = Noted(runtime.schedule_firer._store, fired)
        await runtime.schedule_firer.fire_all_due()

    assert {each.run.agent.tenant: each.run.queue_limit for each in fired} == {ACME: 7, OTHER: Limits().queued_runs}


async def test_agents_are_placed_and_shown_as_their_tenants_own_definition_says(running, agents, monkeypatch):
    agents.define()
    write_skill(own(agents, isolation="shared"), "restock", "---\nname: restock\ndescription: x\n---\ny")
    own(agents, "buyer")
    asked = set()

    def noted(definitions, name):
        asked.add(name)
        return isolation_of(definitions, name)

    monkeypatch.setattr("owlclaw_ray.testing.in_process.isolation_of", noted)
    async with running(Model(lambda _: says("done"))) as runtime:
        for tenant in (ACME, DEFAULT_TENANT):
            await run(runtime, tenant)
        assert {"acme/watch", "watch"} <= asked
        assert (await runtime.agent(AgentRef.parse("watch", ACME))).isolation == "shared"
        assert [each.name for each in await runtime.skills(AgentRef.parse("watch", ACME))] == ["restock"]
        assert (await runtime.agent(AgentRef.parse("buyer", ACME))).problem == ""
        with pytest.raises(UnknownAgentError):
            await runtime.agent(AgentRef.parse("buyer", OTHER))


async def test_wrong_settings_stop_one_tenant(running, agents):
    agents.define()
    (agents.folder / "@acme").mkdir()
    (agents.folder / "@acme" / "tenant.yaml").write_text("limits: {turns: none}")

    async with running(Model(lambda _: says("done"))) as runtime:
        with pytest.raises(DefinitionError, match=r"@acme/tenant.yaml:1: limits.turns"):
            await run(runtime, ACME)
        assert (await run(runtime, OTHER)).status is RunStatus.COMPLETED
        (view,) = await runtime.agents(ACME)
        assert "tenant.yaml" in view.problem
