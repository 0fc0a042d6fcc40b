"""The console in a real browser, over the real engine: nothing foreign is asked for, nothing is complained about, and it is live."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.accessibility import violations
from tests.console.browsing import NAMELESS, PALE, opened
from tests.contract.conftest import server  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>看一下"


def waiting(http: httpx.Client, number: int) -> dict[str, str]:
    """The call for a person of a cashier, whose run is new."""
    run = http.post(f"/v1/agents/cashier:b{number}/triggers", json={"focus": f"refund {number}"}).json()["run_id"]
    while True:
        found: list[dict[str, str]] = http.get("/v1/approvals", params={"run": run, "status": "pending"}).json()[
            "approvals"
        ]
        if found:
            return found[0]


def test_a_stranger_signs_in_by_a_link_triggers_an_agent_and_sees_its_run(chromium, http):
    with opened(chromium, http) as page:
        assert "#" not in page.url
        page.get_by_role("link", name="assistant", exact=True).click()
        page.get_by_label("Focus").fill(HOSTILE)
        page.get_by_label("Payload, as JSON").fill('{"order": 17}')
        page.get_by_role("button", name="Trigger").click()

        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
        expect(page.locator("#run-head .status")).to_have_text("completed")
        expect(page.locator("#entries article").last).to_contain_text("Finished")
        page.get_by_role("link", name="Journal").click()
        expect(page.locator("#entries article").last).to_contain_text("run_finished")
        page.go_back()
        expect(page.get_by_role("link", name="Conversation")).to_have_attribute("aria-current", "true")
        assert all(each["httpOnly"] for each in page.context.cookies())
        assert page.evaluate("document.cookie") == ""


def test_a_run_goes_on_under_the_eyes_of_who_looks(chromium, http):
    approval = waiting(http, 1)
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs/{approval['run_id']}")
        expect(page.locator("#run-head .status")).to_have_text("waiting")
        before = page.locator("#entries article").count()

        http.post(f"/v1/approvals/{approval['approval_id']}/decision", json={"decision": "deny", "reason": "a test"})

        expect(page.locator("#entries")).to_contain_text("a test")
        expect(page.locator("#run-head .status")).to_have_text(re.compile("completed|failed|terminated"))
        seqs = page.locator("#entries article .seq").all_inner_texts()
        assert [int(each) for each in seqs] == [*range(1, len(seqs) + 1)]
        assert len(seqs) > before


def test_runs_that_come_are_counted_and_shown_when_somebody_wants_it(chromium, http):
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs")
        first = page.locator("table.runs tbody tr").first.get_attribute("id")
        run = http.post("/v1/agents/assistant/triggers", json={"focus": "a newcomer"}).json()["run_id"]

        page.get_by_role("link", name="1 new run: show").click()

        expect(page.locator(f"#{run}")).to_contain_text("a newcomer")
        expect(page.locator(f"#{first}")).to_be_visible()


def test_the_inbox_is_worked_by_keys_and_no_key_alone_decides(chromium, http):
    calls = [waiting(http, number) for number in (2, 3, 4)]
    by_expiry = [each["approval_id"] for each in calls]
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/approvals")
        earlier = page.locator("article.ask").count() - len(calls)
        for _ in range(earlier):
            page.keyboard.press("j")
        for key, at in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
            page.keyboard.press(key)
            assert page.evaluate("document.activeElement.id") == by_expiry[at]
        page.keyboard.press("d")
        assert http.get(f"/v1/approvals/{by_expiry[1]}").json()["status"] == "pending"
        page.keyboard.press("Enter")
        page.wait_for_load_state()

        expect(page.locator(f"#{by_expiry[1]}")).to_have_count(0)
        assert [http.get(f"/v1/approvals/{each}").json()["status"] for each in by_expiry] == [
            "pending",
            "denied",
            "pending",
        ]
        page.keyboard.press("j")
        page.get_by_placeholder("Comment").first.fill("jad")
        assert http.get(f"/v1/approvals/{by_expiry[0]}").json()["status"] == "pending"


def test_a_call_that_comes_while_one_looks_is_decided_where_it_appears(chromium, http):
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/approvals")
        approval = waiting(http, 7)
        call = page.locator(f"#{approval['approval_id']}")

        call.get_by_role("button", name="Deny").click()

        expect(call).to_have_count(0)
        assert http.get(f"/v1/approvals/{approval['approval_id']}").json()["status"] == "denied"


def test_a_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back(chromium, http):
    with opened(chromium, http, expected="status of 503") as page:
        page.goto(f"{http.base_url}/console/runs")
        page.route("**/console/runs?*", lambda route: route.fulfill(status=503, body=""))
        expect(page.locator("#connection")).to_be_visible()
        page.unroute("**/console/runs?*")
        expect(page.locator("#connection")).to_be_hidden()
        run = http.post("/v1/agents/assistant/triggers", json={"focus": "after the failure"}).json()["run_id"]
        page.get_by_role("link", name="new run").click()
        expect(page.locator(f"#{run}")).to_be_visible()


def test_a_part_that_the_server_does_not_give_any_more_is_no_server_that_is_gone(chromium, http):
    with opened(chromium, http, expected="status of 404") as page:
        page.clock.install()
        page.goto(f"{http.base_url}/console/runs")
        refusal = {"status": 404, "content_type": "application/problem+json", "body": "{}"}
        page.route("**/console/runs?*rows*", lambda route: route.fulfill(**refusal))
        page.clock.run_for(5_000)
        expect(page.locator("#outdated")).to_be_visible()

        with page.expect_response("**/console/runs?*chart*"):
            page.clock.run_for(30_000)

        expect(page.locator("#outdated")).to_be_visible()
        expect(page.locator("#connection")).to_be_hidden()


def test_a_proxy_that_has_no_server_for_a_page_refuses_no_part_of_it(chromium, http):
    with opened(chromium, http, expected="status of 404") as page:
        page.goto(f"{http.base_url}/console/runs")
        page.route("**/console/runs?*", lambda route: route.fulfill(status=404, body="Path '/' not found"))
        expect(page.locator("#connection")).to_be_visible()
        expect(page.locator("#outdated")).to_be_hidden()

        page.unroute("**/console/runs?*")

        expect(page.locator("#connection")).to_be_hidden()


def test_a_run_is_followed_again_after_answers_that_are_no_stream(chromium, http):
    approval = waiting(http, 5)
    with opened(chromium, http, expected="503") as page:
        page.route("**/stream?*", lambda route: route.fulfill(status=503, body=""))
        page.goto(f"{http.base_url}/console/runs/{approval['run_id']}")
        expect(page.locator("#behind")).to_be_visible()
        expect(page.locator("#connection")).to_be_hidden()
        http.post(f"/v1/approvals/{approval['approval_id']}/decision", json={"decision": "deny", "reason": "meanwhile"})
        page.unroute("**/stream?*")

        expect(page.locator("#entries")).to_contain_text("meanwhile")
        expect(page.locator("#behind")).to_be_hidden()
        seqs = page.locator("#entries article .seq").all_inner_texts()
        assert [int(each) for each in seqs] == [*range(1, len(seqs) + 1)]


@pytest.mark.parametrize(
    ("number", "answer", "notice"),
    [
        (71, {"status": 404, "content_type": "application/problem+json", "body": "{}"}, "outdated"),
        (72, {"status": 503, "body": ""}, "connection"),
    ],
)
def test_a_run_that_is_not_streamed_any_more_says_why(chromium, http, number, answer, notice):
    approval = waiting(http, number)
    with opened(chromium, http, expected="status of") as page:
        for part in ("**/stream?*", "**fragment=head*"):
            page.route(part, lambda route: route.fulfill(**answer))
        page.goto(f"{http.base_url}/console/runs/{approval['run_id']}")

        expect(page.locator(f"#{notice}")).to_be_visible()
        assert page.locator(".notice[hidden]").count() == 2


def test_the_page_of_a_run_that_waits_for_others_follows_them_without_entries_of_its_own(chromium, http):
    approval = waiting(http, 73)
    with opened(chromium, http) as page:
        page.clock.install()
        page.goto(f"{http.base_url}/console/runs/{approval['run_id']}")
        expect(page.locator("#run-head .status")).to_have_text("waiting")
        renewed = '<div id="run-head" data-v="another" data-every="10">2 runs, $3.00</div>'
        page.route("**fragment=head*", lambda route: route.fulfill(body=renewed))

        page.clock.run_for(10_000)

        expect(page.locator("#run-head")).to_have_text("2 runs, $3.00")


def test_arguments_are_edited_by_the_keyboard_beside_what_they_must_be(chromium, http):
    approval = waiting(http, 6)
    with opened(chromium, http, expected="status of 422") as page:
        page.goto(f"{http.base_url}/console/approvals/{approval['approval_id']}")
        page.keyboard.press("e")
        arguments = page.get_by_label("Arguments, as JSON")
        expect(arguments).to_be_focused()
        expect(page.get_by_role("row", name="order")).to_contain_text("required")
        arguments.fill('{"order": 17}')
        page.keyboard.press("Escape")
        page.keyboard.press("a")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("nothing has changed")
        expect(arguments).to_have_value('{"order": 17}')
        assert violations(page, "light") + violations(page, "dark") == []

        arguments.fill('{"order": "18"}')
        page.get_by_placeholder("Comment").fill("the other one")
        page.keyboard.press("Enter")
        assert http.get(f"/v1/approvals/{approval['approval_id']}").json()["status"] == "pending"
        page.get_by_role("button", name="Allow", exact=True).click()
        page.wait_for_url("**/console/approvals*")
        decision = http.get(f"/v1/approvals/{approval['approval_id']}").json()["decision"]
        assert (decision["arguments"], decision["reason"]) == ({"order": "18"}, "the other one")


def test_one_goes_anywhere_by_the_keyboard_alone(chromium, http):
    run = http.post("/v1/agents/assistant:far/triggers?wait=60", json={"focus": "look at parcel 4711"}).json()["run_id"]
    with opened(chromium, http) as page:
        for typed, option, address in (
            ("fle", "Fleet", "**/console/fleet"),
            ("cashier:0", "cashier:0", "**/console/agents/cashier%3A0"),
            ("parcel 4711", "look at parcel 4711", f"**/console/runs/{run}"),
            ("assistant:new", "assistant:new", "**/console/agents/assistant%3Anew"),
            (run, run, f"**/console/runs/{run}"),
        ):
            page.keyboard.press("Control+k")
            page.keyboard.type(typed)
            expect(page.get_by_role("option", selected=True)).to_contain_text(option)
            page.keyboard.press("Enter")
            page.wait_for_url(address)
        page.keyboard.press("Control+k")
        page.keyboard.type("parcel")
        expect(page.get_by_role("option", name="look at parcel 4711")).to_be_visible()
        assert violations(page, "light") + violations(page, "dark") == []
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("option", selected=True)).to_contain_text("search the runs")
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/runs?text=parcel")
        page.keyboard.press("Control+k")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_agents_beyond_the_first_ones_are_completed_as_one_types(chromium, http):
    http.post("/v1/agents/assistant:completed/triggers?wait=60", json={"focus": "known"}).raise_for_status()
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs")
        page.evaluate("document.getElementById('agents').replaceChildren()")
        page.get_by_label("Agent", exact=True).press_sequentially("assistant:comp")
        expect(page.locator("#agents option[value='assistant:completed']")).to_have_count(1)

        page.route(re.compile("/console/agents.fragment=rows$"), lambda route: route.fulfill(body=""))
        page.keyboard.press("Control+k")
        page.keyboard.type("assistant:comp")
        expect(
            page.get_by_role("option", name="agent", exact=False).filter(has_text="assistant:completed")
        ).to_be_visible()


def test_the_palette_finds_runs_of_the_agents_that_a_key_is_for(chromium, http):
    for agent in ("assistant:mine", "assistant:theirs"):
        http.post(
            f"/v1/agents/{agent}/triggers?wait=60", json={"focus": f"weigh crate 88 of {agent}"}
        ).raise_for_status()
    asked = {"name": "narrow", "scopes": ["viewer"], "agents": ["agent:assistant:mine"]}
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{http.base_url}/console/sign-in")
    page.get_by_label("Access key").fill(http.post("/v1/keys", json=asked).json()["key"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console/runs*")  # with its scripts
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Page, agent, run")).to_be_focused()
    page.keyboard.type("crate 88")

    expect(page.get_by_role("dialog").get_by_role("option")).to_have_count(1)
    expect(page.get_by_role("dialog").get_by_role("option")).to_contain_text("weigh crate 88 of assistant:mine")
    context.close()


def test_the_palette_offers_nothing_that_its_user_may_not_see(chromium, http):
    key = http.post("/v1/keys", json={"name": "approver alone", "scopes": ["approvals:read"]}).json()["key"]
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{http.base_url}/console/sign-in")
    page.get_by_label("Access key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console/approvals*")  # with its scripts
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("option")).to_have_count(1)
    expect(page.get_by_role("option")).to_contain_text("Approvals")
    page.keyboard.type("run_01jd4k0000")
    expect(page.get_by_role("option")).to_have_count(0)
    context.close()


def test_what_somebody_has_unfolded_stays_so_when_the_part_around_it_is_renewed(chromium, http):
    http.post("/v1/agents/assistant/triggers?wait=60", json={"focus": "look"}).raise_for_status()
    with opened(chromium, http) as page:
        page.clock.install()
        page.goto(f"{http.base_url}/console/runs")
        chart = page.locator("#minutes")
        renewed = chart.evaluate(
            "each => { each = each.cloneNode(true); each.dataset.v = 'another'; return each.outerHTML; }"
        )
        page.route("**fragment=chart*", lambda route: route.fulfill(body=renewed))
        chart.get_by_text("As a table").click()
        page.evaluate("document.activeElement.blur()")

        page.clock.run_for(61_000)

        expect(chart).to_have_attribute("data-v", "another")
        expect(chart.locator("details")).to_have_attribute("open", "")

        chart.locator("details").evaluate("each => { each.open = false; }")
        renewed = renewed.replace('data-v="another"', 'data-v="third"').replace("<details>", "<details open>")
        page.clock.run_for(61_000)

        expect(chart).to_have_attribute("data-v", "third")
        expect(chart.locator("details")).to_have_attribute("open", "")


def test_what_becomes_of_a_run_is_seen_and_heard_while_the_focus_is_in_its_head(chromium, http):
    run = waiting(http, 74)["run_id"]
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs/{run}")
        expect(page.locator("#run-head .status")).to_have_text("waiting")
        again = page.get_by_role("link", name="Run again…")
        again.focus()

        http.post(f"/v1/runs/{run}/cancel").raise_for_status()

        expect(page.locator("#run-head .status")).to_have_text("cancelled")
        expect(page.locator("#heard")).to_have_text("Run cancelled")
        expect(again).to_be_focused()
        expect(page.get_by_role("link", name="Cancel…")).to_have_count(0)
        assert page.get_by_role("log").get_attribute("aria-label") == "Entries"


def test_a_row_says_how_its_run_is_while_the_focus_is_in_it(chromium, http):
    run = waiting(http, 75)["run_id"]
    with opened(chromium, http) as page:
        page.clock.install()
        page.goto(f"{http.base_url}/console/runs")
        row = page.locator(f"#{run}")
        box = row.get_by_role("checkbox")
        box.focus()
        box.check()
        http.post(f"/v1/runs/{run}/cancel").raise_for_status()
        while row.locator(".status").inner_text() != "cancelled":
            page.clock.run_for(7_000)

        expect(box).to_be_focused()
        expect(box).to_be_checked()


def test_without_scripts_everything_is_there_but_what_is_live(chromium, http):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{http.base_url}/console/runs?status=waiting")
    page.get_by_label("Access key").fill(http.headers["Authorization"].removeprefix("Bearer "))
    page.get_by_role("button", name="Sign in").click()
    assert page.url.endswith("/console/runs?status=waiting")
    page.goto(f"{http.base_url}/console/agents/cashier:still")
    page.get_by_label("Focus").fill("without scripts")
    page.get_by_role("button", name="Trigger").click()
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 1 run").click()
    expect(page.get_by_text("The run is asked to stop")).to_be_visible()
    page.goto(f"{http.base_url}/console/runs")
    page.get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Run again…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Run again: 1 run")
    page.get_by_role("button", name="Run again 1 run").click()
    expect(page.get_by_text("1 run triggered again.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (3840, "light")])
def test_every_page_fits_and_names_what_it_has(chromium, http, width, scheme):
    approval = waiting(http, width)
    run = approval["run_id"]
    long = "assistant:" + "w" * 120
    http.post(f"/v1/agents/{long}/triggers?wait=30", json={"focus": "x" * 400, "payload": {"y": "z" * 900}})
    of_long = http.post(f"/v1/agents/{long}/triggers?wait=30", json={"payload": "z " * 3_000}).json()["run_id"]
    paths = [
        "runs", "runs?status=terminated", f"runs/{run}", f"runs/{run}?view=journal", f"runs/selection?action=cancel&run={run}",
        "agents", "agents/assistant", f"agents/{long}", f"runs/{of_long}",
        "agents/assistant/memories", "approvals", f"approvals/{approval['approval_id']}",
    ]  # fmt: skip
    with opened(chromium, http, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        for path in paths:
            page.goto(f"{http.base_url}/console/{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.locator("h1").count() == 1, path
            assert page.evaluate(NAMELESS) == [], path
            assert page.evaluate(PALE) == [], path
