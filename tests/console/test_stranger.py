"""Ten questions of somebody who has never seen the console, each answered by at most four actions.

`make pictures` runs these tests and keeps what is seen in the end under docs/console/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from owlclaw_ray.kernel.system_clock import SystemClock
from tests.console.browsing import opened
from tests.console.pictures import keep
from tests.console.shop import REFUSAL, opened_shop
from tests.listening import listening

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

MOST_ACTIONS = 4
WIDTH, HEIGHT = 1280, 800


class Stranger:
    """Somebody who looks at a page. What is typed, clicked or pressed is an action; looking and scrolling are none."""

    def __init__(self, page: Page, keep: Callable[[Page, str], None]) -> None:
        self.page, self._keep, self._actions = page, keep, 0

    def click(self, what: Locator) -> None:
        self._act()
        what.click()

    def fill(self, what: Locator, text: str) -> None:
        self._act()
        what.fill(text)

    def press(self, key: str) -> None:
        self._act()
        self.page.keyboard.press(key)

    def picture(self, name: str) -> None:
        """Keep what is seen, if pictures are asked for."""
        self._keep(self.page, name)

    def _act(self) -> None:
        self._actions += 1
        assert self._actions <= MOST_ACTIONS


Visit: TypeAlias = Callable[[str], Stranger]


def ended(http: httpx.Client, agent: str, focus: str, **payload: object) -> str:
    """Return the run of that agent, which is over."""
    answer = http.post(f"/v1/agents/{agent}/triggers?wait=60", json={"focus": focus, "payload": payload})
    run: str = answer.raise_for_status().json()["run_id"]
    return run


def asking(http: httpx.Client, agent: str, order: int) -> str:
    """Return the call of a new run of a cashier that waits for a person."""
    body = {"focus": f"refund order {order}", "payload": {"order": order}}
    run = http.post(f"/v1/agents/{agent}/triggers", json=body).json()["run_id"]
    with http.stream("GET", f"/v1/runs/{run}/events") as events:
        assert any(line == "event: approval_requested" for line in events.iter_lines())
    found: str = http.get("/v1/approvals", params={"run": run}).json()["approvals"][0]["approval_id"]
    return found


def key_of(http: httpx.Client, name: str, *scopes: str) -> str:
    key: str = http.post("/v1/keys", json={"name": name, "scopes": scopes}).raise_for_status().json()["key"]
    return key


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client, with a key, of a shop in which a day has passed."""
    with (
        listening(opened_shop(tmp_path_factory.mktemp("shop"))) as url,
        httpx.Client(base_url=url, timeout=120) as client,
    ):
        client.headers["Authorization"] = f"Bearer {key_of(client, 'owner', 'admin')}"
        memory = {"content": "Mr Mayer wants every order packed without plastic.", "tags": ["customer"]}
        client.post("/v1/agents/clerk/memories", json=memory).raise_for_status()
        for number in (15, 16, 17, 18):
            ended(client, "clerk", f"look at order {number}", order=number, customer=4711)
        for number in (1, 2):
            ended(client, "analyst", f"sales of week {number}")
        for focus in ("buy 20 kettles", "buy 12 teapots"):
            ended(client, "buyer", focus)
        for agent, order in (("cashier:paris", 12), ("cashier:rome", 9)):
            call = asking(client, agent, order)
            said = {"decision": "allow_once", "reason": "the parcel came back"}
            theirs = {"Authorization": f"Bearer {key_of(client, 'ada', 'approver')}"}
            client.post(f"/v1/approvals/{call}/decision", json=said, headers=theirs).raise_for_status()
        asking(client, "cashier:oslo", 17)
        for number in range(30, 36):
            client.post("/v1/agents/cashier:oslo/triggers", json={"focus": f"refund order {number}"})
        for agent, focus, cron in (
            ("analyst", "sales of the day", "30 22 * * *"),
            ("clerk", "look for orders that are late", "0 6 * * 1-5"),
            ("clerk:night", "count what came back", "15 3 * * *"),
        ):
            rule = {"focus": focus, "cron_expression": cron, "timezone": "Europe/Paris"}
            night = client.post(f"/v1/agents/{agent}/schedules", json=rule).raise_for_status().json()["schedule_id"]
        later = {"focus": "in three days", "delay_seconds": 3 * 86_400}
        client.post("/v1/agents/clerk/schedules", json=later).raise_for_status()
        now = SystemClock().now()
        span = {"since": f"{now - timedelta(days=9):%Y-%m-%dT%H:%M:%SZ}", "until": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
        client.post(f"/v1/schedules/{night}/backfill", json=span).raise_for_status()
        yield client


@pytest.fixture
def visit(chromium, http: httpx.Client, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Opens a page of the console for a stranger."""
    folder: Path | None = request.config.getoption("--pictures", None)
    look = {"viewport": {"width": WIDTH, "height": HEIGHT}, "timezone_id": "Europe/Paris", "locale": "en-GB"}
    with opened(chromium, http, **look) as page:

        def begin(path: str) -> Stranger:
            page.goto(f"{http.base_url}/console{path}")
            return Stranger(page, lambda page, name: keep(page, folder, name))

        yield begin


def test_why_did_the_last_failed_run_of_an_agent_fail(visit):
    stranger = visit("")
    stranger.fill(stranger.page.get_by_label("Agent", exact=True), "buyer")
    stranger.press("Enter")
    stranger.click(stranger.page.locator("table.runs .row").first)

    page = stranger.page
    expect(page.get_by_role("heading", level=1)).to_have_text("buy 12 teapots")
    expect(page.locator("#run-head .status")).to_have_text("failed")
    expect(page.locator("#run-head .notice")).to_contain_text(REFUSAL)
    stranger.picture("why-a-run-failed")


def test_who_approved(visit):
    stranger = visit("")
    stranger.click(stranger.page.get_by_role("link", name="Approvals"))
    stranger.click(stranger.page.get_by_role("link", name="allowed", exact=True))

    newest = stranger.page.locator("article.ask").first
    expect(newest).to_contain_text("cashier:rome")
    expect(newest).to_contain_text("(ada)")
    expect(newest).to_contain_text("the parcel came back")
    stranger.picture("who-approved")


def test_what_will_run_tonight(visit):
    stranger = visit("")
    stranger.click(stranger.page.get_by_role("link", name="Schedules"))
    stranger.click(stranger.page.get_by_role("link", name="What runs next"))

    page = stranger.page
    expect(page.get_by_role("heading", level=1)).to_have_text("What runs in the next 24 hours")
    row = page.get_by_role("row", name="count what came back")
    expect(row).to_contain_text("At 03:15")
    expect(row.locator("relative-time").first).to_contain_text("03:15")
    expect(page.get_by_role("row", name="in three days")).to_have_count(0)
    stranger.picture("what-runs-tonight")


def test_which_agent_costs_most_today(visit):
    stranger = visit("")
    stranger.click(stranger.page.get_by_role("link", name="Agents"))
    stranger.click(stranger.page.get_by_role("link", name="by cost today"))

    first = stranger.page.locator("table.agents tbody tr").first
    expect(first).to_contain_text("analyst")
    expect(first).to_contain_text("$1.70")
    stranger.picture("which-agent-costs-most")


def test_the_run_of_order_17_is_found_by_its_focus(visit):
    stranger = visit("")
    stranger.fill(stranger.page.get_by_label("Text of the focus"), "look at order 17")
    stranger.press("Enter")

    page = stranger.page
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    expect(page.locator("table.runs .row")).to_have_text("look at order 17")
    stranger.picture("find-a-run")


def test_which_tool_is_slow(visit):
    stranger = visit("")
    stranger.click(stranger.page.get_by_role("link", name="Usage"))

    slowest = stranger.page.locator("#by-tool tbody tr").first
    expect(slowest).to_contain_text("shop.ask_warehouse")
    expect(slowest).to_contain_text(" ms")
    stranger.picture("which-tool-is-slow")


def test_what_did_the_agent_see(visit):
    stranger = visit("")
    stranger.fill(stranger.page.get_by_label("Text of the focus"), "look at order 17")
    stranger.press("Enter")
    stranger.click(stranger.page.locator("table.runs .row"))
    stranger.click(stranger.page.get_by_role("link", name="what it saw").last)

    page = stranger.page
    expect(page.get_by_role("heading", level=1)).to_have_text("What the model saw")
    for seen in ("look at order 17", '"customer":4711', re.compile("shop.+look_up_order")):
        expect(page.get_by_text(seen).first).to_be_visible()
    stranger.picture("what-the-agent-saw")


def test_why_was_a_tool_withheld(visit):
    stranger = visit("")
    stranger.fill(stranger.page.get_by_label("Text of the focus"), "look at order 17")
    stranger.press("Enter")
    stranger.click(stranger.page.locator("table.runs .row"))
    stranger.click(stranger.page.get_by_text("Withheld from it"))

    row = stranger.page.get_by_role("row", name="shop.close_books")
    expect(row).to_contain_text("role")
    expect(row).to_contain_text("manager")
    stranger.picture("why-a-tool-was-withheld")


def test_a_memory_is_corrected(visit, http):
    stranger = visit("/agents/clerk")
    stranger.click(stranger.page.get_by_role("link", name="1 active"))
    stranger.click(stranger.page.get_by_text("Edit", exact=True))
    stranger.fill(stranger.page.get_by_label("Content"), "Mr Meyer wants every order packed without plastic.")
    stranger.picture("correct-a-memory")
    stranger.click(stranger.page.get_by_role("button", name="Save"))

    expect(stranger.page.locator("article.memory").first).to_contain_text("Mr Meyer")
    (memory,) = http.get("/v1/agents/clerk/memories").json()["memories"]
    assert memory["content"] == "Mr Meyer wants every order packed without plastic."


def test_the_pages_that_the_docs_show_beside_are_there(visit):
    """Not one of the ten: a run, the inbox and a schedule."""
    stranger = visit("/runs?agent=cashier:rome")
    stranger.click(stranger.page.locator("table.runs .row").first)
    expect(stranger.page.locator("#run-head .status")).to_have_text("completed")
    stranger.picture("run")
    stranger = visit("/approvals?agent=cashier:oslo")
    stranger.press("e")
    expect(stranger.page.get_by_label("Arguments, as JSON")).to_be_focused()
    stranger.picture("approvals")
    stranger = visit("/schedules")
    stranger.click(stranger.page.get_by_role("link", name="count what came back"))
    expect(stranger.page.locator(".tick.is-caught_up")).to_have_count(9)
    stranger.picture("schedule")


def test_everything_of_one_agent_is_stopped(visit, http):
    stranger = visit("")
    stranger.fill(stranger.page.get_by_label("Agent", exact=True), "cashier:oslo")
    stranger.press("Enter")
    stranger.click(stranger.page.get_by_role("link", name="Cancel all…"))
    expect(stranger.page.get_by_role("heading", level=1)).to_have_text("Cancel: 7 runs")
    stranger.picture("stop-everything")
    stranger.click(stranger.page.get_by_role("button", name="Cancel all that match"))

    expect(stranger.page.get_by_role("status").first).to_contain_text("7 runs asked to stop")
    found = http.get("/v1/runs", params={"agent": "cashier:oslo"}).json()["runs"]
    assert [run["cancel_requested"] for run in found] == [True] * 7
