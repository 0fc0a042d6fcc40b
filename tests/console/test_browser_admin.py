"""The pages for those who look after a runtime, in a real browser over the real engine."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.console.browsing import NAMELESS, PALE, opened
from tests.contract.conftest import server  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser


def test_an_operator_makes_a_tenant_and_a_key_for_it_which_works_and_is_in_no_address(chromium, http):
    with opened(chromium, http) as page:
        addresses = []
        page.on("request", lambda asked: addresses.append(asked.url))
        page.goto(f"{http.base_url}/console/tenants")
        page.get_by_text("Make a tenant").click()
        page.get_by_label("Id, which it keeps").fill("globex")
        page.get_by_label("Open runs").fill("5")
        page.get_by_role("button", name="Make the tenant").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("globex")
        expect(page.get_by_role("row", name=re.compile("Open runs"))).to_contain_text("5")

        page.get_by_role("link", name="Make a key for it").click()
        page.get_by_label("Who has it").fill("their operator")
        page.get_by_label("operator", exact=True).check()
        page.get_by_role("button", name="Make the key").click()
        key = page.locator("#issued-key").inner_text()

        told = http.get("/v1/agents", headers={"Authorization": f"Bearer {key}"})
        assert told.status_code == 200
        assert not [each for each in addresses if key in each]
        page.get_by_role("link", name="Back to the keys").click()
        expect(page.get_by_text(key)).to_have_count(0)


def test_a_call_that_failed_is_found_from_its_tool_to_its_record_and_the_chains_hold(chromium, http):
    run = http.post("/v1/agents/assistant/triggers?wait=30", json={"focus": "for the ledger"}).json()["run_id"]
    with opened(chromium, http) as page:
        page.goto(f"{http.base_url}/console/ledger")
        page.get_by_label("Run", exact=True).fill(run)
        page.get_by_label("Kind").select_option("run")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("table.list tbody tr")).to_have_count(1)
        page.locator("table.list summary").click()
        expect(page.locator("table.list .text")).to_contain_text('"previous_hash"')
        page.get_by_role("button", name="Verify its chains").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("The ledger's chains")
        expect(page.locator(".head .status")).to_have_text("they hold")


def test_without_scripts_a_narrow_screen_leads_to_every_part(chromium, http):
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 360, "height": 800})
    page = context.new_page()
    page.goto(f"{http.base_url}/console/sign-in")
    page.get_by_label("Access key").fill(http.headers["Authorization"].removeprefix("Bearer "))
    page.get_by_role("button", name="Sign in").click()
    navigation = page.get_by_role("navigation", name="Console")
    for name in ("Webhooks", "Ledger", "Tools", "Access", "Settings"):
        navigation.locator("summary").click()
        navigation.get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
        expect(navigation.locator("summary")).to_contain_text(name)
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (3840, "light")])
def test_every_page_fits_and_names_what_it_has(chromium, http, width, scheme):
    http.post("/v1/agents/cashier:wide/triggers", json={"callback_url": f"https://shop.example.org/{'e' * 300}"})
    http.post(
        "/v1/tenants", json={"tenant": f"t{width}", "name": "客户" * 40, "quotas": {"open_runs": 10**12, "agents": 5}}
    )
    http.post("/v1/keys", json={"name": "n" * 100, "scopes": ["developer"], "agents": ["agent:" + "x" * 60 + ":*"]})
    delivery = http.get("/v1/deliveries").json()["deliveries"][0]["delivery_id"]
    paths = [
        "webhooks", f"webhooks/deliveries/{delivery}", "webhooks/callbacks", "ledger", "ledger?kind=warning", "ledger/verification",
        "tools", "keys", "tenants", f"tenants/t{width}", "settings",
    ]  # fmt: skip
    with opened(chromium, http, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        for path in paths:
            page.goto(f"{http.base_url}/console/{path}")
            page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.locator("h1").count() == 1, path
            assert page.evaluate(NAMELESS) == [], path
            assert page.evaluate(PALE) == [], path
