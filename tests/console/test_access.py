"""For whom each page and each form of the console is, and that only a page of ours can send a form."""

from __future__ import annotations

import re
from functools import cache
from typing import cast

import httpx
import pytest
from starlette.routing import Route

from console.surface import build
from owlclaw_ray.domain.principal import LOCAL, SCOPES
from owlclaw_ray.ids import KeyId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runtime.api import Runtime
from owlclaw_ray.testing.clock import ManualClock
from serve.resource import SECURITY_SCHEME
from serve.streams import OpenRequestLimit
from serve.surfaces import Surroundings
from tests.console.conftest import Browser, issued, staged, token_of
from tests.serve.double import MemoryRuntime
from tests.serve.test_access_gate import including

PUBLIC = {
    "GET /console",
    "GET /console/sign-in",
    "GET /console/sign-in/{issuer}",
    "GET /console/sign-in/{issuer}/callback",
    "GET /console/static/{name}",
    "POST /console/sign-in",
    "POST /console/sign-in/codes",
    "POST /console/sign-out",
}


@cache
def operations() -> dict[str, str]:
    """The scope of each route of the console; empty for public ones."""
    runtime = cast("Runtime", staged()[0])
    surface = build(Surroundings(runtime, SystemClock(), OpenRequestLimit(1), 1.0))
    found = {}
    for route in surface.router().routes:
        assert isinstance(route, Route)
        scopes = [scope for each in route.openapi_extra["security"] for scope in each[SECURITY_SCHEME]]
        found |= {f"{method} {route.path}": "".join(scopes) for method in route.methods}
    return found


GUARDED = sorted(each for each in operations().items() if each[1])
PAGES = [each for each in GUARDED if each[0].startswith("GET")]
FORMS = [each for each in GUARDED if each[0].startswith("POST")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> MemoryRuntime:
    return MemoryRuntime(clock)


def filled(operation: str) -> str:
    return re.sub(r"\{\w+\}", "some", operation.split()[1].replace("{agent}", "assistant"))


def test_every_route_declares_a_scope_but_for_those_that_let_people_in():
    found = operations()

    assert {operation for operation, scope in found.items() if not scope} == PUBLIC
    assert {scope for scope in found.values() if scope} <= SCOPES
    assert not [operation for operation, scope in FORMS if scope.endswith(":read")]


def test_pages_are_no_part_of_the_api_document():
    assert not [path for path in staged()[1].openapi()["paths"] if path.startswith("/console")]


@pytest.mark.parametrize(("operation", "scope"), PAGES)
async def test_a_page_is_for_sessions_of_keys_with_its_scope_and_leads_others_to_where_one_signs_in(
    browser, runtime, operation, scope
):
    await issued(runtime, "admin")

    led = await browser.get(
        f"{filled(operation)}?status=failed" if operation == "GET /console/runs" else filled(operation)
    )
    assert led.status_code == 303
    assert led.headers["location"].startswith(f"/console/sign-in?next={filled(operation)}")
    assert "status%3Dfailed" in led.headers["location"] or operation != "GET /console/runs"

    await browser.sign_in(await issued(runtime, *(SCOPES - including(scope))))
    refused = await browser.get(filled(operation))
    assert (refused.status_code, scope in refused.text) == (403, True)
    assert refused.headers["content-type"].startswith("text/html")

    await browser.sign_in(await issued(runtime, scope))
    assert (await browser.get(filled(operation))).status_code not in {303, 401, 403}


@pytest.mark.parametrize(("operation", "scope"), FORMS)
async def test_a_form_is_for_sessions_of_keys_with_its_scope_and_nothing_is_done_for_others(
    browser, runtime, operation, scope
):
    await issued(runtime, "admin")
    refused = await browser.send_form(filled(operation), token="any")
    assert (refused.status_code, refused.headers["content-type"]) == (401, "text/html; charset=utf-8")

    await browser.sign_in(await issued(runtime, *(SCOPES - including(scope))))
    refused = await browser.send_form(filled(operation), token="any")
    assert (refused.status_code, scope in refused.text) == (403, True)


@pytest.mark.parametrize(
    "operation", [operation for operation, _ in FORMS] + ["POST /console/sign-in", "POST /console/sign-out"]
)
async def test_a_form_is_taken_only_from_a_page_of_ours_with_the_token_of_the_session(browser, runtime, operation):
    await browser.sign_in(await issued(runtime, "admin"))
    token, path = token_of((await browser.get("/console/approvals")).text), filled(operation)
    async with Browser(browser._transport.app) as stranger:
        await stranger.sign_in(await issued(runtime, "admin"))
        foreign = token_of((await stranger.get("/console/runs")).text)

    for fields in ({}, {"token": ""}, {"token": "0" * 64}, {"token": "é"}, {"token": foreign}):
        refused = await browser.send_form(path, **fields)
        assert (refused.status_code, "not sent by a page of this console" in refused.text) == (403, True)
    for headers in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": "http://localhost:9999"}):
        refused = await browser.post(path, data={"token": token}, headers=headers)
        assert refused.status_code == 403
    right = await browser.send_form(path, token=token)
    assert right.status_code != 403


async def test_on_a_machine_without_keys_nobody_signs_in_and_forms_are_guarded_all_the_same(browser, runtime):
    opened = await browser.get("/console/sign-in?next=/console/agents")
    assert (opened.status_code, opened.headers["location"]) == (303, "/console/agents")
    page = await browser.get("/console/agents/assistant")
    assert "Sign out" not in page.text

    assert (await browser.send_form("/console/agents/assistant/triggers", token="guess")).status_code == 403
    assert (await browser.get("/v1/runs")).json()["runs"] == []
    sent = await browser.send_form("/console/agents/assistant/triggers", token=token_of(page.text))
    assert sent.status_code == 303


async def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get_and_holds_for_the_console_alone(
    browser, runtime
):
    key = await issued(runtime, "admin")
    answer = await browser.sign_in(key)

    (cookie,) = [each for each in answer.headers.get_list("set-cookie") if "session" in each]
    assert cookie.startswith("owlclaw-session-8700=")
    for part in ("HttpOnly", "SameSite=lax", "Path=/console", "Max-Age=43200"):
        assert part in cookie
    assert key not in cookie
    assert key.split("_")[2] not in cookie
    session = browser.cookies["owlclaw-session-8700"]
    assert (await browser.get("/console/runs")).status_code == 200
    assert (await browser.get("/v1/runs", headers={"Cookie": f"owlclaw-session-8700={session}"})).status_code == 401


async def test_over_tls_the_session_is_bound_to_the_host(api, runtime):
    async with Browser(api) as browser:
        browser.base_url = httpx.URL("https://localhost:8700")
        page = await browser.get("/console/sign-in", headers={"Cookie": ""})
        await issued(runtime, "admin")
        page = await browser.get("/console/sign-in")
        visit = page.headers["set-cookie"]
        answer = await browser.post(
            "/console/sign-in",
            data={"token": token_of(page.text), "key": await issued(runtime, "admin")},
            headers={"Origin": "https://localhost:8700"},
        )
    cookie = answer.headers["set-cookie"]
    assert visit.startswith("__Host-owlclaw-visit=")
    assert "SameSite=strict" in visit
    assert cookie.startswith("__Host-owlclaw-session=")
    assert {"Secure", "HttpOnly", "Path=/"} <= {part.strip() for part in cookie.split(";")}


async def test_a_session_ends_within_five_seconds_when_its_key_is_revoked(browser, runtime, clock):
    key = await issued(runtime, "admin")
    await browser.sign_in(key)
    assert (await browser.get("/console/runs")).status_code == 200

    await runtime.keys.revoke(LOCAL, KeyId(key.split("_")[1]))
    await clock.advance(5)

    assert (await browser.get("/console/runs")).status_code == 303
    answer = await browser.get("/console/sign-in")
    assert (answer.status_code, "Access key" in answer.text) == (200, True)


async def test_signing_out_has_the_browser_forget_the_session(browser, runtime):
    await browser.sign_in(await issued(runtime, "admin"))

    left = await browser.fill("/console/runs", "/console/sign-out")

    assert (left.status_code, left.headers["location"]) == (303, "/console/sign-in")
    assert (await browser.get("/console/runs")).status_code == 303


async def test_what_is_no_key_begins_no_session_and_is_not_repeated(browser, runtime):
    await issued(runtime, "admin")

    for wrong in ("", "owl_nonsense", "<script>alert(1)</script>"):
        refused = await browser.fill("/console/sign-in", "/console/sign-in", key=wrong)
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers
        assert not wrong or wrong not in refused.text


async def test_a_link_signs_in_once_and_no_lasting_secret_is_in_it(browser, runtime, api):
    key = await issued(runtime, "admin")
    asked = await browser.post("/console/sign-in/codes", headers={"Authorization": f"Bearer {key}"})
    code = asked.json()["code"]
    assert key not in code
    assert asked.json()["expires_in"] == 60

    async with Browser(api) as other:
        first = await browser.fill("/console/sign-in", "/console/sign-in", code=code, next="/console/agents")
        again = await other.fill("/console/sign-in", "/console/sign-in", code=code)
    assert (first.status_code, first.headers["location"]) == (303, "/console/agents")
    assert again.status_code == 401
    assert (await browser.get("/console/runs")).status_code == 200


async def test_a_link_signs_in_also_where_somebody_else_is_signed_in(browser, runtime):
    await browser.sign_in(await issued(runtime, "runs:read"))
    assert (await browser.get("/console/sign-in")).status_code == 303
    assert (await browser.get("/console/keys")).status_code == 403
    code = await runtime.sessions.code(await issued(runtime, "admin"))

    page = await browser.get("/console/sign-in?link=yes")
    answer = await browser.fill("/console/sign-in?link=yes", "/console/sign-in", code=code)

    assert 'id="sign-in"' in page.text
    assert answer.status_code == 303
    assert (await browser.get("/console/keys")).status_code == 200


async def test_a_code_is_for_who_has_a_key_and_not_needed_where_nobody_needs_one(browser, runtime):
    assert (await browser.post("/console/sign-in/codes")).json() == {"code": None, "expires_in": None}

    await issued(runtime, "admin")
    for headers in ({}, {"Authorization": "Bearer owl_nonsense"}, {"Authorization": "Basic x"}):
        refused = await browser.post("/console/sign-in/codes", headers=headers | {"Accept": "application/json"})
        assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")


@pytest.mark.parametrize(
    "place",
    [
        "https://evil.example",
        "//evil.example",
        "/v1/runs",
        "/consolex",
        "javascript:alert(1)",
        "/console/\\evil",
        "/console/runs\r\nX: 1",
    ],
)
async def test_signing_in_leads_to_pages_of_the_console_only(browser, runtime, place):
    key = await issued(runtime, "admin")

    answer = await browser.fill("/console/sign-in", "/console/sign-in", key=key, next=place)

    assert answer.headers["location"] == "/console"


async def test_a_link_of_another_site_leads_to_a_page_and_nothing_else_of_it_gets_anything(browser):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    assert (await browser.get("/console/runs", headers=link)).status_code == 200
    assert (await browser.get("/v1/runs", headers=link)).status_code == 403
    assert (await browser.get("/console/runs", headers=link | {"Sec-Fetch-Dest": "iframe"})).status_code == 403
    assert (await browser.get("/console/runs", headers=link | {"Sec-Fetch-Mode": "no-cors"})).status_code == 403
    assert (await browser.get("/console/runs", headers=link | {"Origin": "http://evil.example"})).status_code == 403
    assert (await browser.post("/console/triggers", headers=link)).status_code == 403
    assert (await browser.get("/console/runs", headers=link | {"Host": "evil.example"})).status_code == 421


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/runs",
        "/console/nothing",
        "/console/runs?unknown=1",
        "/console/runs/nothing",
        "/console/static/console.js",
        "/console/static/nothing",
        "/console/agents/NOT%20ONE",
    ],
)
async def test_every_answer_says_that_only_our_own_files_may_run(browser, path):
    policy = (await browser.get(path)).headers["content-security-policy"]

    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "form-action 'self'; base-uri 'none'; frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


async def test_a_failure_that_nobody_foresaw_is_a_page_too_and_says_nothing_of_the_inside(
    browser, runtime, monkeypatch
):
    async def fails(_where):
        raise RuntimeError("the inside")

    monkeypatch.setattr(runtime, "search_runs", fails)
    failed = await browser.get("/console/runs")

    assert (failed.status_code, failed.headers["content-type"]) == (500, "text/html; charset=utf-8")
    assert "the inside" not in failed.text
    assert "script-src 'self'" in failed.headers["content-security-policy"]


async def test_a_key_that_is_for_some_agents_meets_no_others(browser, runtime):
    ours = await runtime.submit(*_trigger("assistant:ours"))
    other = await runtime.submit(*_trigger("assistant:other"))
    await browser.sign_in(await issued(runtime, "operator", agents=("agent:assistant:ours",)))

    page = await browser.get("/console/runs")
    assert (page.status_code, "assistant:other" in page.text, "agent:assistant:ours" in page.text) == (200, False, True)
    assert ours.run_id in (await browser.get("/console/runs?agent=assistant:ours")).text
    assert (await browser.get("/console/runs?agent=assistant:other")).status_code == 403
    assert (await browser.get(f"/console/runs/{ours.run_id}")).status_code == 200
    for path in (
        f"/console/runs/{other.run_id}",
        f"/console/runs/{other.run_id}/entries/1",
        "/console/agents/assistant:other",
    ):
        assert (await browser.get(path)).status_code == 403
    assert "assistant:other" not in (await browser.get("/console/agents")).text


def _trigger(agent: str):
    from owlclaw_ray.domain.agent import AgentRef
    from owlclaw_ray.domain.trigger import Trigger, TriggerKind

    return AgentRef.parse(agent), Trigger(TriggerKind.API)


@pytest.mark.parametrize(
    ("scope", "place"),
    [
        ("runs:read", "runs"),
        ("agents:read", "agents"),
        ("approvals:decide", "approvals"),
        ("ledger:read", "ledger"),
        ("secrets:read", "runs"),
    ],
)
async def test_home_is_what_the_key_may_see(browser, runtime, scope, place):
    await issued(runtime, "admin")
    assert (await browser.get("/console")).headers["location"] == "/console/sign-in"
    await browser.sign_in(await issued(runtime, scope))

    assert (await browser.get("/console")).headers["location"] == f"/console/{place}"


async def test_whose_key_may_not_can_sign_in_with_another_one(browser, runtime):
    await browser.sign_in(await issued(runtime, "approvals:read"))

    left = await browser.fill("/console/runs", "/console/sign-out")

    assert (left.status_code, left.headers["location"]) == (303, "/console/sign-in")
