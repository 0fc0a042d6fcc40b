"""Usage and charts, in a real browser over the real engine."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import expect

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from serve.surfaces import surfaces
from tests.console.browsing import NAMELESS, PALE, opened
from tests.listening import listening

pytestmark = pytest.mark.browser

SLOW_SECONDS = 0.4
COSTS = {"thrifty": 0.002, "lavish": 1.25, "middling": 0.03}
app = OwlClaw("shop")


@app.handler("look")
def look() -> str:
    """Look."""
    return "seen"


@app.handler("crawl")
def crawl() -> str:
    """Take time."""
    threading.Event().wait(SLOW_SECONDS)
    return "seen"


@app.handler("fail")
def fail() -> str:
    """Fail."""
    raise ValueError("no")


def define(folder: Path) -> Path:
    """Write agents of which each calls all tools once, at its own cost."""
    for name, cost in COSTS.items():
        agent = folder / name
        agent.mkdir(parents=True)
        (agent / "SOUL.md").write_text("You are calm.")
        (agent / "IDENTITY.md").write_text("# Name\n\n## My Capabilities\n- look\n")
        (agent / "agent.yaml").write_text('{"model": "scripted:script.yaml", "limits": {"queued_runs": 20}}')
        calls = [{"name": f"shop__{tool}", "arguments": {}} for tool in ("look", "crawl", "fail")]
        usage = {"prompt_tokens": 900, "completion_tokens": 60, "cached_tokens": 512, "cost": cost / 2}
        turns = [{"tool_calls": calls, "usage": usage}, {"text": "done", "usage": usage}]
        (agent / "script.yaml").write_text(json.dumps({"rules": [{"turns": turns}]}))
    return folder


@asynccontextmanager
async def made(folder: Path) -> AsyncIterator[FastAPI]:
    """The console over the engine."""
    agents = define(folder / "agents")
    async with in_process_runtime(agents_dir=agents, data_dir=folder / "data", app=app) as runtime:
        yield build_api(runtime, clock=SystemClock(), body_limit_bytes=100_000, surfaces=surfaces())


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client, with a key, of a server on which all agents have run twice."""
    with listening(made(tmp_path_factory.mktemp("usage"))) as url, httpx.Client(base_url=url, timeout=300) as client:
        for _ in range(2):
            for name in COSTS:
                run = client.post(f"/v1/agents/{name}/triggers?wait=60", json={}).json()
                assert run["status"] == "completed", run
        key = client.post("/v1/keys", json={"name": "browser", "scopes": ["admin"]}).json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


def test_usage_names_the_slowest_tool_first_and_says_how_often_one_fails(chromium, http):
    with opened(chromium, http) as page:
        page.get_by_role("link", name="Usage").click()

        rows = page.locator("#by-tool tbody tr")
        expect(rows.first).to_contain_text("shop.crawl")
        expect(page.locator("#by-tool tr", has_text="shop.fail")).to_contain_text("6 (100 %)")
        assert http.get("/v1/usage?by=tool").json()["tools"][0]["tool"] == "shop.crawl"


def test_a_chart_is_there_without_scripts_and_its_table_opens(chromium, http):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{http.base_url}/console/usage")
    page.get_by_label("Access key").fill(http.headers["Authorization"].removeprefix("Bearer "))
    page.get_by_role("button", name="Sign in").click()
    figure = page.locator("figure.chart")
    expect(figure.get_by_role("img")).to_be_visible()
    assert figure.locator("rect").count() >= 1
    figure.get_by_text("As a table").click()
    expect(figure.get_by_role("cell", name="6", exact=True)).to_be_visible()
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (3840, "light")])
def test_pages_with_charts_fit_and_name_what_they_have(chromium, http, width, scheme):
    with opened(chromium, http, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        for path in ("usage", "usage?days=30", "runs", "agents", "agents?sort=cost", "agents/lavish"):
            page.goto(f"{http.base_url}/console/{path}")
            for each in page.get_by_text("As a table").all():
                each.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate(NAMELESS) == [], path
            assert page.evaluate(PALE) == [], path
