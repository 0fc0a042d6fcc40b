"""Ten thousand of everything: runs, agents, memories, schedules, ledger records and entries of one run, in a real browser."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from msgspec.structs import replace
from playwright.sync_api import expect

from benchmarks.past import long_run, past_of, write
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.commands import Command, CreateSchedule, SubmitRun
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from serve.surfaces import surfaces
from tests.console.accessibility import faults
from tests.console.browsing import opened
from tests.listening import listening

pytestmark = pytest.mark.browser

MANY = 10_000
LONG = RunId("run_long")
READER = AgentRef.parse("reader")
BODY_LIMIT = 10_000_000
MOST_ROWS = 500
"""On one page."""
COLD_BYTES = 120_000
MATCHING = "runs/matching?action=rerun&status=completed"


def past() -> Iterator[Command]:
    """What there is before the server starts."""
    now = SystemClock().now()
    agents = [AgentRef.parse(f"clerk:{number:05}") for number in range(MANY)]
    for command in past_of(agents, MANY, now):
        if isinstance(command, SubmitRun):
            number = int(command.agent.agent_id.rpartition(":")[2])
            yield replace(command, trigger=Trigger(TriggerKind.API, {"order": number}, f"看一下 order {number}"))
        else:
            yield command
    yield from long_run(LONG, READER, MANY, now - timedelta(hours=3))
    tomorrow = now.replace(hour=3, minute=0, second=0, microsecond=0) + timedelta(days=1)
    for number, agent in enumerate(agents):
        at = tomorrow + timedelta(seconds=number % 3_600)
        daily = Schedule(
            ScheduleId(f"sch_{number:05}"), agent, ScheduleKind.INTERVAL, f"look at shelf {number}", now, at
        )
        yield CreateSchedule(replace(daily, interval_seconds=86_400), 9)


@asynccontextmanager
async def made(folder: Path) -> AsyncIterator[FastAPI]:
    """The console over the engine, and its data."""
    for name in ("clerk", "reader"):
        agent = folder / "agents" / name
        agent.mkdir(parents=True)
        (agent / "SOUL.md").write_text("You are calm.")
        (agent / "IDENTITY.md").write_text("# Name\n\n## My Capabilities\n- look\n")
        (agent / "agent.yaml").write_text('{"model": "scripted:script.yaml"}')
        (agent / "script.yaml").write_text('{"rules": [{"then": {"text": "done"}}]}')
    await write(folder / "data" / "owlclaw.db", past())
    async with in_process_runtime(agents_dir=folder / "agents", data_dir=folder / "data") as runtime:
        yield build_api(runtime, clock=SystemClock(), body_limit_bytes=BODY_LIMIT, surfaces=surfaces())


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client, with a key, of the server that has so many."""
    memories = "".join(f"## 2026-11-03T09:30:01+00:00\n\nShelf {number} is empty.\n\n" for number in range(MANY))
    with listening(made(tmp_path_factory.mktemp("large"))) as url, httpx.Client(base_url=url, timeout=300) as client:
        client.put("/v1/agents/reader/memory.md", content=memories.encode()).raise_for_status()
        key = client.post("/v1/keys", json={"name": "browser", "scopes": ["admin"]}).json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


LISTS = {"runs": MANY + 1, "agents": MANY + 2, "schedules": MANY, "agents/reader/memories": MANY}
"""Lists that are led through, and how many they have."""
_ROW = re.compile(r'<(?:tr|article)[^>]* id="([^"]+)"')


@pytest.mark.parametrize(
    "path", [*LISTS, "ledger", "usage", "agents?sort=cost", "schedules/upcoming?hours=72", "fleet", MATCHING]
)
def test_a_page_of_so_many_is_short_fits_every_screen_and_has_nothing_wrong(chromium, http, path):
    with opened(chromium, http) as page:
        answer = page.goto(f"{http.base_url}/console/{path}")

        assert answer.ok
        assert 1 <= page.locator("main tbody tr, main article").count() <= MOST_ROWS
        assert int(answer.headers["content-length"]) < COLD_BYTES
        assert faults(page) == []


@pytest.mark.long
@pytest.mark.parametrize("path", LISTS)
def test_links_lead_through_all_of_a_list_with_nothing_twice_and_nothing_left_out(chromium, http, path):
    with opened(chromium, http) as page:
        following, seen = f"{http.base_url}/console/{path}", list[str]()
        while following:
            main = page.context.request.get(following).text().partition("<main")[2]
            seen += _ROW.findall(main)
            link = re.search(r'rel="next" href="([^"]+)"', main)
            following = f"{http.base_url}{html.unescape(link[1])}" if link else ""

    assert len(seen) == len({*seen}) == LISTS[path]


def test_one_of_so_many_is_found_by_its_focus_its_name_and_its_memory(chromium, http):
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs")
        page.get_by_label("Text of the focus").fill("看一下 order 4711")
        page.keyboard.press("Enter")
        expect(page.locator("table.runs tbody tr")).to_have_count(1)
        expect(page.locator("table.runs tbody tr")).to_contain_text("clerk:04711")

        page.keyboard.press("Control+k")
        page.keyboard.type("clerk:0471", delay=10)
        expect(page.get_by_role("option")).to_contain_text(["clerk:04710"])
        page.goto(f"{http.base_url}/console/agents/reader/memories")
        page.get_by_label("What the agent would recall for").fill("Shelf 4711 is empty.")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("main article").first).to_contain_text("Shelf 4711 is empty.")


def test_what_comes_next_of_so_many_is_the_next_of_all(chromium, http):
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/schedules/upcoming?hours=72")

        times = page.locator("main tbody relative-time[exact]").evaluate_all(
            "all => all.map((each) => each.getAttribute('datetime'))"
        )
        assert len(times) == 500
        assert times == sorted(times)
        assert len({*times}) < 500 / 2, "three agents in each second of the hour"
        expect(page.get_by_text("There is more than is shown here")).to_be_visible()


@pytest.mark.parametrize("view", ["conversation", "journal"])
def test_a_run_of_so_many_entries_opens_at_the_newest_and_leads_to_the_first(chromium, http, view):
    with opened(chromium, http) as page:
        answer = page.goto(f"{http.base_url}/console/runs/{LONG}?view={view}")
        entries = page.locator("#entries article")

        assert int(answer.headers["content-length"]) < COLD_BYTES
        assert entries.count() == 200
        expect(entries.last).to_have_id(f"e{MANY}")
        expect(page.get_by_text(f"entries {MANY - 199:,} to {MANY:,}", exact=True)).to_be_visible()
        assert faults(page) == []
        page.get_by_role("link", name="First entries").first.click()
        expect(entries.first).to_have_id("e1")
        assert entries.count() == 200
