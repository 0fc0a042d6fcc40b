import asyncio

import pytest

from owlclaw_ray.kernel.batcher import Batcher, Bound


class Recorder:
    """A receiving side that answers when it is told to."""

    def __init__(self):
        self.batches = []
        self.gate = asyncio.Event()

    async def __call__(self, items):
        self.batches.append(list(items))
        await self.gate.wait()
        return [item * 10 for item in items]


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_items_that_arrive_during_a_call_leave_together_in_the_next():
    recorder = Recorder()
    batcher = Batcher(recorder)

    answers = [asyncio.create_task(batcher(1))]
    await settle()
    answers += [asyncio.create_task(batcher(number)) for number in (2, 3, 4)]
    await settle()
    recorder.gate.set()

    assert await asyncio.gather(*answers) == [10, 20, 30, 40]
    assert recorder.batches == [[1], [2, 3, 4]]


async def test_after_a_batch_of_several_more_gathers_while_it_rests_but_a_lone_item_waits_for_nobody():
    recorder, rested = Recorder(), asyncio.Event()
    recorder.gate.set()
    batcher = Batcher(recorder, rest=rested.wait)

    assert await batcher(0) == 0
    assert await asyncio.gather(batcher(1), batcher(2)) == [10, 20]
    later = asyncio.create_task(batcher(3))
    await settle()
    later = [later, asyncio.create_task(batcher(4))]
    await settle()
    assert recorder.batches == [[0], [1, 2]]
    rested.set()

    assert await asyncio.gather(*later) == [30, 40]
    assert recorder.batches == [[0], [1, 2], [3, 4]]


async def test_a_batch_has_a_limit():
    recorder = Recorder()
    recorder.gate.set()
    batcher = Batcher(recorder, most=Bound(2, 1_000))

    assert await asyncio.gather(*(batcher(number) for number in range(5))) == [0, 10, 20, 30, 40]
    assert max(len(batch) for batch in recorder.batches) == 2


async def test_a_failing_call_fails_its_own_batch_only():
    calls = 0

    async def call(items):
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.sleep(0)
            raise ConnectionError("gone")
        return items

    batcher = Batcher(call)
    first = asyncio.create_task(batcher("first"))
    await asyncio.sleep(0)
    second = asyncio.create_task(batcher("second"))

    with pytest.raises(ConnectionError):
        await first
    assert await second == "second"


async def test_a_caller_that_gives_up_does_not_disturb_the_others():
    recorder = Recorder()
    batcher = Batcher(recorder)
    patient, hasty = asyncio.create_task(batcher(1)), asyncio.create_task(batcher(2))
    await settle()

    hasty.cancel()
    recorder.gate.set()

    assert await patient == 10


async def test_a_caller_that_asks_again_at_once_is_answered_again():
    async def call(items):
        return items

    batcher = Batcher(call)

    async with asyncio.timeout(5):
        assert [await batcher(number) for number in range(10)] == list(range(10))


async def test_an_item_that_nobody_waits_for_any_more_is_not_sent_if_it_can_be_recalled():
    recorder = Recorder()
    batcher = Batcher(recorder, recalls=True)

    first = asyncio.create_task(batcher(1))
    await settle()
    second, third = asyncio.create_task(batcher(2)), asyncio.create_task(batcher(3))
    await settle()
    second.cancel()
    await settle()
    recorder.gate.set()

    assert await asyncio.gather(first, third) == [10, 30]
    assert recorder.batches == [[1], [3]]


async def test_when_all_that_waits_was_recalled_nothing_is_sent():
    recorder = Recorder()
    batcher = Batcher(recorder, recalls=True)

    first = asyncio.create_task(batcher(1))
    await settle()
    second = asyncio.create_task(batcher(2))
    await settle()
    second.cancel()
    await settle()
    recorder.gate.set()
    await first

    assert await batcher(4) == 40
    assert recorder.batches == [[1], [4]]


async def test_items_leave_in_turns_of_whose_they_are_each_one_s_in_their_order():
    calls = []

    async def call(items):
        calls.append(list(items))
        return items

    batcher = Batcher(call, most=Bound(4, 0))
    items = [("a", at) for at in range(6)] + [("b", at) for at in range(2)] + [("c", 0)]

    await asyncio.gather(*(batcher(item, item[0]) for item in items))

    assert calls == [
        [("a", 0), ("b", 0), ("c", 0), ("a", 1)],
        [("b", 1), ("a", 2), ("a", 3), ("a", 4)],
        [("a", 5)],
    ]
