import asyncio

import pytest

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.model import ModelReply, ModelRequest
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.engine.reply_box import ReplyBox
from owlclaw_ray.errors import ModelRefusedError


class Models:
    def __init__(self, complete):
        self.complete = complete


def request(request_id):
    return ModelRequest(request_id, ModelChoice(("m",)), "", (), b"[]", 60, "a", "r", Trigger(TriggerKind.API))


async def test_answers_leave_together_as_soon_as_any_is_ready():
    async def complete(each):
        return ModelReply(each.request_id, (), "m")

    box = ReplyBox(Models(complete))
    box.submit([request("one"), request("two")])

    answers = await box.receive(5)

    assert sorted(answer.outcome.text for answer in answers) == ["one", "two"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), RuntimeError("odd")], ids=str)
async def test_a_call_that_fails_in_any_way_is_answered(error):
    async def complete(each):
        raise error

    box = ReplyBox(Models(complete))
    box.submit([request("one")])

    [answer] = await box.receive(5)

    assert isinstance(answer.outcome, ModelRefusedError)


async def test_a_cancelled_call_gets_no_answer():
    async def complete(each):
        await asyncio.Event().wait()

    box = ReplyBox(Models(complete))
    box.submit([request("one")])
    await asyncio.sleep(0)
    box.cancel(["one"])

    assert await box.receive(0.01) == ()
