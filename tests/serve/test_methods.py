"""Which methods paths take, and what HEAD is answered."""

from __future__ import annotations

import httpx
import pytest

MEMORIES = "/v1/agents/assistant/memories"
ALLOWED = {
    "/v1/runs": "GET, HEAD",
    "/v1/agents/assistant/triggers": "POST",
    "/v1/triggers:batch": "POST",
    "/v1/agents/assistant/schedules": "GET, HEAD, POST",
    MEMORIES: "GET, HEAD, POST",
    f"{MEMORIES}/mem_1": "DELETE, GET, HEAD, PATCH",
    f"{MEMORIES}/archive": "POST",
    f"{MEMORIES}/reindex": "POST",
    f"{MEMORIES}/search": "GET, HEAD",
    "/healthz": "GET, HEAD",
    "/openapi.json": "GET, HEAD",
}


@pytest.mark.parametrize("path", ALLOWED)
@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "TRACE", "QUERY"])
async def test_a_method_that_a_path_does_not_take_is_answered_with_all_that_it_takes(http, path, method):
    response = await http.request(method, path)

    assert (response.status_code, response.headers["allow"]) == (405, ALLOWED[path])
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(("method", "name"), [("GET", "archive"), ("DELETE", "reindex"), ("PATCH", "search")])
async def test_what_has_a_name_of_its_own_is_no_id(http, method, name):
    assert (await http.request(method, f"{MEMORIES}/{name}")).status_code == 405


async def test_every_path_of_the_document_takes_the_methods_of_the_document(http):
    document = (await http.get("/openapi.json")).json()
    for path, operations in document["paths"].items():
        documented = {method.upper() for method in operations}

        allowed = set((await http.request("TRACE", path)).headers["allow"].split(", "))

        assert allowed - {"HEAD"} == documented, path


@pytest.mark.parametrize("path", ["/healthz", "/v1/runs", "/v1/runs/run_none", "/metrics", "/docs"])
async def test_head_is_answered_as_get_without_the_body(http, path):
    full, head = await http.get(path), await http.head(path)

    assert (head.status_code, head.content) == (full.status_code, b"")
    assert head.headers["content-type"] == full.headers["content-type"]


async def test_head_of_the_events_of_a_run_that_goes_on_ends(server):
    async with httpx.AsyncClient(base_url=server) as http:
        run_id = (await http.post("/v1/agents/patient/triggers")).json()["run_id"]

        response = await http.head(f"/v1/runs/{run_id}/events", timeout=60)

    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_an_unknown_path_is_unknown_whatever_the_method(http):
    assert [(await http.request(method, "/v1/nothing")).status_code for method in ("GET", "PUT", "HEAD")] == [404] * 3
