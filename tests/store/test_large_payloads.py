from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.json import JsonText
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import StoreUnavailableError, TerminalError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.batcher import Bound
from owlclaw_ray.store.commands import RunClaimed
from owlclaw_ray.store.large_payloads import LargePayloads
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.worlds import Model, says

NOW = datetime(2026, 11, 23, tzinfo=UTC)


class Runs:
    """Has every run, with a payload of 100 characters, once it is open."""

    def __init__(self):
        self.open, self.known = True, True

    async def read(self, query):
        if not self.open:
            raise StoreUnavailableError("being restarted")
        return (
            replace(claim(query.run_id).run, trigger=Trigger(TriggerKind.API, JsonText("1" * 100)))
            if self.known
            else None
        )


def claim(run_id, left=100):
    agent = AgentRef.parse("watch:AAPL")
    run = Run(RunId(run_id), 1, agent, Trigger(TriggerKind.API), RunStatus.RUNNING, NOW, NOW)
    return RunClaimed(run, (), payload_left=left)


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_model_gets_a_large_payload_like_a_small_one(agents, tmp_path):
    agents.define()
    model = Model(lambda request: says("done"))
    payload = [f"item {number}" for number in range(20_000)]
    options = {"agents_dir": agents.folder, "data_dir": tmp_path / "data"}
    async with in_process_runtime(**options, models=[model]) as runtime:
        run = await runtime.outcome(
            await runtime.submit(AgentRef.parse("watch"), Trigger(TriggerKind.API, payload).compact())
        )

    assert run.status is RunStatus.COMPLETED, run.result
    [request] = model.requests
    assert request.trigger.payload == payload
    assert '"item 99"' in request.messages[-1].content


async def test_a_payload_that_was_left_is_read_and_what_a_claim_has_is_taken_from_it():
    payloads, small = LargePayloads(Runs(), ManualClock()), claim("run_2", left=0)
    async with payloads.whole(claim("run_1")) as large, payloads.whole(small) as other:
        assert large.trigger.content == JsonText("1" * 100)
        assert other is small.run


async def test_as_many_are_executed_at_once_as_there_is_room_for_and_small_ones_never_wait():
    payloads, over, executed = LargePayloads(Runs(), ManualClock(), Bound(10, 250)), asyncio.Event(), []

    async def execute(claimed):
        async with payloads.whole(claimed) as run:
            executed.append(run.run_id)
            await over.wait()

    running = [asyncio.create_task(execute(claim(f"run_{at}"))) for at in range(6)]
    running.append(asyncio.create_task(execute(claim("small", left=0))))
    await settled()
    assert sorted(executed) == ["run_0", "run_1", "run_2", "small"]

    over.set()
    await asyncio.gather(*running)
    assert len(executed) == 7


async def test_who_waits_in_vain_takes_no_room():
    payloads = LargePayloads(Runs(), ManualClock(), Bound(10, 50))
    async with payloads.whole(claim("run_1")):
        waiting = asyncio.create_task(payloads.whole(claim("run_2")).__aenter__())
        await settled()
        waiting.cancel()
        await settled()
    async with asyncio.timeout(60), payloads.whole(claim("run_3")) as run:
        assert run.run_id == "run_3"


async def test_a_store_that_is_away_is_asked_again_and_one_without_the_run_ends_it():
    runs, clock = Runs(), ManualClock()
    runs.open = False
    payloads = LargePayloads(runs, clock)
    reading = asyncio.create_task(payloads.whole(claim("run_1")).__aenter__())
    await settled()
    assert not reading.done()
    runs.open = True
    await clock.advance(2)
    assert (await reading).trigger.payload

    runs.known = False
    with pytest.raises(TerminalError, match="has no run run_1 any more"):
        await payloads.whole(claim("run_1")).__aenter__()
