"""How long a run may take: its active time, all activations together, without its waits."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.approval import Decision
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.run import RunStatus
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.kernel.deadline import ActiveTime
from owlclaw_ray.store.queries import JournalOfRun, LedgerFilter, RunFilter
from owlclaw_ray.testing.clock import ManualClock
from tests.world import AGENTS, World

SOLO = AGENTS[0]
LIMIT = 20.0
"""The time limit of runs in the world of tests."""


async def the_run(world, agent=SOLO):
    [run] = [each for each in await world.nodes[0].gate.read(RunFilter(DEFAULT_TENANT)) if each.agent == agent]
    return run


async def journal(world, run):
    return await world.nodes[0].gate.read(JournalOfRun(DEFAULT_TENANT, run.run_id))


async def until_a_model_is_asked(world):
    for _ in range(40):
        await world.clock.settle()
        if world.models.pending:
            return
        await world.clock.advance(0.5)
    raise AssertionError("no model is asked")


async def test_a_run_whose_host_dies_again_and_again_ends_when_its_time_is_used_up(world):
    """One model call after another hangs and is taken down with its host; no reply is ever recorded."""
    world.nodes[0].submit(SOLO, "x")
    active = 0.0
    for _ in range(10):
        await until_a_model_is_asked(world)
        await world.clock.advance(4.5)
        active += 4.5
        if (await the_run(world)).status.final:
            break
        await world.nodes[0].kill_hosts()
        await world.clock.advance(1.5)

    run = await the_run(world)
    assert (run.status, run.result.error.type) == (RunStatus.TIMEOUT, "run_timeout")
    assert active <= LIMIT + 4.5
    resumed = [entry for entry in await journal(world, run) if entry.kind is EntryKind.RUN_RESUMED]
    assert len(resumed) >= 3


async def test_a_night_without_any_host_costs_a_run_a_tenth_of_its_time_and_no_more(world):
    world.nodes[0].submit(SOLO, "x")
    await until_a_model_is_asked(world)
    world.nodes[0]._end_directory()
    await world.nodes[0].kill_hosts()
    await world.clock.advance(8 * 3600)
    await world.nodes[0].kill()
    await until_a_model_is_asked(world)
    taken_up = world.clock.monotonic()

    while not (await the_run(world)).status.final:
        await world.clock.advance(0.5)

    run = await the_run(world)
    assert run.status is RunStatus.FAILED, "its model calls time out before it does"
    assert world.clock.monotonic() - taken_up >= 16


async def test_what_a_run_did_before_it_waited_for_an_approval_counts_and_the_wait_does_not(world):
    world.nodes[0].submit(SOLO, "x")
    await until_a_model_is_asked(world)
    await world.clock.advance(7)
    world.answer_model(world.models.pending[0], "risk")
    await world.clock.advance(3_600)
    assert (await the_run(world)).status is RunStatus.WAITING
    await world.nodes[0].decide(0, Decision.ALLOW_ONCE)
    await world.clock.settle()
    world.end_tool(world.tools[0])
    await until_a_model_is_asked(world)
    again = world.clock.monotonic()
    await world.clock.advance(7)
    world.answer_model(world.models.pending[0], "look")
    await world.clock.settle()
    world.end_tool(world.tools[0])
    await until_a_model_is_asked(world)

    while not (await the_run(world)).status.final:
        await world.clock.advance(0.5)

    run = await the_run(world)
    assert (run.status, run.result.error.type) == (RunStatus.TIMEOUT, "run_timeout")
    assert world.clock.monotonic() - again == pytest.approx(LIMIT - 7, abs=0.5)


@pytest.fixture
async def one_slot(stores):
    """A world in which one model call runs at once."""
    world = World(*stores, model_slots=1)
    await world.nodes[0].start()
    yield world
    await world.end()


async def asking_with_others_before(world):
    """Have four runs want one slot, which the first has; return the agent of the last."""
    agents = (AGENTS[0], AGENTS[1], AGENTS[3], AGENTS[4])
    for agent in agents:
        world.nodes[0].submit(agent, "x")
        await until_a_model_is_asked(world)
        await world.clock.settle()
    assert len(world.models.pending) == 1
    return agents[-1]


async def test_waiting_for_a_slot_does_not_count_against_a_runs_limit_and_is_told(one_slot):
    world = one_slot
    last = await asking_with_others_before(world)

    for _ in range(4):
        await until_a_model_is_asked(world)
        await world.clock.advance(7)
        world.answer_model(world.models.pending[0])
        await world.clock.settle()
    await world.clock.advance(1)

    run = await the_run(world, last)
    assert world.clock.monotonic() > LIMIT
    assert run.status is RunStatus.COMPLETED
    told = [entry.data.get("waited_ms", 0) for entry in await journal(world, run)]
    where = LedgerFilter(DEFAULT_TENANT, run_id=run.run_id, kind=LedgerKind.MODEL_CALL)
    [record] = await world.nodes[0].gate.read(where)
    assert sum(told) == record.record.data["waited_ms"] == 21_000


async def test_what_a_run_waited_for_a_slot_does_not_count_after_a_crash_either(one_slot):
    world = one_slot
    last = await asking_with_others_before(world)
    for _ in range(3):
        await until_a_model_is_asked(world)
        await world.clock.advance(7)
        world.answer_model(world.models.pending[0])
        await world.clock.settle()
    await world.clock.advance(3)

    await world.nodes[0].kill_hosts()
    assert await world.come_to_rest()

    run = await the_run(world, last)
    kinds = [entry.kind for entry in await journal(world, run)]
    assert EntryKind.RUN_RESUMED in kinds
    assert run.status is RunStatus.COMPLETED


async def test_a_run_that_waits_for_a_slot_is_cancelled_at_once(one_slot):
    world = one_slot
    last = await asking_with_others_before(world)
    run = await the_run(world, last)

    world.nodes[0].cancel(run.run_id)
    await world.clock.settle()

    assert (await the_run(world, last)).status is RunStatus.CANCELLED
    assert (await the_run(world)).status is RunStatus.RUNNING


async def test_a_run_that_waits_for_a_slot_is_handed_over_when_its_host_is_drained(one_slot):
    world = one_slot
    last = await asking_with_others_before(world)

    await world.nodes[0].stop(1.0)

    assert await world.come_to_rest()
    assert (await the_run(world, last)).status is RunStatus.COMPLETED
    assert not world.witness.violations


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=20), limit=st.integers(1, 12))
def test_only_the_seconds_count_for_which_the_clock_was_not_stopped(steps, limit):
    async def scenario():
        clock, beats = ManualClock(), []
        time = ActiveTime(clock, limit, used=0.5, every=1.0)
        active, over = 0.5, asyncio.Event()

        async def work():
            try:
                async with time.limited(lambda: beats.append(time.used)):
                    await asyncio.Event().wait()
            except TimeoutError:
                over.set()

        working = asyncio.create_task(work())
        await clock.settle()
        for paused, seconds in steps:
            time.pause(paused)
            await clock.advance(seconds)
            active += 0 if paused else seconds
            assert over.is_set() is (active >= limit)
            if over.is_set():
                break
            assert time.used == pytest.approx(active)
        assert beats == pytest.approx([0.5 + each for each in range(1, int(min(active, limit - 0.25) - 0.5) + 1)])
        working.cancel()

    asyncio.run(scenario())
