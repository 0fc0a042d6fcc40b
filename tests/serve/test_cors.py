"""Pages of listed origins may use the server with a key, and those of others not at all."""

from __future__ import annotations

import httpx
import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.kernel.system_clock import SystemClock
from serve.api import build_api

CONSOLE = "https://console.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
TRIGGERS = "/v1/agents/assistant/triggers"


@pytest.fixture
async def http(runtime):
    api = build_api(runtime, clock=SystemClock(), body_limit_bytes=1_000, origins=(CONSOLE,))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost:8700") as client:
        yield client


async def test_a_listed_origin_may_ask_first_and_then_send_its_key(http, runtime):
    asked = await http.options(TRIGGERS, headers={"Origin": CONSOLE, **PREFLIGHT})
    key = (await runtime.keys.create(LOCAL, KeyRequest("console", ("operator",)))).text
    sent = {"Origin": CONSOLE, "Sec-Fetch-Site": "cross-site", "Authorization": f"Bearer {key}"}
    answered = await http.post(TRIGGERS, json={}, headers=sent)

    assert (asked.status_code, answered.status_code) == (200, 202)
    for response in (asked, answered):
        assert response.headers["access-control-allow-origin"] == CONSOLE
        assert "access-control-allow-credentials" not in response.headers
    assert "authorization" in asked.headers["access-control-allow-headers"].lower()
    assert "Origin" in answered.headers["vary"]
    assert "Location" in answered.headers["access-control-expose-headers"]


async def test_a_listed_origin_without_a_key_is_nobody_even_while_there_are_no_keys(http):
    refused = await http.post(TRIGGERS, json={}, headers={"Origin": CONSOLE})

    assert (refused.status_code, (await http.post(TRIGGERS, json={})).status_code) == (401, 202)
    assert refused.headers["access-control-allow-origin"] == CONSOLE, "the page can read why"


@pytest.mark.parametrize(
    "origin",
    ["http://console.example.com", f"{CONSOLE}:444", f"{CONSOLE}.evil.example", "https://evil.example", "null"],
)
async def test_other_origins_are_told_nothing(http, origin):
    for response in (
        await http.options(TRIGGERS, headers={"Origin": origin, **PREFLIGHT}),
        await http.get("/v1/runs", headers={"Origin": origin}),
    ):
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers


async def test_a_request_without_an_origin_from_another_site_is_refused_where_some_are_listed(http):
    assert (await http.get("/v1/runs", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 403
