"""What request bodies may take together, and who is served beside large ones."""

from __future__ import annotations

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.errors import OwlClawError
from serve import body_limit
from serve.access_gate import ANYBODY
from serve.body_limit import BodyLimit, body_handled
from serve.parameters import PRINCIPAL
from serve.problems import problem_of

LIMIT = 1_000_000
LONG = 3_600.0


class Handler:
    """Reads bodies, and keeps the requests until it is told to answer."""

    def __init__(self):
        self.read = []
        self.gate = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        self.read.append(len(await request.body()))
        if "handled" in request.query_params:
            body_handled(request.scope)
        await self.gate.wait()
        return PlainTextResponse("done")


class Sent:
    """A request as a server gives it to the application."""

    def __init__(self, app, *parts, length=None, query=b"", endless=False, principal=LOCAL):
        self.messages, self.asked = [], 0
        self.parts, self.endless = list(parts), endless
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": query, "headers": headers}
        scope[PRINCIPAL] = principal
        self.task = asyncio.ensure_future(app(scope, self.receive, self.send))

    async def receive(self):
        self.asked += 1
        if not self.parts:
            await asyncio.Event().wait()
        more = len(self.parts) > 1 or self.endless
        return {"type": "http.request", "body": self.parts.pop(0), "more_body": more}

    async def send(self, message):
        self.messages.append(message)

    @property
    def status(self):
        return self.messages[0]["status"] if self.messages else None

    @property
    def headers(self):
        return dict(self.messages[0]["headers"])


async def told(_request, error):
    return problem_of(error).response("/")


@pytest.fixture
async def handler():
    return Handler()


@pytest.fixture
def app(handler, monkeypatch):
    monkeypatch.setattr(body_limit, "_REST_SECONDS", 0.0)
    inner = Starlette(routes=[Route("/", handler.answer, methods=["POST"])], exception_handlers={OwlClawError: told})
    return BodyLimit(inner, LIMIT, LONG, at_once=2_500_000)


def large(app, size=LIMIT, **options):
    return Sent(app, b"x" * size, length=size, **options)


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.001)


async def test_where_large_bodies_take_all_that_they_may_a_further_one_is_refused_unread_and_small_ones_are_served(
    app, handler
):
    served = [large(app), large(app)]
    await until(lambda: len(handler.read) == 2)
    refused, small = large(app), Sent(app, b"{}", length=2)
    await until(lambda: len(handler.read) == 3 and refused.messages)

    assert (refused.status, refused.headers[b"retry-after"], refused.asked) == (503, b"1", 0)
    handler.gate.set()
    await asyncio.gather(*(each.task for each in [*served, small]))
    assert [each.status for each in [*served, small]] == [200, 200, 200]
    again = large(app)
    await again.task
    assert again.status == 200


async def test_bodies_that_anybody_may_send_take_no_room_from_those_with_a_key(app, handler):
    public = [large(app, principal=ANYBODY)]
    await until(lambda: len(handler.read) == 1)
    refused = large(app, principal=ANYBODY)
    await refused.task
    known = [large(app), large(app)]
    await until(lambda: len(handler.read) == 3)

    assert (refused.status, refused.asked) == (503, 0)
    handler.gate.set()
    await asyncio.gather(*(each.task for each in [*public, *known]))
    assert [each.status for each in [*public, *known]] == [200, 200, 200]


async def test_a_body_without_a_length_counts_as_it_arrives(app, handler):
    served = [large(app), large(app)]
    await until(lambda: len(handler.read) == 2)

    refused = Sent(app, *[b"x" * 100_000] * 9)
    await refused.task

    assert refused.status == 503
    assert refused.asked == 6
    small = Sent(app, b"x" * LARGE)
    await until(lambda: len(handler.read) == 3)
    handler.gate.set()
    await asyncio.gather(*(each.task for each in [*served, small]))


async def test_what_of_a_body_is_handled_makes_room_before_the_response_comes(app, handler):
    waiting = []
    for number in range(4):
        waiting.append(large(app, query=b"handled"))
        await until(lambda so_far=number: len(handler.read) == so_far + 1)

    handler.gate.set()
    await asyncio.gather(*(each.task for each in waiting))
    assert app._bodies._taken == 0


async def test_between_two_large_bodies_small_ones_are_handed_on(app, handler, monkeypatch):
    handler.gate.set()
    monkeypatch.setattr(body_limit, "_REST_SECONDS", LONG)
    first, second = large(app), large(app)
    await until(lambda: first.messages)
    small = Sent(app, b"{}", length=2)
    await small.task

    assert handler.read == [LIMIT, 2]
    second.task.cancel()
    await asyncio.gather(second.task, return_exceptions=True)
    assert app._bodies._taken == 0


async def test_a_large_body_that_does_not_arrive_gives_its_place_to_others(app, handler):
    app._seconds = 0.02
    slow = Sent(app, b"x" * 100_000, length=LIMIT, endless=True)
    await slow.task

    assert slow.status == 408
    assert app._bodies._taken == 0


async def test_a_limit_for_all_that_is_below_that_of_one_still_lets_one_through(handler):
    handler.gate.set()
    app = BodyLimit(Starlette(routes=[Route("/", handler.answer, methods=["POST"])]), LIMIT, LONG, at_once=1)

    one = large(app)
    await one.task

    assert one.status == 200
