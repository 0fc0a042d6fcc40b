"""What browsers are told, with every kind of response."""

from __future__ import annotations

import httpx
import pytest

from owlclaw_ray.kernel.system_clock import SystemClock
from serve.api import build_api
from serve.security_headers import OF_DATA


def headers(response):
    return {name: response.headers.get(name) for name in OF_DATA}


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/v1/runs", "localhost", 200),
        ("/healthz", "localhost", 200),
        ("/openapi.json", "localhost", 200),
        ("/v1/none", "localhost", 404),
        ("/v1/runs", "evil.example", 421),
    ],
)
async def test_responses_are_neither_guessed_at_nor_kept_nor_framed(http, path, host, status):
    response = await http.get(path, headers={"Host": host})

    assert (response.status_code, headers(response)) == (status, OF_DATA)
    assert "strict-transport-security" not in response.headers


async def test_what_says_how_long_it_may_be_kept_stays(runtime, http):
    accepted = (await http.post("/v1/agents/assistant/triggers", json={})).json()

    async with http.stream("GET", f"/v1/runs/{accepted['run_id']}/events") as stream:
        kept = stream.headers.get_list("cache-control")
    assert len(kept) == 1


async def test_under_tls_browsers_are_to_use_nothing_else(api):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="https://localhost:8700") as https:
        response = await https.get("/healthz")

    assert response.headers["strict-transport-security"] == "max-age=31536000"


async def test_the_page_of_documentation_may_load_its_scripts_and_is_there_on_loopback_only(runtime, http):
    page = await http.get("/docs")
    api = build_api(runtime, clock=SystemClock(), body_limit_bytes=1_000, is_local=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost") as elsewhere:
        gone, document = await elsewhere.get("/docs"), await elsewhere.get("/openapi.json")

    policy = page.headers["content-security-policy"]
    for kind in ("script-src", "style-src"):
        [allowed] = [each for each in policy.split("; ") if each.startswith(kind)]
        assert "https://cdn.jsdelivr.net" in allowed
        assert "https://cdn.jsdelivr.net" in page.text
    assert (page.status_code, gone.status_code, document.status_code) == (200, 404, 200)
