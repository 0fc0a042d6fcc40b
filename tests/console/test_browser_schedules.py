"""Schedules and the fleet in a real browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.console.browsing import NAMELESS, PALE, opened
from tests.contract.conftest import server  # noqa: F401 - a fixture

pytestmark = pytest.mark.browser


def made(http, agent, **fields):
    answer = http.post(f"/v1/agents/{agent}/schedules", json=fields)
    return answer.raise_for_status().json()["schedule_id"]


def test_a_schedule_is_made_paused_and_backfilled_by_somebody_who_sees_first_what_would_run(chromium, http):
    with opened(chromium, http, timezone_id="UTC") as page:
        page.goto(f"{http.base_url}/console/schedules/new")
        page.get_by_label("Agent").fill("assistant:nightly")
        page.get_by_label("Focus").fill("look at the orders")
        page.get_by_label("as cron expression").fill("0 * * * *")
        page.get_by_role("button", name="Make the schedule").click()
        expect(page.locator("#schedule .next li")).to_have_count(5)
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#schedule > .head .status")).to_have_text("paused")
        page.get_by_role("link", name="Backfill…").click()
        until = datetime.now(UTC).replace(minute=0) - timedelta(hours=1)  # noqa: TID251 - the server's own clock
        page.get_by_label("From").fill(f"{until - timedelta(hours=2):%Y-%m-%dT%H:%M}")
        page.get_by_label("To, included").fill(f"{until:%Y-%m-%dT%H:%M}")
        page.get_by_role("button", name="Show what would run").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Backfill: 3 runs")
        page.get_by_role("button", name="Queue 3 runs").click()

        expect(page.get_by_text("3 runs queued.")).to_be_visible()
        expect(page.locator(".tick.is-caught_up")).to_have_count(3)
        page.locator(".tick.is-caught_up").first.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("look at the orders")


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1280, "dark"), (3840, "light")])
def test_the_pages_of_schedules_and_of_the_fleet_fit_and_name_what_they_have(chromium, http, width, scheme):
    now = datetime.now(UTC)  # noqa: TID251 - the server's own clock
    found = made(http, f"assistant:{width}{'w' * 100}", focus="x" * 400, cron_expression="0 */3 * * *")
    span = {"since": f"{now - timedelta(days=9):%Y-%m-%dT%H:%M:%SZ}", "until": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
    http.post(f"/v1/schedules/{found}/backfill", json=span).raise_for_status()
    paths = [
        "schedules", "schedules?status=cancelled", "schedules/upcoming?hours=168", "schedules/new", f"schedules/{found}",
        f"schedules/{found}/backfill?since=2026-01-01T00:00&until=2026-01-03T00:00", "fleet",
    ]  # fmt: skip
    with opened(chromium, http, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        for path in paths:
            page.goto(f"{http.base_url}/console/{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.locator("h1").count() == 1, path
            assert page.evaluate(NAMELESS) == [], path
            assert page.evaluate(PALE) == [], path
