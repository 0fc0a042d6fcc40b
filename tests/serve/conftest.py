from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import cast

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from owlclaw_ray.ids import ScheduleId, TenantId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.schedules.api import Alarm
from serve.api import build_api
from tests.serve.double import MemoryRuntime

BODY_LIMIT = 10_000


@pytest.fixture
def runtime() -> Runtime:
    return MemoryRuntime(SystemClock())


class Current:
    """Has the attributes of what a function returns now."""

    def __init__(self, get: Callable[[], object]) -> None:
        self._get = get

    def __getattr__(self, name: str) -> object:
        return getattr(self._get(), name)


class Stage(Current):
    """A runtime that is another one in each test: an API takes longer to make than a test to use it."""

    def __init__(self) -> None:
        super().__init__(lambda: self.played)
        self.played: Runtime
        self.timetable = Current(lambda: self.played.timetable)
        self.authenticator = Current(lambda: self.played.authenticator)

    async def ring(self, tenant: TenantId, schedule_id: ScheduleId) -> Alarm:
        return await self.played.ring(tenant, schedule_id)


@cache
def staged() -> tuple[Stage, FastAPI]:
    """The one API of this process, and the stage that it plays on."""
    stage = Stage()
    runtime = cast("Runtime", stage)
    return stage, build_api(runtime, clock=SystemClock(), body_limit_bytes=BODY_LIMIT, keep_alive_seconds=0.02)


def posted(path: str, *headers: tuple[bytes, bytes]) -> dict[str, object]:
    """What ASGI says of a POST before its body."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [*headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }


@pytest.fixture
def api(runtime: Runtime) -> FastAPI:
    stage, api = staged()
    stage.played = runtime
    return api


@pytest.fixture
async def http(api: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost:8700") as client:
        yield client


@pytest.fixture
def server(api: FastAPI) -> Iterator[str]:
    """The URL of the API behind a real HTTP server on a free port of the loopback."""
    with serving(api) as url:
        yield url


@contextmanager
def serving(api: FastAPI, port: int = 0) -> Iterator[str]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        config = uvicorn.Config(api, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, args=([listener],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join()
