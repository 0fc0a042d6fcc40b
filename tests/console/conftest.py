from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import pytest
from fastapi import FastAPI

from console.surface import build
from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runtime.api import Runtime
from serve.api import build_api
from tests.contract.conftest import Served
from tests.serve.conftest import BODY_LIMIT, Stage, serving
from tests.serve.double import MemoryRuntime

if TYPE_CHECKING:
    import playwright.sync_api

SERVER = "http://localhost:8700"


def pytest_addoption(parser: pytest.Parser) -> None:
    """With `--pictures FOLDER` tests/console/test_stranger.py keeps what it sees."""
    parser.addoption("--pictures", type=Path, default=None, metavar="FOLDER", help="write pictures of pages there")


class StageClock(SystemClock):
    """Waits in real time, and says what the clock of the runtime that is played says. Between two looks at it lies a minute, so that
    nothing of a page is as recent as a part that is kept.
    """

    step = 60.0

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._passed = 0.0

    def now(self) -> datetime:
        return self._stage.played._clock.now()

    def monotonic(self) -> float:
        self._passed += self.step
        return super().monotonic() + self._passed


@cache
def staged() -> tuple[Stage, FastAPI]:
    """The API with the console, and the stage that it plays on."""
    stage = Stage()
    api = build_api(
        cast("Runtime", stage),
        clock=StageClock(stage),
        body_limit_bytes=BODY_LIMIT,
        keep_alive_seconds=0.02,
        surfaces=[build],
    )
    return stage, api


@pytest.fixture
def runtime() -> MemoryRuntime:
    return MemoryRuntime(SystemClock())


@pytest.fixture
def api(runtime: MemoryRuntime) -> FastAPI:
    stage, api = staged()
    stage.played = runtime
    return api


class Browser(httpx.AsyncClient):
    """Sends what browsers send: it takes pages, keeps cookies, says where forms come from, and does not follow by itself."""

    def __init__(self, api: FastAPI) -> None:
        super().__init__(
            transport=httpx.ASGITransport(api, raise_app_exceptions=False),
            base_url=SERVER,
            headers={"Accept": "text/html,*/*;q=0.8"},
        )

    async def fill(self, page: str, path: str, **fields: str | list[str]) -> httpx.Response:
        """Open a page, and send the form that it has for that path, with these fields."""
        return await self.send_form(path, token=token_of((await self.get(page)).text), **fields)

    async def send_form(self, path: str, **fields: str | list[str]) -> httpx.Response:
        return await self.post(path, data=fields, headers={"Origin": SERVER})

    async def sign_in(self, key: str) -> httpx.Response:
        self.cookies.clear()
        return await self.fill("/console/sign-in", "/console/sign-in", key=key)


def token_of(page: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', page)
    assert found is not None, page
    return found[1]


@pytest.fixture
async def browser(api: FastAPI) -> AsyncIterator[Browser]:
    async with Browser(api) as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[playwright.sync_api.Browser]:
    """A real browser."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        if "CI" in os.environ:  # noqa: TID251 - which machine it is decides whether a missing browser fails
            pytest.fail("CI promises Chromium")
        pytest.skip("there is no chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def http(server: Served) -> Iterator[httpx.Client]:
    """The API beside the console that the browser sees."""
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as client:
        yield client


async def issued(runtime: MemoryRuntime, *scopes: str, agents: tuple[str, ...] = ()) -> str:
    return (await runtime.keys.create(LOCAL, KeyRequest("ci", scopes, agents))).text


__all__ = ["SERVER", "Browser", "issued", "serving", "staged", "token_of"]
