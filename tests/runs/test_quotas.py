"""Quotas of a tenant, through the whole engine."""

from __future__ import annotations

import asyncio

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.run import RunStatus, Usage
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.domain.tenant import Tenant
from owlclaw_ray.errors import QuotaReachedError
from owlclaw_ray.ids import ScheduleId, TenantId
from owlclaw_ray.policy.budgets import RunBudgets
from owlclaw_ray.runtime.api import TriggerRequest
from owlclaw_ray.store.commands import CreateSchedule, PutTenant, SubmitRun
from owlclaw_ray.store.queries import TenantById
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.runs.test_runs import api
from tests.worlds import Model, says

ACME = TenantId("acme")
WATCH = AgentRef.parse("watch", ACME)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def running(agents, tmp_path, clock):
    """Returns a runtime that a tenant with these quotas shares."""

    def made(quotas, model, **limits):
        agents.define(limits=limits)
        return Running(agents, tmp_path, clock, quotas, model)

    return made


class Running:
    def __init__(self, agents, folder, clock, quotas, model):
        self._runtime = in_process_runtime(
            agents_dir=agents.folder, data_dir=folder / "data", models=[model], clock=clock
        )
        self._tenant = Tenant(ACME, "Acme", clock.now(), "system:local", quotas=quotas)

    async def __aenter__(self):
        runtime = await self._runtime.__aenter__()
        await runtime.store.apply([PutTenant(self._tenant, await runtime.store.read(TenantById(ACME)))])
        return runtime

    async def __aexit__(self, *error):
        return await self._runtime.__aexit__(*error)


async def test_a_run_that_waits_for_tokens_of_the_next_minute_does_not_use_up_its_time(running, clock):
    model = Model(lambda _: ModelReply("done", (), "test", Usage(prompt_tokens=100)))

    async with running(Quotas(model_tokens_a_minute=50), model, run_timeout=20) as runtime:
        first = await runtime.submit(WATCH, api())
        assert (await runtime.outcome(first)).status is RunStatus.COMPLETED
        second = await runtime.submit(WATCH, api())
        outcome = asyncio.create_task(runtime.outcome(second))
        await clock.advance(50)
        assert not outcome.done()
        while not outcome.done():
            await clock.advance(1)
            await asyncio.sleep(0)

    assert (await outcome).status is RunStatus.COMPLETED
    assert clock.monotonic() >= 60


async def test_a_run_that_waits_for_tokens_leaves_at_once_when_the_runtime_stops_and_goes_on_in_the_next(
    running, clock, monkeypatch
):
    model = Model(lambda _: ModelReply("done", (), "test", Usage(prompt_tokens=100)))
    waits, pause = asyncio.Event(), RunBudgets._pause

    async def told(self, seconds, leaving):
        waits.set()
        await pause(self, seconds, leaving)

    monkeypatch.setattr(RunBudgets, "_pause", told)
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
