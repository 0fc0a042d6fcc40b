"""Names of receivers whose servers are silent: whom they hold up."""

import asyncio
import threading

import pytest

from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.ids import TenantId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.webhooks.callback_http import HttpCallbackSender
from owlclaw_ray.webhooks.outbox import CallbackAnswered, CallbackUnanswered
from tests.webhooks.receiver import receiving

GREEDY, MODEST = TenantId("greedy"), TenantId("modest")
LOOPBACK = CallbackRules(("127.0.0.0/8",))


class Post:
    """Sends callbacks to names of which some are not resolved before they are let go."""

    def __init__(self, port):
        self.clock, self.port = ManualClock(), port
        self.sender = HttpCallbackSender(5.0, self.clock, look_up=self._look_up)
        self.looking, self.let_go = [], threading.Event()
        self.tasks = []

    def _look_up(self, name, port):
        if name.startswith("hangs"):
            self.looking.append(name)
            self.let_go.wait()
        return ["127.0.0.1"]

    def begin(self, tenant, name):
        url = f"http://{name}.example:{self.port}/ended"
        self.tasks.append(asyncio.create_task(self.sender.send(tenant, url, {}, b"{}", LOOPBACK)))
        return self.tasks[-1]


@pytest.fixture
async def post():
    async with receiving() as receiver:
        made = Post(receiver.port)
        yield made
        made.let_go.set()
        await asyncio.gather(*made.tasks)
        await made.sender.close()


async def test_names_of_one_tenant_that_hang_hold_up_no_callback_of_another(post):
    for number in range(60):
        post.begin(GREEDY, f"hangs-{number}")
    await post.clock.settle()

    assert await post.begin(MODEST, "answers") == CallbackAnswered(200)


async def test_names_that_hang_longer_than_their_attempts_hold_up_nobody_else_either(post):
    for _ in range(3):
        attempts = [post.begin(GREEDY, f"hangs-{number}") for number in range(60)]
        await post.clock.settle()
        await post.clock.advance(10.0)
        told = {(await each).why for each in attempts}
        assert told == {f"the name hangs-{number}.example was not resolved within 10 s" for number in range(60)}

    assert await post.begin(MODEST, "answers") == CallbackAnswered(200)
    assert not post.let_go.is_set()


async def test_one_name_that_hangs_holds_up_no_other_of_its_tenant(post):
    for _ in range(60):
        post.begin(GREEDY, "hangs")
    await post.clock.settle()

    assert await post.begin(GREEDY, "answers") == CallbackAnswered(200)
    assert post.looking == ["hangs.example"] * 2


async def test_a_receiver_has_all_its_time_however_long_its_name_took(post):
    attempt = post.begin(MODEST, "hangs")
    await post.clock.settle()
    await post.clock.advance(9.0)
    post.let_go.set()

    assert await attempt == CallbackAnswered(200)


async def test_a_name_that_leads_nowhere_is_no_answer(post):
    def nowhere(*_):
        raise OSError("Name or service not known")

    sender = HttpCallbackSender(5.0, post.clock, look_up=nowhere)

    answer = await sender.send(MODEST, "https://nowhere.example/", {}, b"{}", LOOPBACK)
    await sender.close()

    assert answer == CallbackUnanswered("OSError: Name or service not known")
