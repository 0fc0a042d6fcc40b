"""Long work for a request ends when its client goes."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import ClientDisconnect, Request

from owlclaw_ray.kernel.system_clock import SystemClock
from serve.api import build_api
from serve.disconnects import while_connected
from tests.serve.double import MemoryRuntime


class Blocking(MemoryRuntime):
    """A runtime whose ledger takes as long to read as somebody waits."""

    def __init__(self):
        super().__init__(SystemClock())
        self.began, self.ended = asyncio.Event(), asyncio.Event()

    async def verify_ledger(self, tenant, since=()):
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def ledger(self, where):
        return await self.verify_ledger(where.tenant)


@pytest.mark.parametrize("path", ["/v1/ledger/verification", "/v1/ledger", "/v1/agents/assistant/ledger"])
async def test_a_ledger_is_read_no_longer_than_the_client_waits(path):
    runtime, messages = Blocking(), asyncio.Queue()
    api = build_api(runtime, clock=SystemClock(), body_limit_bytes=10_000)
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:8700")],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8700),
        "scheme": "http",
        "http_version": "1.1",
    }
    sent = []

    async def send(message):
        sent.append(message)

    messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    request = asyncio.create_task(api(scope, messages.get, send))
    async with asyncio.timeout(30):
        await runtime.began.wait()
        messages.put_nowait({"type": "http.disconnect"})
        await runtime.ended.wait()
        await request

    assert sent[0]["status"] == 499


async def test_what_is_done_in_time_is_answered_and_an_error_is_raised():
    async def connected():
        return await asyncio.Event().wait()

    async def answer():
        return 17

    async def fail():
        raise KeyError("no")

    request = Request({"type": "http"}, connected)

    assert await while_connected(request, answer()) == 17
    with pytest.raises(KeyError):
        await while_connected(request, fail())


async def test_who_stops_waiting_ends_the_work():
    ended = asyncio.Event()

    async def gone():
        return {"type": "http.disconnect"}

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(ClientDisconnect):
        await while_connected(Request({"type": "http"}, gone), work())
    assert ended.is_set()
