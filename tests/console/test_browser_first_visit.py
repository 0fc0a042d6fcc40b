"""A console where nothing has run yet: it says how to begin, and shows what comes."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.accessibility import violations
from tests.console.browsing import opened
from tests.console.shop import opened_shop
from tests.listening import listening

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@pytest.fixture
def http(tmp_path) -> Iterator[httpx.Client]:
    """A client, with a key, of a shop that has just been opened."""
    with listening(opened_shop(tmp_path)) as url, httpx.Client(base_url=url, timeout=60) as client:
        key = client.post("/v1/keys", json={"name": "owner", "scopes": ["admin"]}).json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


def test_a_first_visitor_is_told_how_to_begin_and_sees_the_first_runs_arrive(chromium, http):
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console")
        expect(page.get_by_role("heading", name="Nothing has run yet")).to_be_visible()
        expect(page.get_by_text('owlclaw trigger analyst --focus "first look" --follow')).to_be_visible()
        assert violations(page, "light") + violations(page, "dark") == []

        for number in (1, 2):
            run = http.post("/v1/agents/analyst/triggers", json={"focus": f"visit {number}"}).json()["run_id"]
            expect(page.locator(f"#{run}")).to_contain_text(f"visit {number}")
            expect(page.locator(f"#{run} .status")).to_have_text("completed")
        expect(page.locator("table.runs tbody tr")).to_have_count(2)
        expect(page.get_by_role("heading", name="Nothing has run yet")).to_be_hidden()


def test_a_first_visitor_triggers_the_first_run_by_the_form_and_sees_it(chromium, http):
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/runs")
        page.locator(".first select").select_option("analyst")
        page.get_by_label("Focus", exact=True).fill("the first look")
        page.get_by_role("button", name="Trigger the first run").click()

        expect(page.get_by_role("heading", level=1)).to_have_text("the first look")
        expect(page.locator("#run-head .status")).to_have_text("completed")
        expect(page.locator("#entries")).to_contain_text("Sales are up by 4 %.")
