"""Finding runs, and acting on many, in a real browser: each of at most four actions."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console.browsing import opened
from tests.console.test_browser import waiting
from tests.contract.conftest import server  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser


def test_the_run_of_order_17_is_found_by_its_focus(chromium, http):
    runs = {
        number: http.post("/v1/agents/assistant/triggers", json={"focus": f"look at order {number}, 订单"}).json()[
            "run_id"
        ]
        for number in (16, 17, 18)
    }
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs")
        page.get_by_label("Text of the focus").fill("order 17")
        page.keyboard.press("Enter")

        expect(page.locator("table.runs tbody tr")).to_have_count(1)
        expect(page.locator(f"#{runs[17]}")).to_contain_text("order 17")
        assert "text=order+17" in page.url
        page.get_by_label("Name of this view").fill("Order 17")
        page.get_by_role("button", name="Save view").click()
        page.goto(f"{http.base_url}/console/runs")
        page.get_by_role("link", name="Order 17", exact=True).click()
        expect(page.locator("table.runs tbody tr")).to_have_count(1)


def test_everything_of_one_agent_is_stopped(chromium, http):
    first = waiting(http, 90)["run_id"]
    for number in range(15):
        http.post("/v1/agents/cashier:b90/triggers", json={"focus": f"refund {number}"})
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs?status=open")
        page.get_by_label("Agent", exact=True).fill("cashier:b90")
        page.keyboard.press("Enter")
        page.get_by_role("link", name="Cancel all…").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Cancel: 16 runs")
        page.get_by_role("button", name="Cancel all that match").click()

        expect(page.get_by_role("status").first).to_contain_text("16 runs asked to stop")
        expect(page.get_by_text("No run matches")).to_be_visible()
    assert http.get(f"/v1/runs/{first}").json()["cancel_requested"] is True
