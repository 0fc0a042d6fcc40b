"""Quotas where two nodes write at once."""

from __future__ import annotations

import asyncio
from itertools import chain

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.quota import AGENTS, OPEN_RUNS, RUNNING_RUNS, SCHEDULES, Quotas, held_account
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import ActivationId, RunId
from owlclaw_ray.store.commands import (
    ActivateAgent,
    CancelRun,
    CommandFailed,
    CreateSchedule,
    RunAccepted,
    RunFinished,
    ScheduleCreated,
)
from owlclaw_ray.store.queries import BudgetUses, RunFilter
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_commands import NOW, ending, one
from tests.contracts.store_quota_contract import ACME, clerk, start, tenant
from tests.contracts.store_schedule_contract import schedule

pytestmark = pytest.mark.postgres


@pytest.fixture
async def keepers(postgres_url):
    first, second = await asyncio.gather(*(open_store(postgres_url, writer=f"keeper-{each}") for each in (1, 2)))
    yield first, second
    await first.close()
    await second.close()


async def used(store, quota: str) -> int:
    (use,) = await store.read(BudgetUses((held_account(quota, ACME),)))
    return use.used


async def open_runs(store) -> int:
    found = await store.read(RunFilter(ACME, limit=1_000))
    return sum(each.status is RunStatus.QUEUED for each in found)


async def test_two_keepers_admit_together_exactly_what_a_quota_allows(keepers):
    await one(keepers[0], tenant(Quotas(open_runs=50, agents=20, schedules=30)))

    async def submit(at: int):
        runs = [start(number, clerk(number % 23)) for number in range(at, at + 10)]
        plans = [CreateSchedule(schedule(f"sch_{each}", clerk(each % 23)), 99) for each in range(at, at + 5)]
        return await keepers[at // 10 % 2].apply([*runs, *plans])

    outcomes = [*chain(*await asyncio.gather(*(submit(at) for at in range(0, 200, 10))))]

    accepted = sum(isinstance(each, RunAccepted) for each in outcomes)
    planned = sum(isinstance(each, ScheduleCreated) for each in outcomes)
    assert not any(isinstance(each, CommandFailed) for each in outcomes)
    assert (accepted, planned) == (50, 30)
    assert [await used(keepers[0], each) for each in (OPEN_RUNS, AGENTS, SCHEDULES)] == [50, 20, 30]


async def test_a_quota_that_is_given_amid_a_flood_counts_every_run(keepers):
    made = tenant(Quotas())
    given = replace(made, tenant=replace(made.tenant, quotas=Quotas(open_runs=70, agents=30)), seen=made.tenant)
    await one(keepers[0], made)

    async def flood(at: int):
        found = []
        for number in range(at, at + 40):
            found.append(await one(keepers[at // 40 % 2], start(number, clerk(number % 37))))
            if number % 4 == 0:
                await one(keepers[number % 2], CancelRun(ACME, RunId(f"run_acme_{number}"), NOW))
        return found

    async def give():
        while await open_runs(keepers[1]) < 5:
            await asyncio.sleep(0)
        return await one(keepers[1], given)

    *_, stored = await asyncio.gather(*(flood(at) for at in range(0, 320, 40)), give())

    assert not isinstance(stored, CommandFailed)
    there = await open_runs(keepers[0])
    assert await used(keepers[0], OPEN_RUNS) == there
    assert there == 70


async def test_two_keepers_have_together_no_more_runs_executed_than_a_quota_allows_and_leave_no_place_empty(keepers):
    await one(keepers[0], tenant(Quotas(running_runs=3)))
    await keepers[0].apply([start(number, clerk(number % 12)) for number in range(48)])
    most, ended = 0, []
    waiting, busy, woken = asyncio.Queue(), set(), set()

    async def execute(at: int):
        nonlocal most
        keeper, other = keepers[at % 2], keepers[1 - at % 2]
        while (agent := await waiting.get()) is not None:
            if agent in busy:
                woken.add(agent)
                continue
            busy.add(agent)
            active = await one(keeper, ActivateAgent(agent, ActivationId(f"act_{agent}"), NOW, claim=True))
            run = active.claimed
            while run is not None:
                running = await other.read(RunFilter(ACME, status=RunStatus.RUNNING, limit=1_000, payloads=False))
                most = max(most, len(running))
                end = ending(run.run.run_id, run.journal[-1].seq + 1, epoch=active.epoch, agent=agent)
                finished = await one(keeper, end)
                assert isinstance(finished, RunFinished)
                ended.append(run.run.run_id)
                run = finished.next
                for each in (*finished.admitted, *(8 * [None] if len(ended) == 48 else [])):
                    waiting.put_nowait(each)
            busy.remove(agent)
            if agent in woken:
                woken.remove(agent)
                waiting.put_nowait(agent)

    for number in range(12):
        waiting.put_nowait(clerk(number))
    await asyncio.gather(*(execute(at) for at in range(8)))

    assert sorted(ended) == sorted(f"run_acme_{number}" for number in range(48))
    assert most <= 3
    assert await used(keepers[0], RUNNING_RUNS) == 0
