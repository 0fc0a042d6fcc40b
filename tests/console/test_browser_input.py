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
        assert len(badges(page)) == 3, "for wide screens, and for narrow ones, where it is beside the menu too"
        page.set_viewport_size({"width": 360, "height": 800})
        expect(page.locator("summary [data-badge]")).to_be_visible()
        number = len(http.get("/v1/approvals?status=pending&limit=100").json()["approvals"])
        for each in page.locator("[data-badge]").all():
            expect(each).to_have_text(f"{number} waiting")  # it is counted anew every two seconds

        approval = waiting(http, 60 + len(path))
        for each in page.locator("[data-badge]").all():
            expect(each).to_have_text(f"{number + 1} waiting")
        decided = {"decision": "deny", "reason": "a test"}
        http.post(f"/v1/approvals/{approval['approval_id']}/decision", json=decided).raise_for_status()
        for each in page.locator("[data-badge]").all():
            expect(each).to_have_text(f"{number} waiting")
        assert len(badges(page)) == 3


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


def test_who_stopped_on_the_way_through_many_runs_and_comes_back_goes_on_only_by_the_button(chromium, http):
    runs = [
        http.post(f"/v1/agents/cashier:stopped{number}/triggers", json={"focus": "stopped midway"}).json()["run_id"]
        for number in range(3)
    ]
    way = f"/console/runs/matching?action=cancel&text=stopped+midway&upto={runs[2]}&before={runs[2]}&done=1"
    sent = []
    with opened(chromium, http) as page:
        page.on("request", lambda asked: sent.append(asked.url) if asked.method == "POST" else None)
        page.clock.install(time="2026-11-27T10:00:00Z")
        page.clock.pause_at("2026-11-27T11:00:00Z")
        page.evaluate("way => location.assign(way)", way)
        page.get_by_role("link", name="Stop here").click()
        page.wait_for_url("**/console/runs?*")

        for again in (page.go_back, page.reload):
            again()
            page.clock.run_for(5_000)
            expect(page.get_by_role("button", name="Go on")).to_be_visible()
        page.get_by_role("button", name="Go on").click()

        page.wait_for_url("**/console/runs?*did=cancel-3*")
        assert len(sent) == 1


def decide(http: httpx.Client, approval: dict[str, str]) -> None:
    """Have somebody else deny the call, and wait until its run is over."""
    decided = {"decision": "deny", "reason": "a test"}
    http.post(f"/v1/approvals/{approval['approval_id']}/decision", json=decided).raise_for_status()
    while http.get(f"/v1/runs/{approval['run_id']}").json()["finished_at"] is None:
        pass


def test_no_button_of_the_inbox_moves_under_the_mouse_when_calls_come_and_go(chromium, http):
    first, second = waiting(http, 51), waiting(http, 52)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/approvals")
        calls = page.locator("article.ask")
        mine = page.locator(f"article.ask:has(form[action*='{first['approval_id']}'])")
        other = page.locator(f"article.ask:has(form[action*='{second['approval_id']}'])")
        number = calls.count()
        mine.get_by_role("button", name="Allow", exact=True).hover()
        before = [each.bounding_box() for each in (mine, other)]

        third = waiting(http, 53)
        expect(calls).to_have_count(number + 1, timeout=15_000)
        assert [each.bounding_box() for each in (mine, other)] == before

        decide(http, first)
        expect(mine).to_have_class(re.compile("gone"), timeout=15_000)
        expect(mine.get_by_role("button", name="Allow", exact=True)).to_be_disabled()
        assert other.bounding_box() == before[1]
        page.mouse.move(2, 2)
        expect(mine).to_have_count(0, timeout=15_000)
        for each in (second, third):
            decide(http, each)


def test_a_run_that_is_over_is_shown_to_have_left_the_list_of_those_that_are_not(chromium, http):
    approval = waiting(http, 54)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs?status=open")
        row = page.locator(f"tr:has(a[href*='{approval['run_id']}'])").first
        expect(row).not_to_have_class(re.compile("gone"))

        decide(http, approval)

        expect(row).to_have_class(re.compile("gone"), timeout=15_000)


def look_away(page: Page, *, away: bool) -> None:
    """Have the page believe that nobody sees it, as in a tab behind others."""
    page.evaluate(
        "away => { Object.defineProperty(document, 'hidden', { get: () => away, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        away,
    )


def test_a_page_that_nobody_sees_keeps_no_connection_and_misses_nothing(chromium, http):
    approval = waiting(http, 55)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs/{approval['run_id']}")
        state = "document.querySelector('run-stream').stream.readyState"
        page.wait_for_function(f"{state} === EventSource.OPEN")
        look_away(page, away=True)
        assert page.evaluate(state) == 2

        decide(http, approval)
        look_away(page, away=False)

        expect(page.locator("#entries")).to_contain_text("completed", timeout=15_000)


def test_what_was_in_use_when_it_changed_is_as_it_is_as_soon_as_it_is_left(chromium, http):
    approval = waiting(http, 56)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs/{approval['run_id']}")
        cancel = page.get_by_role("link", name="Cancel…")
        cancel.focus()

        decide(http, approval)

        expect(page.locator("#run-head").locator(".status").first).to_have_text("completed")
        expect(cancel).to_be_focused()

        page.evaluate("document.activeElement.blur()")

        expect(cancel).to_have_count(0, timeout=15_000)


def test_tab_comes_to_one_call_of_the_inbox_and_leaves_it_after_that(chromium, http):
    approvals = [waiting(http, number) for number in (141, 142, 143)]
    asked = [each["approval_id"] for each in approvals]
    focused = "document.activeElement.closest('article.ask')?.id ?? document.activeElement.tagName"
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/approvals")
        calls = page.locator("article.ask").evaluate_all("all => all.map((each) => each.id)")
        page.get_by_role("button", name="Filter").focus()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == calls[0], "the first call is where Tab comes"

        while page.evaluate("document.activeElement.id") != asked[1]:
            page.keyboard.press("j")
        assert page.locator("article.ask[tabindex='0']").evaluate_all("all => all.map((each) => each.id)") == [asked[1]]
        stops = set()
        while (at := page.evaluate(focused)) == asked[1]:
            stops.add(page.evaluate("document.activeElement.outerHTML"))
            page.keyboard.press("Tab")
        assert at not in calls, "no other call comes after it"
        assert any('name="reason"' in each for each in stops)
        assert any('value="deny"' in each for each in stops)

        page.keyboard.press("Shift+Tab")
        while page.evaluate("document.activeElement.id") != asked[1]:
            page.keyboard.press("Shift+Tab")
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(focused) not in calls, "nor before it"

        decide(http, approvals[1])
        expect(page.locator(f"#{asked[1]}")).to_have_count(0)
        approvals.append(waiting(http, 144))
        new = approvals[-1]["approval_id"]
        expect(page.locator(f"#{new}")).to_be_visible()
        assert page.locator("article.ask[tabindex='0']").evaluate_all("all => all.map((each) => each.id)") == [calls[0]]
        assert page.locator(f"#{new} button[value=deny]").get_attribute("tabindex") == "-1"
        for at in (0, 2, 3):
            decide(http, approvals[at])


def test_tab_comes_to_one_bar_of_the_picture_and_arrows_lead_to_the_others(chromium, http):
    run = run_that_waited(http, 145)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs/{run}?view=journal")
        bars = page.locator("run-picture svg a").evaluate_all("all => all.map((each) => each.getAttribute('href'))")
        assert len(bars) > 2
        focused = "document.activeElement.getAttribute('href')"
        page.get_by_label("Zoom in").focus()
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == bars[0]
        for key, at in (
            ("ArrowRight", 1),
            ("ArrowDown", 2),
            ("Home", 0),
            ("ArrowUp", 0),
            ("End", -1),
            ("ArrowLeft", -2),
        ):
            page.keyboard.press(key)
            assert page.evaluate(focused) == bars[at], key
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('svg')") is None
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(focused) == bars[-2], "it comes back to the bar that was left"

        again = "const shown = document.querySelector('run-picture'); shown.replaceWith(shown.cloneNode(true))"
        page.evaluate(again)
        stops = page.locator("run-picture svg a[tabindex='0']")
        assert stops.evaluate_all("all => all.map((each) => each.getAttribute('href'))") == [bars[-2]]


def test_a_run_stays_chosen_when_its_row_changes(chromium, http):
    approval = waiting(http, 57)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs")
        row = page.locator(f"tr:has(input[value='{approval['run_id']}'])")
        row.get_by_role("checkbox").check()
        page.evaluate("document.activeElement.blur()")
        expect(row).to_contain_text("waiting")

        decide(http, approval)

        expect(row).to_contain_text("completed", timeout=15_000)
        expect(row.get_by_role("checkbox")).to_be_checked()


def test_of_what_changed_more_than_once_while_it_was_in_use_the_newest_is_shown(chromium, http):
    def run() -> None:
        http.post("/v1/agents/assistant:held/triggers?wait=60", json={}).raise_for_status()

    run()
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/agents/assistant:held")
        head = page.locator("#agent-head")
        number = head.locator("div:has(> dt:text-is('Runs')) > dd")
        expect(number).to_have_text("1")
        head.locator("a").first.focus()
        for runs in (2, 3):
            shown = f'<dt>Runs</dt><dd class="num">{runs}</dd>'
            with page.expect_response(
                lambda answer, shown=shown: "fragment=live" in answer.url and shown in answer.text()
            ):
                run()
        page.evaluate("fetch(location).then((answer) => answer.text())")
        expect(number).to_have_text("1")

        page.route("**/*fragment=live*", lambda _: None)  # there is no next time
        page.evaluate("document.activeElement.blur()")

        expect(number).to_have_text("3", timeout=15_000)
