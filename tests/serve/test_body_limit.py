"""What request bodies may take together, and who is served beside large ones."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from owlclaw_ray.domain.json import LARGE
from owlclaw_ray.domain.principal import LOCAL, Principal, PrincipalKind
from owlclaw_ray.errors import OwlClawError
from owlclaw_ray.ids import TenantId
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


class Scope(dict):
    """A scope of which a test can tell whether it is still there."""


class Sent:
    """A request as a server gives it to the application."""

    def __init__(self, app, *parts, length=None, query=b"", endless=False, principal=LOCAL, client=("127.0.0.1", 1)):
        self.messages, self.asked = [], 0
        self.parts, self.endless = list(parts), endless
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": query, "headers": headers}
        scope[PRINCIPAL], scope["client"] = principal, client
        self.task = asyncio.ensure_future(app(scope, self.receive, self.send))

    async def receive(self):
        self.asked += 1
        await asyncio.sleep(0)
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
    """It has four places for large bodies, and one for those of nobody."""
    monkeypatch.setattr(body_limit, "_REST", 0.0)
    inner = Starlette(routes=[Route("/", handler.answer, methods=["POST"])], exception_handlers={OwlClawError: told})
    return BodyLimit(inner, LIMIT, LONG, at_once=4_500_000)


def key(name, tenant="default"):
    return Principal(TenantId(tenant), PrincipalKind.KEY, name)


def large(app, size=LIMIT, **options):
    return Sent(app, b"x" * size, length=size, **options)


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.001)


async def filled(app, handler):
    """Two requests of each of two keys, which take all places."""
    before = len(handler.read)
    served = [large(app, principal=key(name)) for name in "aabb"]
    await until(lambda: len(handler.read) == before + 4)
    return served


async def answered(handler, *requests):
    handler.gate.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*(each.task for each in requests))
    return [each.status for each in requests]


async def test_where_large_bodies_have_all_places_a_further_one_waits_unread_and_small_ones_are_served(app, handler):
    served = await filled(app, handler)
    waiting, small = large(app), Sent(app, b"{}", length=2)
    await until(lambda: len(handler.read) == 5 and app._places.waiting)

    assert (waiting.asked, handler.read[-1]) == (0, 2)
    assert await answered(handler, *served, waiting, small) == [200] * 6


async def test_who_has_waited_long_enough_is_told_to_come_again(app, handler, monkeypatch):
    monkeypatch.setattr(body_limit, "_WAIT_SECONDS", 0.02)
    served = await filled(app, handler)

    refused = large(app)
    await refused.task

    assert (refused.status, refused.headers[b"retry-after"], refused.asked) == (503, b"1", 0)
    assert await answered(handler, *served) == [200] * 4
    assert app._places.held == app._places.waiting == 0


async def test_the_time_that_a_sender_has_does_not_run_while_he_waits_for_a_place(app, handler, monkeypatch):
    monkeypatch.setattr(body_limit, "_WAIT_SECONDS", 10 * LONG)
    served = await filled(app, handler)
    waiting = large(app)
    await until(lambda: app._places.waiting)
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 2 * LONG)

    handler.gate.set()
    await asyncio.gather(*(each.task for each in [*served, waiting]))

    assert waiting.status == 200


async def test_a_key_has_half_of_the_places_and_others_find_the_rest_free(app, handler):
    served = [large(app, principal=key("greedy")) for _ in range(20)]
    await until(lambda: len(handler.read) == 2 and app._places.waiting == 18)

    other = large(app, principal=key("other"))
    await until(lambda: len(handler.read) == 3)

    assert await answered(handler, *served, other) == [200] * 21


async def test_a_tenant_with_many_keys_leaves_a_quarter_of_the_places_to_others(app, handler):
    served = [large(app, principal=key(f"key{number}", "acme")) for number in range(20)]
    await until(lambda: len(handler.read) == 3 and app._places.waiting == 17)

    other = large(app, principal=key("theirs", "globex"))
    await until(lambda: len(handler.read) == 4)

    assert await answered(handler, *served, other) == [200] * 21


async def test_a_tenant_is_next_however_many_of_another_came_before_it(app, handler):
    served = [large(app, principal=key(f"key{number}", "acme")) for number in range(20)]
    others = [large(app, size=LIMIT - 1, principal=key("theirs", "globex")) for _ in range(2)]
    await until(lambda: len(handler.read) == 4 and app._places.waiting == 18)

    assert await answered(handler, *served, *others) == [200] * 22
    assert handler.read.index(LIMIT - 1) == 3
    assert (LIMIT - 1) in handler.read[4:6]


async def test_bodies_that_anybody_may_send_take_no_room_from_those_with_a_key(app, handler):
    public = [large(app, principal=ANYBODY) for _ in range(20)]
    await until(lambda: len(handler.read) == 1 and app._public.waiting == 19)

    known = await filled(app, handler)

    assert await answered(handler, *public, *known) == [200] * 24


async def test_of_those_whom_nobody_knows_one_address_leaves_room_to_others(handler, monkeypatch):
    monkeypatch.setattr(body_limit, "_REST", 0.0)
    app = BodyLimit(Starlette(routes=[Route("/", handler.answer, methods=["POST"])]), LIMIT, LONG, at_once=8 * LIMIT)
    served = [large(app, principal=ANYBODY, client=("192.0.2.1", number)) for number in range(20)]
    await until(lambda: len(handler.read) == 1 and app._public.waiting == 19)

    other = large(app, principal=ANYBODY, client=("192.0.2.2", 1))
    await until(lambda: len(handler.read) == 2)

    assert await answered(handler, *served, other) == [200] * 21


async def test_a_body_without_a_length_needs_a_place_as_soon_as_it_is_large(app, handler):
    served = await filled(app, handler)

    waiting = Sent(app, *[b"x" * 30_000] * 9)
    small = Sent(app, b"x" * LARGE)
    await until(lambda: len(handler.read) == 5 and app._places.waiting)

    assert (waiting.asked, handler.read[-1]) == (3, LARGE)
    assert await answered(handler, *served, waiting, small) == [200] * 6
    assert handler.read[-1] == 270_000


async def test_what_of_a_body_is_handled_makes_room_before_the_response_comes(app, handler):
    waiting = []
    for number in range(4):
        waiting.append(large(app, query=b"handled"))
        await until(lambda so_far=number: len(handler.read) == so_far + 1)

    handler.gate.set()
    await asyncio.gather(*(each.task for each in waiting))
    assert app._places.held == 0


BUSY = 5.0


class Slow(Handler):
    """Reads bodies, and keeps the event loop busy with each for so many seconds."""

    def __init__(self, monkeypatch, seconds):
        super().__init__()
        self.gate.set()
        self.seconds, self.passed = seconds, 0.0
        loop = asyncio.get_running_loop()
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + self.passed)

    async def answer(self, request: Request) -> Response:
        answer = await super().answer(request)
        self.passed += self.seconds
        return answer


async def test_after_a_large_body_small_ones_are_handed_on_for_longer_than_it_kept_the_loop_busy(monkeypatch):
    handler = Slow(monkeypatch, BUSY)
    app = BodyLimit(Starlette(routes=[Route("/", handler.answer, methods=["POST"])]), LIMIT, LONG, at_once=4 * LIMIT)
    first, second = large(app), large(app)
    await until(lambda: first.messages)
    handler.seconds = 0
    small = Sent(app, b"{}", length=2)
    await small.task
    handler.passed += 2 * BUSY
    other = Sent(app, b"{}", length=2)
    await other.task
    assert handler.read == [LIMIT, 2, 2]

    handler.passed += BUSY
    await second.task
    assert handler.read == [LIMIT, 2, 2, LIMIT]
    assert app._places.held == 0


async def test_who_goes_while_another_body_has_its_turn_keeps_no_turn(monkeypatch):
    handler = Slow(monkeypatch, BUSY)
    app = BodyLimit(Starlette(routes=[Route("/", handler.answer, methods=["POST"])]), LIMIT, LONG, at_once=4 * LIMIT)
    first, gone = large(app), large(app)
    await until(lambda: first.messages)
    gone.task.cancel()
    await asyncio.gather(gone.task, return_exceptions=True)

    handler.passed += 3 * BUSY
    last = large(app)
    await last.task
    assert (last.status, handler.read) == (200, [LIMIT, LIMIT])
    assert app._places.held == 0


async def test_a_large_body_that_does_not_arrive_gives_its_place_to_others(app, handler):
    app._seconds = 0.02
    slow = Sent(app, b"x" * 100_000, length=LIMIT, endless=True)
    await slow.task

    assert slow.status == 408
    assert app._places.held == 0


async def test_a_limit_for_all_that_is_below_that_of_one_still_lets_one_through(handler):
    handler.gate.set()
    app = BodyLimit(Starlette(routes=[Route("/", handler.answer, methods=["POST"])]), LIMIT, LONG, at_once=1)

    one = large(app)
    await one.task

    assert one.status == 200


async def test_a_request_leaves_nothing_to_be_collected():
    async def app(scope, receive, send):
        assert (await receive())["body"] == b"x"

    async def receive():
        return {"type": "http.request", "body": b"x", "more_body": False}

    scope = Scope(type="http", method="POST", path="/", query_string=b"", headers=[], client=("127.0.0.1", 1))
    left = weakref.ref(scope)
    gc.disable()
    try:
        await BodyLimit(app, LIMIT, LONG)(scope, receive, None)
        del scope
        assert left() is None
    finally:
        gc.enable()
