"""Quotas of a tenant, through the whole engine."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.access.tenants import TenantChange
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import MemoryHomeKind
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.domain.quota import KeyQuota, Quotas, QuotaUse
from owlclaw_ray.domain.run import RunStatus, Usage
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind, ScheduleRequest
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.domain.trigger import Admission, Trigger, TriggerKind
from owlclaw_ray.errors import InvalidAccessError, QuotaReachedError
from owlclaw_ray.ids import KeyId, ScheduleId, TenantId
from owlclaw_ray.policy.budgets import RunBudgets
from owlclaw_ray.runtime.api import TriggerRequest
from owlclaw_ray.store.commands import CreateSchedule, PutKey, PutTenant, SubmitRun
from owlclaw_ray.store.queries import TenantById
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.host import HostTools
from tests.contracts.store_access_contract import KEY
from tests.runs.test_runs import api
from tests.worlds import Model, asks, says

ACME = TenantId("acme")
TOOLS = HostTools(agents=AgentOptions())
WATCH = AgentRef.parse("watch", ACME)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def running(agents, tmp_path, clock):
    """Returns a runtime that a tenant with these quotas shares."""

    def made(quotas, model, memories=MemoryHomeKind.FILES, **limits):
        agents.define(limits=limits)
        return Running(agents, tmp_path, clock, quotas, model=model, memories=memories)

    return made


class Running:
    def __init__(self, agents, folder, clock, quotas, *, model, memories):
        self._runtime = in_process_runtime(
            agents_dir=agents.folder,
            data_dir=folder / "data",
            models=[model],
            clock=clock,
            host_tools=TOOLS,
            memories=memories,
        )
        self._tenant = Tenant(ACME, "Acme", clock.now(), "system:local", quotas=quotas)

    async def __aenter__(self):
        runtime = await self._runtime.__aenter__()
        await runtime.store.apply([PutTenant(self._tenant, await runtime.store.read(TenantById(ACME)))])
        return runtime

    async def __aexit__(self, *error):
        return await self._runtime.__aexit__(*error)


@pytest.fixture
def waits(monkeypatch):
    """Set whenever a run waits for tokens."""
    begun, pause = asyncio.Event(), RunBudgets._pause

    async def told(self, seconds, leaving):
        begun.set()
        await pause(self, seconds, leaving)

    monkeypatch.setattr(RunBudgets, "_pause", told)
    return begun


async def test_a_run_that_waits_for_tokens_of_the_next_minute_does_not_use_up_its_time(running, clock, waits):
    model = Model(lambda _: ModelReply("done", (), "test", Usage(prompt_tokens=100)))

    async with running(Quotas(model_tokens_a_minute=50), model, run_timeout=20) as runtime:
        first = await runtime.submit(WATCH, api())
        assert (await runtime.outcome(first)).status is RunStatus.COMPLETED
        outcome = asyncio.create_task(runtime.outcome(await runtime.submit(WATCH, api())))
        await waits.wait()
        await clock.advance(50)
        assert not outcome.done()

        await clock.advance(10)

        assert (await outcome).status is RunStatus.COMPLETED


async def test_a_run_that_waits_for_tokens_leaves_at_once_when_the_runtime_stops_and_goes_on_in_the_next(
    running, clock, waits
):
    model = Model(lambda _: ModelReply("done", (), "test", Usage(prompt_tokens=100)))

    async with running(Quotas(model_tokens_a_minute=50), model) as runtime:
        await runtime.outcome(await runtime.submit(WATCH, api()))
        second = await runtime.submit(WATCH, api())
        await waits.wait()
        began = clock.monotonic()
        await runtime.stop()
        left = await runtime.run(ACME, second.run_id)
        lasted = clock.monotonic() - began

    assert (lasted, left.status, len(model.requests)) == (0, RunStatus.RUNNING, 1)
    await clock.advance(60)
    async with running(Quotas(model_tokens_a_minute=50), model) as runtime:
        assert (await runtime.outcome(second)).status is RunStatus.COMPLETED
    assert len(model.requests) == 2


async def test_a_repetition_is_answered_with_its_run_however_full_the_quota_is(running):
    gate = asyncio.Event()

    async def wait():
        await gate.wait()
        return says("done")

    async with running(Quotas(open_runs=1), Model(lambda _: wait())) as runtime:
        first = await runtime.submit(WATCH, api(), idempotency_key="order-17", body_hash="b")
        for _ in range(3):
            with pytest.raises(QuotaReachedError, match="the tenant has 1 run that is not over"):
                await runtime.submit(WATCH, api())
            again = await runtime.submit(WATCH, api(), idempotency_key="order-17", body_hash="b")
            assert (again.run_id, again.duplicate) == (first.run_id, True)
        gate.set()
        await runtime.outcome(first)


async def test_a_flood_that_is_refused_asks_the_store_once_in_a_few_seconds(running, clock, monkeypatch):
    async with running(Quotas(starts_a_minute=1), Model(lambda _: says("done"))) as runtime:
        await runtime.outcome(await runtime.submit(WATCH, api()))
        asked, apply = [], runtime._store.apply

        async def counted(commands):
            asked.extend(each for each in commands if isinstance(each, SubmitRun))
            return await apply(commands)

        monkeypatch.setattr(runtime._store, "apply", counted)
        for _ in range(2):
            refused = await runtime.submit_all([TriggerRequest(WATCH, api()) for _ in range(10)])
            for _ in range(50):
                with pytest.raises(QuotaReachedError, match="1 start in this minute"):
                    await runtime.submit(WATCH, api())
            assert all(isinstance(each, QuotaReachedError) for each in refused)
            await clock.advance(5)

    assert len(asked) == 20, "each batch was on its way before the first refusal came"


async def test_a_backfill_says_how_many_times_a_quota_refused(running, clock):
    async with running(Quotas(open_runs=1), Model(lambda _: says("done"))) as runtime:
        rule = ("*/5 * * * *", "UTC")
        schedule = Schedule(ScheduleId("sch_1"), WATCH, ScheduleKind.CRON, "look", clock.now(), clock.now(), *rule)
        await runtime.store.apply([CreateSchedule(schedule, 9)])
        since = clock.now()
        await clock.advance(1_000)

        done = await runtime.timetable.backfill(ACME, ScheduleId("sch_1"), since, clock.now())

    assert (len(done.queued), done.refused) == (1, 3)


async def test_a_backfill_counts_for_the_key_that_asks_for_it_and_once(running, clock):
    key = KeyQuota(KeyId("4fT0aQ1z"), 2)
    async with running(Quotas(), Model(lambda _: says("done"))) as runtime:
        rule = ("*/5 * * * *", "UTC")
        schedule = Schedule(ScheduleId("sch_1"), WATCH, ScheduleKind.CRON, "look", clock.now(), clock.now(), *rule)
        await runtime.store.apply([CreateSchedule(schedule, 9)])
        since = clock.now()
        await clock.advance(1_000)
        asked = (ACME, ScheduleId("sch_1"), since, clock.now())

        done, again = [await runtime.timetable.backfill(*asked, quota=key) for _ in range(2)]
        with pytest.raises(QuotaReachedError, match="the key has 2 starts in this minute"):
            await runtime.submit(WATCH, api(), Admission(quota=key))

    assert [(len(each.queued), each.known, each.refused) for each in (done, again)] == [(2, 0, 2), (0, 2, 2)]


async def test_a_new_agent_beyond_the_quota_is_refused_and_those_that_there_are_go_on(running):
    async with running(Quotas(agents=1), Model(lambda _: says("done"))) as runtime:
        await runtime.outcome(await runtime.submit(WATCH, api()))

        for _ in range(2):
            with pytest.raises(QuotaReachedError, match="the tenant has 1 agent") as refused:
                await runtime.submit(AgentRef.parse("watch:2", ACME), api())
            outcome = await runtime.outcome(await runtime.submit(WATCH, api()))

    assert outcome.status is RunStatus.COMPLETED
    assert (refused.value.quota, refused.value.retry_after) == ("agents", 60)


async def test_a_schedule_beyond_the_quota_is_refused_until_another_one_is_over(running):
    async with running(Quotas(schedules=1), Model(lambda _: says("done"))) as runtime:
        first = await runtime.timetable.create(WATCH, ScheduleRequest("look", interval_seconds=900))
        with pytest.raises(QuotaReachedError, match="the tenant has 1 schedule"):
            await runtime.timetable.create(WATCH, ScheduleRequest("look", delay_seconds=900))

        await runtime.timetable.cancel(ACME, first.schedule_id)
        second = await runtime.timetable.create(WATCH, ScheduleRequest("look", delay_seconds=900))

    assert second.focus == "look"


async def test_an_agent_that_may_make_no_schedule_more_is_told_what_to_do(running):
    plan = [asks(("schedule_once", '{"delay_seconds": 900, "focus": "look"}')), says("done")]
    model = Model(lambda _: plan.pop(0))

    async with running(Quotas(schedules=0), model) as runtime:
        outcome = await runtime.outcome(await runtime.submit(WATCH, api()))

    assert outcome.status is RunStatus.COMPLETED
    told = model.requests[-1].messages[-1].content
    assert "quota reached: the tenant has 0 schedules (schedules)" in told
    assert "end one with cancel_schedule first" in told


async def test_runs_beyond_those_that_may_be_executed_at_once_wait_and_begin_as_soon_as_one_ends(running):
    gates = [asyncio.Event() for _ in range(4)]
    begun = asyncio.Queue()

    async def wait(number):
        begun.put_nowait(number)
        await gates[number].wait()
        return says("done")

    model = Model(lambda request: wait(int(request.messages[0].content.rpartition("no. ")[2][0])))
    async with running(Quotas(running_runs=2), model) as runtime:
        agents = [AgentRef.parse(f"watch:{number}", ACME) for number in range(4)]
        runs = [
            await runtime.submit(agent, Trigger(TriggerKind.API, focus=f"no. {at}")) for at, agent in enumerate(agents)
        ]
        assert {await begun.get(), await begun.get()} == {0, 1}

        waiting = [await runtime.run(ACME, runs[at].run_id) for at in (2, 3)]
        assert [(each.status, each.waits_for) for each in waiting] == 2 * [(RunStatus.QUEUED, "running_runs")]
        assert begun.empty()
        gates[1].set()
        assert await begun.get() == 2
        assert (await runtime.run(ACME, runs[2].run_id)).waits_for == ""
        assert (await runtime.run(ACME, runs[3].run_id)).waits_for == "running_runs"
        for gate in gates:
            gate.set()
        outcomes = [await runtime.outcome(run) for run in runs]

    assert [each.status for each in outcomes] == 4 * [RunStatus.COMPLETED]


async def test_an_agent_that_waits_for_one_that_it_started_does_not_keep_the_only_place(running, agents):
    assigned = '{"agent_definition_id": "helper", "assignment": "look"}'
    plan = [asks(("agent__create_sub_agent", assigned)), says("seen"), says("done")]
    model = Model(lambda _: plan.pop(0))

    async with running(Quotas(running_runs=1), model) as runtime:
        agents.define("helper", model="test")
        outcome = await runtime.outcome(await runtime.submit(WATCH, api()))

    assert (outcome.status, plan) == (RunStatus.COMPLETED, [])


async def test_what_an_agent_starts_counts_for_the_key_that_asked_for_its_run(running, agents):
    assigned = '{"agent_definition_id": "helper", "assignment": "look"}'
    plan = [asks(("agent__create_sub_agent", assigned)), says("seen"), says("done")]
    limits = {"starts_a_minute": 9, "open_runs": 2, "running_runs": 1, "model_tokens_a_minute": 10**6}
    key = replace(KEY, tenant=ACME, **limits)
    trigger = replace(api(), submitters=(f"key:{key.key_id}",))

    async with running(Quotas(), Model(lambda _: plan.pop(0))) as runtime:
        agents.define("helper", model="test")
        await runtime.store.apply([PutKey(key, None, ())])
        outcome = await runtime.outcome(await runtime.submit(WATCH, trigger, Admission(quota=key.quota)))
        use = await runtime.keys.use(key)

    assert (outcome.status, plan) == (RunStatus.COMPLETED, [])
    assert use == QuotaUse(starts_a_minute=2, open_runs=0, running_runs=0, model_tokens_a_minute=3 * 15)


async def test_an_agent_that_may_remember_no_more_is_told_and_goes_on(running):
    plan = [asks(("remember", '{"content": "the market is calm"}')), says("done")]
    model = Model(lambda _: plan.pop(0))

    async with running(Quotas(memory_bytes=10), model, MemoryHomeKind.DATABASE) as runtime:
        outcome = await runtime.outcome(await runtime.submit(WATCH, api()))
        with pytest.raises(QuotaReachedError, match="the tenant may have 10 bytes of memories"):
            await runtime.memory.remember(WATCH, "the market is calm")
        kept = await runtime.memory.memories(WATCH)

    assert (outcome.status, kept) == (RunStatus.COMPLETED, ())
    told = model.requests[-1].messages[-1].content
    assert "limit_reached" in told
    assert "the tenant may have 10 bytes of memories (memory_bytes), and this would be more" in told


async def test_what_is_forgotten_makes_room_for_what_is_remembered(running):
    async with running(Quotas(memory_bytes=1_300), Model(lambda _: says("done")), MemoryHomeKind.DATABASE) as runtime:
        first = await runtime.memory.remember(WATCH, "calm " * 160)
        with pytest.raises(QuotaReachedError):
            await runtime.memory.remember(WATCH, "busy " * 160)
        await runtime.memory.delete(WATCH, first.memory_id)
        second = await runtime.memory.remember(WATCH, "busy " * 160)

    assert second.content == "busy " * 160


async def test_memories_are_counted_by_number_whoever_writes_them_and_wherever_they_go(running):
    quotas, model = Quotas(memories=3), Model(lambda _: says("done"))
    async with running(quotas, model, MemoryHomeKind.DATABASE) as runtime:
        memory = runtime.memory
        first = await memory.remember(WATCH, "the market is calm")
        await memory.remember(WATCH, "the pump is at gate nine")
        await memory.archive(WATCH, [first.memory_id])
        await memory.put_text(WATCH, await memory.text(WATCH) + b"\n## By hand\n\n```\n## no entry\n```\n\n---\n")
        used = (await runtime.tenants.use(await runtime.tenants.tenant(ACME))).memories
        with pytest.raises(QuotaReachedError, match="the tenant may have 3 memories"):
            await memory.remember(WATCH, "whatever else there is")
        await memory.delete(WATCH, first.memory_id)
        kept = await memory.remember(WATCH, "whatever else there is")

    assert used == 3
    assert kept.content == "whatever else there is"


async def test_a_quota_of_what_is_in_files_cannot_be_given(running):
    async with running(Quotas(), Model(lambda _: says("done"))) as runtime:
        for quotas in (Quotas(memories=1), Quotas(memory_bytes=1), Quotas(artifact_bytes=1)):
            with pytest.raises(InvalidAccessError, match="are in files, not in the store"):
                await runtime.tenants.create(LOCAL, "other", quotas=quotas)
            with pytest.raises(InvalidAccessError, match="cannot be counted"):
                await runtime.tenants.change(LOCAL, ACME, TenantChange(quotas=quotas.given))
