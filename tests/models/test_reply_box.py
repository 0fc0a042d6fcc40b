import asyncio

import pytest

from owlclaw_ray.domain.model import FailedAttempt, ModelReply, NextAttempt
from owlclaw_ray.errors import ModelRefusedError
from owlclaw_ray.kernel.batcher import MESSAGE
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.models.reply_box import ReplyBox, ReplyBoxes
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.ids import SequentialIds


async def echo(call, waiting=None):
    return ModelReply(call, (), "m")


async def never(call, waiting=None):
    await asyncio.Event().wait()


@pytest.fixture
def clock():
    return ManualClock()


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_answers_leave_together_as_soon_as_any_is_ready(clock):
    box = ReplyBox("box", echo, clock)
    await box.post([(1, pack("one")), (2, pack("two"))], [])

    received = await box.receive(5)

    assert [(answer.call_id, unpack(answer.outcome).text) for answer in received.answers] == [(1, "one"), (2, "two")]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), RuntimeError("odd")], ids=str)
async def test_a_call_that_fails_in_any_way_is_answered(clock, error):
    async def fail(call, waiting=None):
        raise error

    box = ReplyBox("box", fail, clock)
    await box.post([(1, pack("one"))], [])

    [answer] = (await box.receive(5)).answers

    assert isinstance(unpack(answer.outcome), ModelRefusedError)


async def test_a_call_that_cannot_be_unpacked_fails_alone(clock):
    box = ReplyBox("box", echo, clock)
    await box.post([(1, b"spoilt"), (2, pack("two"))], [])

    first, second = [unpack(each.outcome) for each in (await box.receive(5)).answers]

    assert isinstance(first, ModelRefusedError)
    assert second.text == "two"


async def test_an_answer_that_cannot_be_packed_is_an_error_of_its_own_call(clock):
    async def odd(call, waiting=None):
        return ModelReply(call, (), "m") if call == "two" else ModelReply(lambda: call, (), "m")

    box = ReplyBox("box", odd, clock)
    await box.post([(1, pack("one")), (2, pack("two"))], [])

    first, second = [unpack(each.outcome) for each in (await box.receive(5)).answers]

    assert isinstance(first, ModelRefusedError)
    assert second.text == "two"


async def test_answers_that_are_more_than_a_message_takes_leave_in_several(clock):
    async def long(call, waiting=None):
        return ModelReply("x" * (MESSAGE.size // 3), (), "m")

    box = ReplyBox("box", long, clock)
    await box.post([(number, pack("one")) for number in range(5)], [])
    await settle()

    received = [[each.call_id for each in (await box.receive(5)).answers] for _ in range(3)]

    assert received == [[0, 1], [2, 3], [4]]


async def test_of_waits_only_what_is_news_leaves(clock):
    tell = {}

    async def wait(call, waiting):
        tell[call] = waiting
        await never(call)

    box = ReplyBox("box", wait, clock)
    await box.post([(number, pack(call)) for number, call in enumerate(("long", "short", "withdrawn"), 1)], [])
    await settle()
    for waiting in tell.values():
        waiting(True)
    tell["short"](False)
    await box.post([], [3])

    began = await box.receive(5)
    tell["long"](False)
    tell["long"](True)
    tell["withdrawn"](False)
    over = asyncio.create_task(box.receive(5))
    await settle()
    nothing_new = not over.done()
    tell["long"](False)

    assert (began.waiting, began.answers) == (((1, True),), ())
    assert nothing_new
    assert (await over).waiting == ((1, False),)


async def test_failed_attempts_leave_at_once_each_of_them_once(clock):
    tell = []

    async def wait(call, listener):
        tell.append(listener)
        await never(call)

    box = ReplyBox("box", wait, clock)
    await box.post([(1, pack("long"))], [])
    await settle()
    attempts = [NextAttempt(FailedAttempt("m", "down", retryable=True), number, "m") for number in (1, 2)]
    for attempt in attempts:
        tell[0](attempt)

    early = await asyncio.wait_for(box.receive(3_600), 60)
    later = asyncio.create_task(box.receive(3_600))
    await settle()
    waits = not later.done()
    tell[0](attempts[0])

    assert early.failed == ((1, attempts[0]), (1, attempts[1]))
    assert waits
    assert (await asyncio.wait_for(later, 60)).failed == ((1, attempts[0]),)


async def test_a_withdrawn_call_is_stopped_and_gets_no_answer(clock):
    stopped = asyncio.Event()

    async def wait(call, waiting=None):
        try:
            await never(call)
        finally:
            stopped.set()

    box = ReplyBox("box", wait, clock)
    await box.post([(1, pack("one"))], [])
    await settle()
    await box.post([], [1])
    await stopped.wait()

    assert (await box.receive(0.01)).answers == ()


async def test_withdrawing_a_call_that_is_not_here_disturbs_nothing(clock):
    box = ReplyBox("box", echo, clock)

    await box.post([(2, pack("two"))], [1])

    assert [answer.call_id for answer in (await box.receive(5)).answers] == [2]


async def test_a_call_whose_withdrawal_came_before_it_is_not_begun(clock):
    begun = []

    async def begin(call, waiting=None):
        begun.append(call)
        return await echo(call)

    box = ReplyBox("box", begin, clock)
    await box.post([], [1])

    received = await box.receive(5, [(1, pack("one")), (2, pack("two"))])

    assert (begun, [answer.call_id for answer in received.answers]) == (["two"], [2])


async def test_a_listener_that_was_given_up_takes_no_answer_from_the_next(clock):
    gate = asyncio.Event()

    async def gated(call, waiting=None):
        await gate.wait()
        return await echo(call)

    box = ReplyBox("box", gated, clock)
    await box.post([(1, pack("one"))], [])
    given_up = asyncio.create_task(box.receive(5))
    await settle()
    present = asyncio.create_task(box.receive(5))
    await settle()
    gate.set()

    assert (await given_up).answers == ()
    assert [answer.call_id for answer in (await present).answers] == [1]


async def test_each_link_has_a_box_of_its_own_and_keeps_it(clock):
    boxes = ReplyBoxes(echo, clock, SequentialIds())

    one, again, other = [await boxes.of(link).post([], []) for link in ("a", "a", "b")]

    assert one == again != other


async def test_a_box_that_nobody_asks_any_more_is_dropped_with_its_calls(clock):
    stopped = asyncio.Event()

    async def wait(call, waiting=None):
        try:
            await never(call)
        finally:
            stopped.set()

    boxes = ReplyBoxes(wait, clock, SequentialIds())
    sweeper = asyncio.create_task(boxes.remove_abandoned())
    await boxes.of("gone").post([(1, pack("one"))], [])

    await clock.advance(70)

    assert stopped.is_set()
    assert len(boxes) == 0
    sweeper.cancel()


async def test_a_box_with_a_listener_or_with_news_is_kept(clock):
    boxes = ReplyBoxes(never, clock, SequentialIds())
    sweeper = asyncio.create_task(boxes.remove_abandoned())
    listener = asyncio.create_task(boxes.of("listening").receive(1_000))
    for _ in range(20):
        await boxes.of("posting").post([], [])
        await clock.advance(20)

    assert len(boxes) == 2
    sweeper.cancel()
    listener.cancel()
