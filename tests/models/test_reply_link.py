import asyncio
from itertools import count

import pytest

from owlclaw_ray.domain.model import FailedAttempt, ModelReply, NextAttempt
from owlclaw_ray.errors import ModelRefusedError, ModelUnavailableError, RuntimeUnavailableError
from owlclaw_ray.kernel.batcher import MESSAGE, Bound
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.models.reply_box import CallReply, ReplyBox
from owlclaw_ray.models.reply_link import LinkLostError, ReplyLink
from owlclaw_ray.testing.clock import ManualClock


class Far:
    """A far end that can die, and be replaced by an empty one."""

    def __init__(self, perform):
        self.perform = perform
        self.posts = []
        """What each message carried, those that waited for answers too, if they carried anything."""
        self.receives = 0
        self.refused = set()
        """Calls, and withdrawals, that cannot be put into a message."""
        self.numbers = count()
        self.open = asyncio.Event()
        self.open.set()
        self.begin_anew()

    def begin_anew(self):
        self.box = ReplyBox(f"box {next(self.numbers)}", self.perform, ManualClock())
        self.death = asyncio.Event()

    def die(self):
        self.death.set()
        self.box.close()

    async def post(self, calls, withdrawn):
        await self.arrive(calls, withdrawn)
        return await self.box.post(calls, withdrawn)

    async def receive(self, seconds, calls=(), withdrawn=()):
        self.receives += 1
        if calls or withdrawn:
            await self.arrive(calls, withdrawn)
        self.check()
        dying = asyncio.create_task(self.death.wait())
        receiving = asyncio.create_task(self.box.receive(seconds, calls, withdrawn))
        await asyncio.wait({dying, receiving}, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        dying.cancel()
        return receiving.result()

    async def arrive(self, calls, withdrawn):
        self.posts.append(([unpack(call) for _, call in calls], list(withdrawn)))
        await self.open.wait()
        if self.refused & {*withdrawn, *(unpack(call) for _, call in calls)}:
            raise TypeError("cannot pickle it")
        self.check()

    def check(self):
        if self.death.is_set():
            raise RuntimeUnavailableError("dead")


class Provider:
    """Answers calls when it is told to, and remembers which were stopped."""

    def __init__(self):
        self.begun, self.stopped, self.waiting = [], [], {}
        self.gate = asyncio.Event()

    async def __call__(self, call, waiting):
        self.begun.append(call)
        self.waiting[call] = waiting
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped.append(call)
            raise
        if call == "fail":
            raise ModelUnavailableError("429", 7.0)
        return ModelReply(call, (), "m")


@pytest.fixture
async def provider():
    return Provider()


@pytest.fixture
async def far(provider):
    return Far(provider)


async def settle():
    for _ in range(30):
        await asyncio.sleep(0)


async def asked(link, *calls):
    tasks = [asyncio.create_task(link.ask(call)) for call in calls]
    await settle()
    return tasks


async def test_calls_that_are_ready_together_leave_together_and_each_gets_its_own_answer(far, provider):
    link = ReplyLink(far)
    tasks = await asked(link, "a", "b", "c")
    provider.gate.set()

    replies = await asyncio.gather(*tasks)

    assert [reply.text for reply in replies] == ["a", "b", "c"]
    assert far.posts == [(["a", "b", "c"], [])]


async def test_a_call_that_is_alone_costs_one_message(far, provider):
    provider.gate.set()
    link = ReplyLink(far)

    for call in ("a", "b", "c"):
        assert (await link.ask(call)).text == call
        await settle()

    assert (far.posts, far.receives) == ([(["a"], []), (["b"], []), (["c"], [])], 3)


async def test_a_call_that_comes_while_another_is_under_way_leaves_at_once(far, provider):
    link = ReplyLink(far)
    await asked(link, "long")

    tasks = await asked(link, "b")
    assert provider.begun == ["long", "b"]
    provider.gate.set()

    assert (await tasks[0]).text == "b"


async def test_an_answer_of_a_replaced_far_end_that_comes_late_costs_no_call_of_its_successor(far, provider):
    link = ReplyLink(far)
    early = await asked(link, "answered", "lost")
    former = far.box

    far.begin_anew()
    [kept] = await asked(link, "kept")
    former._answers.append(CallReply(0, pack(ModelReply("late", (), "m"))))
    former._call_listener()
    await settle()

    assert (await early[0]).text == "late"
    with pytest.raises(LinkLostError):
        await early[1]
    provider.gate.set()
    assert (await kept).text == "kept"


async def test_an_answer_can_be_an_error_with_all_that_it_says(far, provider):
    provider.gate.set()

    with pytest.raises(ModelUnavailableError) as caught:
        await ReplyLink(far).ask("fail")

    assert caught.value.retry_after == 7.0


async def test_who_asks_is_told_that_the_call_waits_for_a_slot_and_that_it_has_one(far, provider):
    told = []
    asking = asyncio.create_task(ReplyLink(far).ask("a", told.append))
    await settle()

    provider.waiting["a"](True)
    await settle()
    waits = list(told)
    provider.waiting["a"](False)
    await settle()

    assert (waits, told) == ([True], [True, False])
    assert not asking.done()
    provider.gate.set()
    await asking
    assert told == [True, False]


async def test_who_asks_is_told_of_each_failed_attempt_in_order_and_nobody_else_is(far, provider):
    told, others = [], []
    link = ReplyLink(far)
    asking = asyncio.create_task(link.ask("a", told.append))
    other = asyncio.create_task(link.ask("b", others.append))
    await settle()
    attempts = [NextAttempt(FailedAttempt("m", "down", retryable=True), number, "m", 0.5) for number in (1, 2)]

    for attempt in attempts:
        provider.waiting["a"](attempt)
    await settle()

    assert (told, others) == (attempts, [])
    assert not asking.done()
    provider.waiting["a"](attempts[0])
    provider.gate.set()
    await asyncio.gather(asking, other)
    assert told == [*attempts, attempts[0]], "what was told at last comes before the answer"


async def test_the_attempts_of_a_call_that_was_given_up_are_told_to_nobody_and_disturb_no_other_call(far, provider):
    told = []
    link = ReplyLink(far)
    asking, other = asyncio.create_task(link.ask("a", told.append)), asyncio.create_task(link.ask("b"))
    await settle()
    listener = provider.waiting["a"]
    asking.cancel()

    listener(NextAttempt(FailedAttempt("m", "down", retryable=True), 1, "m"))
    await settle()
    provider.gate.set()

    assert (await other).text
    assert told == []


@pytest.mark.parametrize("end", ["answer", "cancel", "death"])
async def test_a_wait_that_was_told_of_is_over_when_the_call_is_whatever_became_of_it(far, provider, end):
    told = []
    asking = asyncio.create_task(ReplyLink(far).ask("a", told.append))
    await settle()
    provider.waiting["a"](True)
    await settle()

    match end:
        case "answer":
            provider.gate.set()
        case "cancel":
            asking.cancel()
        case _:
            far.die()
    await asyncio.gather(asking, return_exceptions=True)

    assert told == [True, False]


async def test_cancelling_a_call_stops_it_and_no_other(far, provider):
    link = ReplyLink(far)
    hasty, patient = await asked(link, "hasty", "patient")

    hasty.cancel()
    await settle()
    provider.gate.set()

    assert provider.stopped == ["hasty"]
    assert (await patient).text == "patient"


async def test_a_call_that_is_cancelled_before_it_left_never_leaves(far, provider):
    far.open.clear()
    link = ReplyLink(far)
    await asked(link, "first")
    await asked(link, "second")
    [hasty] = await asked(link, "hasty")

    hasty.cancel()
    await settle()
    far.open.set()
    await settle()

    assert far.posts == [(["first"], []), (["second"], [])]


async def test_a_call_that_is_cancelled_while_it_leaves_is_stopped_after_its_arrival(far, provider):
    far.open.clear()
    [hasty] = await asked(ReplyLink(far), "hasty")

    hasty.cancel()
    await settle()
    assert provider.begun == []
    far.open.set()
    await settle()

    assert far.posts == [(["hasty"], []), ([], [0])]
    assert provider.begun == provider.stopped


async def test_when_the_far_end_dies_every_call_without_an_answer_is_lost(far):
    link = ReplyLink(far)
    tasks = await asked(link, "a", "b")

    far.die()
    lost = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(each) for each in lost] == [LinkLostError, LinkLostError]
    with pytest.raises(LinkLostError):
        await link.ask("too early")


async def test_after_a_death_calls_go_to_the_successor(far, provider):
    link = ReplyLink(far)
    tasks = await asked(link, "a")
    far.die()
    await asyncio.gather(*tasks, return_exceptions=True)

    far.begin_anew()
    provider.gate.set()

    assert (await link.ask("a")).text == "a"


async def test_a_far_end_that_was_replaced_unnoticed_has_lost_its_calls(far, provider):
    link = ReplyLink(far)
    [lost] = await asked(link, "before")
    provider.waiting["before"](True)  # the link hears of its box
    await settle()

    far.begin_anew()
    [kept] = await asked(link, "after")

    with pytest.raises(LinkLostError):
        await lost
    provider.gate.set()
    assert (await kept).text == "after"


async def test_a_lost_call_is_withdrawn_when_its_far_end_turns_out_to_live(far, provider):
    link = ReplyLink(far)
    [lost] = await asked(link, "a")
    far.death.set()
    await asyncio.gather(lost, return_exceptions=True)
    far.death.clear()

    [again] = await asked(link, "a")
    provider.gate.set()

    assert (await again).text == "a"
    assert provider.stopped == ["a"]
    assert provider.begun == ["a", "a"]


async def test_what_cannot_be_sent_fails_its_callers(far):
    far.refused = {"a"}

    with pytest.raises(TypeError, match="cannot pickle"):
        await ReplyLink(far).ask("a")


async def test_withdrawals_that_left_with_calls_that_cannot_be_sent_arrive_without_them(far, provider):
    link = ReplyLink(far)
    [hasty] = await asked(link, "hasty")
    far.refused = {"bad"}
    far.open.clear()
    [first] = await asked(link, "first")
    hasty.cancel()
    [bad] = await asked(link, "bad")
    far.open.set()
    await settle()

    assert far.posts == [(["hasty"], []), (["first"], []), (["bad"], [0]), ([], [0])]
    assert provider.stopped == ["hasty"]
    with pytest.raises(TypeError):
        await bad
    assert not first.done()


async def test_withdrawals_that_cannot_be_sent_at_all_wait_for_the_next_message(far, provider):
    link = ReplyLink(far)
    [hasty] = await asked(link, "hasty")
    far.refused = {0}

    hasty.cancel()
    await settle()
    assert far.posts[1:] == [([], [0])]

    far.refused = set()
    await asked(link, "next")
    assert far.posts[2:] == [(["next"], [0])]
    assert provider.stopped == ["hasty"]


async def test_a_thousand_calls_at_once_are_all_answered_in_few_messages(far, provider):
    provider.gate.set()
    link = ReplyLink(far)

    replies = await asyncio.gather(*(link.ask(str(number)) for number in range(1_000)))

    assert [reply.text for reply in replies] == [str(number) for number in range(1_000)]
    assert len(far.posts) == 2


async def test_a_call_that_cannot_be_packed_fails_alone_among_those_that_leave_with_it(far, provider):
    provider.gate.set()
    link = ReplyLink(far)

    tasks = await asked(link, "a", lambda: "b", "c")

    assert [tasks[0].result().text, tasks[2].result().text] == ["a", "c"]
    assert isinstance(tasks[1].exception(), ModelRefusedError)
    assert far.posts == [(["a", "c"], [])]


async def test_a_message_is_closed_by_its_bytes_too(far, provider):
    provider.gate.set()
    link = ReplyLink(far)
    long = "x" * (MESSAGE.size // 3)

    await asyncio.gather(*(link.ask(long) for _ in range(5)))

    assert [len(calls) for calls, _ in far.posts] == [2, 2, 1]


@pytest.mark.parametrize("most", [Bound(2, 1_000_000), Bound(100, 90)], ids=["number", "bytes"])
async def test_what_is_more_than_may_wait_to_leave_waits_for_room(far, provider, most):
    provider.gate.set()
    link = ReplyLink(far, most)

    await asyncio.gather(*(link.ask("x" * 30) for _ in range(5)))

    assert [len(calls) for calls, _ in far.posts] == [2, 2, 1]


async def test_calls_whose_answers_do_not_come_hold_no_others_back(far, provider):
    link = ReplyLink(far, Bound(1, 1_000_000))

    tasks = await asked(link, "a", "b", "c")

    assert provider.begun == ["a", "b", "c"]
    provider.gate.set()
    await asyncio.gather(*tasks)
