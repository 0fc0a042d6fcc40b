"""What a run tells, while it is under way, of a model that is slow, failed, or was given up for another."""

import pytest

from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.run import RunStatus
from tests.runs.test_active_time import SOLO, journal, the_run, until_a_model_is_asked


async def told(world, kind):
    return [entry.data for entry in await journal(world, await the_run(world)) if entry.kind is kind]


async def asked_and_failed(world, error):
    await until_a_model_is_asked(world)
    world.fail_model(world.models.pending[0], error)
    await until_a_model_is_asked(world)


async def test_an_attempt_that_failed_is_in_the_journal_while_the_next_one_is_under_way(world):
    world.nodes[0].submit(SOLO, "x")

    await asked_and_failed(world, "unavailable")
    await world.clock.advance(0.1)

    [failed] = await told(world, EntryKind.MODEL_ATTEMPT_FAILED)
    assert (failed["model"], failed["attempt"], failed["next_model"]) == ("test", 1, "test")
    assert failed["error"] == "unavailable"
    assert failed["retry_in"] > 0
    assert (await the_run(world)).status is RunStatus.RUNNING
    world.answer_model(world.models.pending[0])
    assert await world.come_to_rest()
    assert (await the_run(world)).status is RunStatus.COMPLETED


async def test_a_model_that_does_not_answer_is_named_for_as_long_as_it_does_not(world):
    world.nodes[0].submit(SOLO, "x")
    await until_a_model_is_asked(world)

    await world.clock.advance(4.5)

    active = await told(world, EntryKind.RUN_ACTIVE)
    assert active
    assert {each["asking"] for each in active} == {"test"}


async def test_a_model_that_another_fell_back_to_is_named_as_the_one_that_does_not_answer(world):
    world.definitions.have_models("small", "large")
    world.nodes[0].submit(SOLO, "x")
    await asked_and_failed(world, "refused")

    await world.clock.advance(4.5)

    [failed] = await told(world, EntryKind.MODEL_ATTEMPT_FAILED)
    assert (failed["model"], failed["attempt"], failed["next_model"], failed["retry_in"]) == ("small", 1, "large", 0)
    assert (await told(world, EntryKind.RUN_ACTIVE))[-1]["asking"] == "large"


async def test_waiting_for_a_tool_is_not_waiting_for_a_model(world):
    world.nodes[0].submit(SOLO, "x")
    await until_a_model_is_asked(world)
    world.answer_model(world.models.pending[0], "look")
    await world.clock.settle()

    await world.clock.advance(4.5)

    active = await told(world, EntryKind.RUN_ACTIVE)
    assert active
    assert not [each for each in active if "asking" in each]


async def test_a_call_that_takes_long_is_named_with_its_time_more_and_more_seldom(world):
    world.nodes[0].submit(SOLO, "x")
    await until_a_model_is_asked(world)
    world.answer_model(world.models.pending[0], "look")
    await world.clock.settle()

    for _ in range(32):
        await world.clock.advance(0.5)

    calls = [call for each in await told(world, EntryKind.RUN_ACTIVE) for call in each["running"]]
    assert {call["tool"] for call in calls} == {"look"}
    beside_the_run_s_own = [call["seconds"] for call in calls if round(call["seconds"]) % 2]
    assert beside_the_run_s_own == pytest.approx([3.0])
    assert len({call["call_id"] for call in calls}) == 1
