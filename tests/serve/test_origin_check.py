"""A web page cannot use the server through its visitor's browser."""

from __future__ import annotations

import httpx
import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.kernel.system_clock import SystemClock
from serve.api import build_api

ROUTES = [("GET", "/v1/runs"), ("GET", "/v1/ledger"), ("POST", "/v1/agents/assistant/triggers"), ("GET", "/healthz")]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8700",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "[::2]",
        "[",
        "0.0.0.0",
    ],
)
async def test_a_name_that_is_not_the_servers_is_misdirected(http, method, path, host):
    response = await http.request(method, path, headers={"Host": host}, content=b"{}")

    assert (response.status_code, response.json()["type"]) == (421, "urn:owlclaw:problem:misdirected-request")


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:8700", "Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_a_page_of_another_origin_is_forbidden(http, method, path, headers):
    sent = {"Host": "localhost:8700", "Content-Type": "text/plain", **headers}
    response = await http.request(method, path, headers=sent, content=b"{}")

    assert (response.status_code, response.json()["type"]) == (403, "urn:owlclaw:problem:foreign-origin")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8700"},
        {"Host": "127.9.9.9"},
        {"Host": "[::1]:8700"},
        {"Host": "LOCALHOST:1"},
        {"Host": "localhost:8700", "Origin": "http://localhost:8700", "Sec-Fetch-Site": "same-origin"},
        {"Host": "localhost:8700", "Sec-Fetch-Site": "none"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    ],
)
async def test_programs_on_this_machine_and_the_servers_own_pages_are_answered(http, headers):
    response = await http.post("/v1/agents/assistant/triggers", headers=headers, content=b'{"payload": 1}')

    assert response.status_code == 202


@pytest.fixture
async def ask(runtime):
    """Ask an API that has been made with these options."""

    async def ask(host, path="/v1/runs", client=("127.0.0.1", 1), key=None, **options):
        api = build_api(runtime, clock=SystemClock(), body_limit_bytes=1_000, **options)
        transport = httpx.ASGITransport(api, client=client)
        headers = {"Host": host} | ({} if key is None else {"Authorization": f"Bearer {key}"})
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return (await http.get(path, headers=headers)).status_code

    return ask


async def test_a_proxy_in_front_is_known_by_the_names_that_settings_give_it(runtime, ask):
    hosts, key = ("Agents.Example.com",), (await runtime.keys.create(LOCAL, KeyRequest("ci", ("viewer",)))).text

    assert await ask("agents.example.com", key=key, hosts=hosts) == 200
    assert await ask("example.com", key=key, hosts=hosts) == 421


async def test_without_any_key_only_this_machine_itself_is_let_in(ask):
    hosts = ("agents.example.com",)

    assert await ask("localhost", hosts=hosts) == 200
    assert await ask("agents.example.com", hosts=hosts) == 401
    assert await ask("localhost", client=("10.0.0.7", 1), hosts=hosts) == 401
    assert await ask("agents.example.com", "/healthz", hosts=hosts) == 200


async def test_a_server_that_others_reach_may_be_called_by_any_address_but_by_no_other_name(ask):
    assert [await ask(host, "/healthz", is_local=False) for host in ("10.0.0.1:8700", "[fd00::1]", "evil.example")] == [
        200,
        200,
        421,
    ]
