"""What scripts of the console make of keys, drags and clicks, and of what comes meanwhile, in a real browser over the real engine."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.browsing import opened
from tests.console.test_browser import waiting
from tests.contract.conftest import server  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser


def compose(page: Page, text: str) -> None:
    """Have an input method begin to compose a text in the field that has the focus."""
    told = {"text": text, "selectionStart": len(text), "selectionEnd": len(text)}
    page.context.new_cdp_session(page).send("Input.imeSetComposition", told)


def commit(page: Page, text: str) -> None:
    """Have the input method end with that text."""
    page.context.new_cdp_session(page).send("Input.insertText", {"text": text})


def status(http: httpx.Client, approval: dict[str, str]) -> str:
    return http.get(f"/v1/approvals/{approval['approval_id']}").json()["status"]


def test_the_escape_that_ends_a_composition_leaves_no_field_so_that_the_next_keys_decide_nothing(chromium, http):
    approval = waiting(http, 31)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/approvals/{approval['approval_id']}")
        comment = page.get_by_placeholder("Comment")
        comment.focus()
        compose(page, "ni hao")
        page.keyboard.press("Escape")
        expect(comment).to_be_focused()
        page.keyboard.press("a")
        page.keyboard.press("Enter")
        assert status(http, approval) == "pending"
        expect(comment).to_be_focused()

        commit(page, "你好")
        page.keyboard.press("Escape")
        expect(page.locator("article.ask")).to_be_focused()


def test_a_key_that_an_input_method_takes_moves_nothing_in_the_inbox(chromium, http):
    approval = waiting(http, 32)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/approvals/{approval['approval_id']}")
        for key in ("a", "d", "e", "j"):
            page.evaluate(
                "key => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, isComposing: true, bubbles: true }))",
                key,
            )
            assert page.evaluate("document.activeElement === document.body"), key
        page.keyboard.press("a")
        expect(page.get_by_role("button", name="Allow", exact=True)).to_be_focused()
        assert status(http, approval) == "pending"


def test_enter_that_ends_a_composition_leads_nowhere(chromium, http):
    with opened(chromium, http) as page:
        page.keyboard.press("Control+k")
        compose(page, "fle")
        expect(page.get_by_role("option", selected=True)).to_contain_text("Fleet")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        assert page.url.endswith("/console/agents")

        commit(page, "fle")
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/fleet")


def run_that_waited(http: httpx.Client, number: int) -> str:
    """A run that is over, in whose picture there is surely something: it took the time that a decision took."""
    approval = waiting(http, number)
    decided = {"decision": "deny", "reason": "a test"}
    http.post(f"/v1/approvals/{approval['approval_id']}/decision", json=decided).raise_for_status()
    while http.get(f"/v1/runs/{approval['run_id']}").json()["finished_at"] is None:
        pass
    return approval["run_id"]


def drag(page: Page, picture: Locator, begin: float, end: float, *, button: str = "left", below: float = 0) -> None:
    """Draw over the picture from one share of its width to another, and let go so many pixels below its middle."""
    box = picture.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down(button=button)
    page.mouse.move(box["x"] + (begin + end) / 2 * box["width"], middle)
    page.mouse.move(box["x"] + end * box["width"], middle + below)
    page.mouse.up(button=button)


def test_a_part_of_the_picture_is_looked_at_by_drawing_over_it_in_either_direction(chromium, http):
    run = run_that_waited(http, 33)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs/{run}?view=journal")
        picture = page.locator("run-picture svg")
        for begin, end, wanted in ((0.25, 0.75, (250, 750)), (0.9, 0.5, (500, 700))):
            drag(page, picture, begin, end)
            page.wait_for_url(re.compile(f"zoom={wanted[0] // 10}|zoom={wanted[0] // 10 - 1}"))
            found = [int(each) for each in re.search(r"zoom=(\d+)-(\d+)", page.url).groups()]
            assert all(abs(one - other) <= 3 for one, other in zip(found, wanted, strict=True)), page.url
            assert "view=journal&zoom=" in page.url


def test_a_click_on_the_picture_is_a_click_and_what_is_no_drag_changes_nothing(chromium, http):
    run = run_that_waited(http, 34)
    with opened(chromium, http) as page:
        address = f"{http.base_url}/console/runs/{run}?view=journal"
        page.goto(address)
        picture = page.locator("run-picture svg")
        page.evaluate("addEventListener('pagehide', () => { sessionStorage.left = 'yes'; })")
        drag(page, picture, 0.2, 0.7, button="right")
        drag(page, picture, 0.2, 0.7, below=300)
        page.mouse.move(5, 5)
        drag(page, picture, 0.4, 0.4)
        box = picture.bounding_box()
        page.mouse.move(box["x"] + 10, box["y"] - 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 5)
        page.mouse.up()
        assert page.url.partition("#")[0] == address
        bar = picture.locator("a").first
        entry = bar.get_attribute("href")
        bar.locator("rect").click(force=True)
        page.wait_for_url(f"**{entry}")
        assert page.url == address + entry
        assert page.evaluate("sessionStorage.left ?? 'no'") == "no"


def badges(page: Page) -> list[str]:
    """The number that each badge of the page says."""
    return page.locator("[data-badge]").evaluate_all("all => all.map((each) => each.firstChild.data)")


@pytest.mark.parametrize("path", ["runs", "approvals"])
def test_the_badge_counts_the_calls_that_come_and_go_while_one_looks(chromium, http, path):
    waiting(http, 40 + len(path))
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/{path}")
        before = badges(page)
        assert len(before) == 2, "for wide screens, and for narrow ones"
        number = int(before[0])

        approval = waiting(http, 60 + len(path))
        for each in page.locator("[data-badge]").all():
            expect(each).to_have_text(f"{number + 1} waiting")
        decided = {"decision": "deny", "reason": "a test"}
        http.post(f"/v1/approvals/{approval['approval_id']}/decision", json=decided).raise_for_status()
        for each in page.locator("[data-badge]").all():
            expect(each).to_have_text(f"{number} waiting")
        assert len(badges(page)) == 2


def test_the_command_of_an_entry_is_copied_and_prints_that_entry(chromium, http):
    run = http.post("/v1/agents/assistant/triggers?wait=60", json={"focus": "copied"}).json()["run_id"]
    with opened(chromium, http, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(f"{http.base_url}/console/runs/{run}")
        page.locator("#e3").get_by_role("button", name="curl").click()
        expect(page.locator("#e3").get_by_role("button", name="Copied")).to_be_visible()
        command = page.evaluate("navigator.clipboard.readText()")
        assert f"/v1/runs/{run}/events" in command
        assert "-H 'Last-Event-ID: 2' | grep -m1 '^data:'" in command

        page.locator(".crumbs").get_by_role("button", name="Copy").click()
        expect(page.locator(".crumbs").get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == run


def test_a_saved_view_is_marked_where_one_is_and_forgotten(chromium, http):
    http.post("/v1/agents/assistant/triggers?wait=60", json={"focus": "viewed"})
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs?status=completed")
        page.get_by_label("Name of this view").fill("  <b>Done</b>  ")
        page.keyboard.press("Enter")
        views = page.get_by_role("list", name="Saved views")
        link = views.get_by_role("link", name="<b>Done</b>", exact=True)
        expect(link).to_have_attribute("aria-current", "true")
        expect(page.get_by_label("Name of this view")).to_have_count(0)
        page.goto(f"{http.base_url}/console/runs")
        expect(link).to_be_visible()
        assert link.get_attribute("aria-current") is None
        views.get_by_role("button", name="Forget the view <b>Done</b>").click()
        expect(views).to_have_count(0)


def test_the_next_step_through_many_runs_goes_on_by_itself(chromium, http):
    runs = [
        http.post(f"/v1/agents/cashier:many{number}/triggers", json={"focus": "many at once"}).json()["run_id"]
        for number in range(3)
    ]
    way = f"/console/runs/matching?action=cancel&text=many+at+once&upto={runs[2]}&before={runs[2]}&done=1"
    with opened(chromium, http) as page:
        page.evaluate("way => location.assign(way)", way)
        page.wait_for_url("**/console/runs?*did=cancel-3*")
        expect(page.get_by_role("status").filter(has_text="3 runs asked to stop")).to_be_visible()
