"""Signing in at an issuer in a real browser, over real HTTP on both sides."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from owlclaw_ray.domain.issuer import SignInOptions
from owlclaw_ray.kernel.system_clock import SystemClock
from tests.console.accessibility import violations
from tests.console.test_issuer_sign_in import signing_in, trusted
from tests.openid_provider import serving_provider
from tests.serve.conftest import serving

pytestmark = pytest.mark.browser


def test_a_person_signs_in_at_the_issuer_and_comes_back_to_the_page(chromium, api, runtime):
    clock = SystemClock()
    with serving_provider() as idp, serving(api) as url:
        signing_in(runtime, clock, trusted(idp), options=SignInOptions(url, "s" * 32))
        idp.redirect_uris, idp.asks_people = {f"{url}/console/sign-in/idp/callback"}, True
        context = chromium.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(60_000)
        page = context.new_page()
        problems: list[str] = []
        page.on("console", lambda said: problems.append(said.text) if said.type in {"error", "warning"} else None)
        page.goto(f"{url}/console/agents/assistant")
        assert [each for scheme in ("light", "dark") for each in violations(page, scheme)] == []

        page.get_by_role("link", name="Sign in at idp").click()
        page.get_by_role("link", name="Continue as Ada").click()

        page.wait_for_url(f"{url}/console/agents/assistant")
        expect(page.get_by_text("Ada Lovelace")).to_be_visible()
        assert page.evaluate("document.cookie") == ""
        page.get_by_label("Focus").fill("from a session")
        page.get_by_role("button", name="Trigger").click()
        page.wait_for_url("**/console/runs/*")
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("link", name="Sign in at idp").click()
        back = page.get_by_role("link", name="Continue as Ada").get_attribute("href")
        page.go_back()
        page.get_by_role("link", name="Sign in at idp").click()
        page.goto(back)
        expect(page.get_by_role("alert")).to_contain_text("begin again")
        assert [each for scheme in ("light", "dark") for each in violations(page, scheme)] == []
        context.close()
    assert [each for each in problems if "401" not in each] == []
