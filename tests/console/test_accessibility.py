"""axe finds nothing wrong with any page of the console, and each fits a telephone, a laptop and a wall.

Pages are found as people find them, by links, and none may be left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from playwright.sync_api import Page, expect
from starlette.routing import compile_path

from owlclaw_ray.domain.node import ClusterView
from owlclaw_ray.kernel.system_clock import SystemClock
from tests.console.accessibility import faults
from tests.console.browsing import opened
from tests.console.conftest import Browser, staged
from tests.console.test_access import operations
from tests.console.test_browser import waiting
from tests.contract.conftest import server  # noqa: F401 - a fixture
from tests.serve.double import MemoryRuntime, node_view

pytestmark = pytest.mark.browser

NO_PAGES = {
    "/console",
    "/console/static/{name}",
    "/console/sign-in/{issuer}",
    "/console/sign-in/{issuer}/callback",
    "/console/runs/{run_id}/stream",
    "/console/agents/{agent}/artifacts/{artifact_id}",
}
"""What GET answers with something else than a page, or with a way to another one."""
TEXTS = {
    "/console/runs/{run_id}/entries/{seq}",
    "/console/runs/{run_id}/payload",
    "/console/ledger/{place}",
    "/console/webhooks/deliveries/{delivery_id}/body",
}
"""Plain text, to which pages lead that show less of it."""
OF_NODES = {"/console/fleet/nodes/{node}/drain"}
"""What is there where Ray is, which the server of this test does without."""
ROUTES = {
    path: compile_path(path)[0]
    for path in (each.split()[1] for each in operations() if each.startswith("GET "))
    if path not in NO_PAGES
}
NODE = "n" * 200
MOST_OF_ONE = 6
"""So many pages of a route, with different kinds of query, are looked at."""


def route_of(path: str) -> str | None:
    return next((route for route, pattern in ROUTES.items() if pattern.match(unquote(path))), None)


def links(page: Page) -> Iterator[str]:
    """The addresses of pages of the console that the page leads to."""
    found = "all => all.map((each) => new URL(each.getAttribute('href'), location).href)"
    for href in page.eval_on_selector_all("a[href]", found):
        parts = urlsplit(href)
        if parts.netloc == urlsplit(page.url).netloc and parts.path.startswith("/console"):
            yield parts._replace(fragment="").geturl()


def kind_of(url: str) -> tuple[str | None, frozenset[str]]:
    """What makes two addresses pages of one kind: their route, and which parameters they have."""
    parts = urlsplit(url)
    return route_of(parts.path), frozenset(name for name, _ in parse_qsl(parts.query))


@pytest.mark.timeout(900)
def test_axe_finds_nothing_wrong_with_any_page_and_each_fits(chromium, http):
    approval = waiting(http, 9)
    run = http.post("/v1/agents/assistant/triggers?wait=60", json={"focus": "看一下 " + "w" * 200}).json()["run_id"]
    daily = {"focus": "看一下", "cron_expression": "0 9 * * 1-5"}
    schedule = http.post("/v1/agents/assistant/schedules", json=daily).raise_for_status().json()["schedule_id"]
    http.post("/v1/tenants", json={"tenant": "accessible"}).raise_for_status()
    base = str(http.base_url).rstrip("/")
    starts = [
        f"{base}/console/{path}"
        for path in (
            f"runs/{approval['run_id']}",
            f"runs/{run}?view=journal",
            f"runs/{run}/rerun",
            f"runs/selection?action=cancel&run={approval['run_id']}",
            "runs?status=timeout",
            "agents/assistant/memories",
            f"schedules/{schedule}",
            f"schedules/{schedule}/backfill?since=2026-11-02T00:00&until=2026-11-03T00:00",
            "tenants/accessible",
            "nothing",
        )
    ]
    starts += [f"{base}{path}" for path in ROUTES if "{" not in path]
    wrong: list[str] = []
    seen: dict[str | None, set[frozenset[str]]] = {}
    looked_at: set[str] = set()
    shown: set[str | None] = set()
    with opened(chromium, http, expected="status of 4") as page:
        coming = [*starts]
        while coming:
            url = coming.pop(0)
            route, names = kind_of(url)
            of_route = seen.setdefault(route, set())
            if names in of_route or len(of_route) >= MOST_OF_ONE or url.endswith("/console/sign-in"):
                continue
            of_route.add(names)
            kind = page.context.request.head(url, headers={"Accept": "text/html"}).headers.get("content-type", "")
            if not kind.startswith("text/html"):
                continue
            answer = page.goto(url)
            looked_at.add(url)
            if answer is not None and answer.ok:
                shown.add(route)
            wrong += faults(page)
            coming += links(page)
        page.goto(f"{base}/console/keys")
        page.get_by_text("Make a key").click()
        page.get_by_label("Who has it").fill("n" * 100)
        page.get_by_label("operator", exact=True).check()
        page.get_by_role("button", name="Make the key").click()
        expect(page.locator("#issued-key")).to_be_visible()
        wrong += faults(page)
        page.context.clear_cookies()
        page.goto(f"{base}/console/sign-in")
        wrong += faults(page)
    assert wrong == []
    assert f"{base}/console/nothing" in looked_at, "a page that is not there"
    left_out = ROUTES.keys() - shown - {"/console/sign-in", *TEXTS, *OF_NODES}
    assert left_out == set(), (
        "no link leads to these pages: have the server hold what they show, or name them in NO_PAGES"
    )


@pytest.mark.parametrize("path", ["/console/fleet", f"/console/fleet/nodes/id-of-{NODE}/drain"])
def test_axe_finds_nothing_wrong_with_pages_of_machines_and_they_fit(chromium, http, path):
    runtime = MemoryRuntime(SystemClock())
    runtime.cluster = ClusterView((node_view(NODE, problem="w" * 300), node_view("beta")))

    async def drawn() -> str:
        stage, api = staged()
        stage.played = runtime
        async with Browser(api) as browser:
            return (await browser.get(path)).raise_for_status().text

    with ThreadPoolExecutor(1) as pool:  # Playwright has a loop in this thread
        text = pool.submit(asyncio.run, drawn()).result()
    with opened(chromium, http) as page:
        page.route(f"**{path}", lambda route: route.fulfill(body=text, content_type="text/html"))
        page.goto(f"{str(http.base_url).rstrip('/')}{path}")
        expect(page.get_by_text(NODE).first).to_be_visible()
        assert faults(page) == []
