"""Views of the list of runs, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.console.browsing import opened
from tests.contract.conftest import server  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser


def test_a_view_of_runs_is_kept_under_a_name(chromium, http):
    for number in (16, 17, 18):
        http.post("/v1/agents/assistant/triggers", json={"focus": f"look at order {number}, 订单"})
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs")
        page.get_by_label("Text of the focus").fill("order 17")
        page.keyboard.press("Enter")

        expect(page.locator("table.runs tbody tr")).to_have_count(1)
        assert "text=order+17" in page.url
        page.get_by_label("Name of this view").fill("Order 17")
        page.get_by_role("button", name="Save view").click()
        page.goto(f"{http.base_url}/console/runs")
        page.get_by_role("link", name="Order 17", exact=True).click()
        expect(page.locator("table.runs tbody tr")).to_have_count(1)
