"""Large bodies behind Serve, which reads ahead: the replica's HTTP server passes on what the API asks for."""

from __future__ import annotations

import asyncio

import pytest
from ray._common.utils import import_attr
from ray.serve._private.direct_ingress_http_util import ASGIDIReceiveProxy

from actors.environment import HA_PROXY, node_environment
from owlclaw_ray.domain.json import LARGE
from serve import read_on_demand
from serve.front import Front
from serve.loopback import free_ports
from serve.read_on_demand import Demand, ReadOnDemand
from tests.serve.conftest import posted

SIZED, CHUNKED = (b"content-length", str(LARGE + 1).encode()), (b"transfer-encoding", b"chunked")
SMALL = (b"content-length", str(LARGE).encode())


class Connection:
    """A request whose messages the replica's HTTP server has at hand, and how many of them were received."""

    def __init__(self, *headers, messages=3):
        self.scope = {"type": "http", "method": "POST", "path": "/", "headers": [*headers]}
        self.messages = [
            {"type": "http.request", "body": b"x", "more_body": at < messages - 1} for at in range(messages)
        ]
        self.received, self.gone = 0, asyncio.Event()

    async def receive(self):
        if self.received == len(self.messages):
            await self.gone.wait()
            return {"type": "http.disconnect"}
        self.received += 1
        return self.messages[self.received - 1]

    async def send(self, message):
        pass


class Serve:
    """Reads ahead as Serve does, and ends the request when its client goes."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        proxy = ASGIDIReceiveProxy(scope, receive, asyncio.get_running_loop())
        reading, answering = proxy.fetch_until_disconnect_task(), asyncio.ensure_future(self._app(scope, proxy, send))
        await asyncio.wait([reading, answering], return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        answering.cancel()
        await asyncio.gather(reading, answering, return_exceptions=True)


class App:
    """Receives as many messages as it is told to."""

    def __init__(self):
        self.wanted, self.got, self.cancelled = asyncio.Semaphore(0), [], False

    async def __call__(self, scope, receive, send):
        try:
            while True:
                await self.wanted.acquire()
                self.got.append(await receive())
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def settled():
    """Return when what is ready has run."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
async def app():
    return App()


@pytest.fixture
async def begin(app):
    """Begin a request to the app behind Serve, which ends with the test."""
    tasks = []

    async def begin(connection):
        behind = ReadOnDemand(Serve(Demand(app)))
        tasks.append(asyncio.ensure_future(behind(connection.scope, connection.receive, connection.send)))
        await settled()
        return tasks[-1]

    yield begin
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("header", [SIZED, CHUNKED], ids=["large", "of unknown size"])
async def test_no_message_of_a_body_is_read_before_it_is_asked_for(app, begin, header):
    connection = Connection(header)
    await begin(connection)
    assert connection.received == 0

    for received in (1, 2, 3):
        app.wanted.release()
        await settled()
        assert (connection.received, len(app.got)) == (received, received)


@pytest.mark.parametrize("header", [SIZED, CHUNKED], ids=["large", "of unknown size"])
async def test_when_the_client_goes_after_its_body_the_request_ends(app, begin, header):
    connection = Connection(header, messages=1)
    request = await begin(connection)
    app.wanted.release()
    await settled()

    connection.gone.set()
    await request

    assert app.cancelled


async def test_a_small_body_is_there_before_it_is_asked_for(begin):
    connection = Connection(SMALL)
    await begin(connection)

    assert connection.received == 3


async def test_who_asks_again_after_giving_up_gets_what_is_next_and_has_no_more_read_than_the_message_behind_it():
    connection, there = Connection(CHUNKED, messages=10), asyncio.Event()

    async def receive():
        await there.wait()
        return await connection.receive()

    got = []

    async def impatient(scope, receive, send):
        for _ in range(5):
            waiting = asyncio.ensure_future(receive())
            await settled()
            waiting.cancel()
        there.set()
        got.append(await receive())
        await settled()

    await ReadOnDemand(Serve(Demand(impatient)))(connection.scope, receive, connection.send)

    assert got == connection.messages[:1]
    assert connection.received <= 2


async def test_where_nothing_is_held_back_nothing_is_asked_for(app):
    connection = Connection(SIZED)
    request = asyncio.ensure_future(Serve(Demand(app))(connection.scope, connection.receive, connection.send))
    app.wanted.release()
    await settled()

    assert app.got == connection.messages[:1]
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def test_the_api_asks_for_bodies(api):
    connection, sent = Connection(CHUNKED, messages=1), []
    connection.scope = posted("/v1/agents/assistant/triggers", CHUNKED, (b"host", b"127.0.0.1:8700"))
    connection.messages[0]["body"] = b'{"payload": 1}'

    async def send(message):
        sent.append(message)

    async with asyncio.timeout(30):
        await ReadOnDemand(Serve(api))(connection.scope, connection.receive, send)

    assert sent[0]["status"] == 202


@pytest.mark.parametrize("here", ["alone", "behind Serve's HAProxy"])
def test_ray_puts_it_into_replicas_and_into_nothing_else(here, monkeypatch, tmp_path):
    alone = Front("127.0.0.1", free_ports(1)[0], tmp_path).environment
    variables = alone if here == "alone" else node_environment(2, json_logs=False) | HA_PROXY
    middleware = import_attr(variables["RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"])
    assert ReadOnDemand not in [each.cls for each in middleware()]

    monkeypatch.setattr(read_on_demand.ray_serve, "get_replica_context", lambda: "a replica")
    assert ReadOnDemand in [each.cls for each in middleware()]
