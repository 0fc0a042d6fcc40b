"""Which methods and query parameters paths take, and what HEAD is answered."""

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


OF_OTHERS = {"/healthz", "/readyz", "/metrics", "/v1/webhooks/{source}"}


async def test_every_operation_refuses_a_parameter_that_it_does_not_declare_and_names_those_that_it_does(http):
    """Most of all those that look like filters: what was asked for and not done is never answered as if it were."""
    document = (await http.get("/openapi.json")).json()
    for path in document["paths"].keys() - OF_OTHERS:
        for method, operation in document["paths"][path].items():
            known = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]

            response = await http.request(method, f"{path}?limitt=1&agnt=a&agnt=b")

            assert response.status_code == 422, (method, path)
            [first, second] = response.json()["problems"]
            assert (first["where"], second["where"]) == ("query limitt", "query agnt")
            assert first["fix"] == (f"known parameters: {', '.join(known)}" if known else "there are none here")
            assert "422" in operation["responses"], (method, path)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_probes_take_what_their_callers_append(http, path):
    assert (await http.get(f"{path}?collect[]=a&x=1")).status_code == 200


async def test_a_webhook_is_not_lost_for_a_parameter_that_its_sender_appends(http):
    assert (await http.post("/v1/webhooks/nobody?x=1")).status_code == 401


async def test_declared_parameters_pass_whoever_reads_them(http):
    for path in ("/v1/runs?limit=1", "/v1/runs/run_none/events", f"{MEMORIES}/search?query=a&tag=x&tag=y", "/docs?x=1"):
        assert (await http.get(path)).status_code in {200, 404}, path
    assert (await http.post("/v1/agents/assistant/triggers?wait=0")).is_success
    assert (await http.head("/v1/runs?limitt=1")).status_code == 422


async def test_the_ledger_of_one_agent_is_had_by_a_parameter_too(http):
    for agent in ("assistant", "assistant:alice"):
        await http.post(f"/v1/agents/{agent}/triggers?wait=5")
    path = (await http.get("/v1/agents/assistant/ledger")).json()
    everything = (await http.get("/v1/ledger")).json()
    by_parameter = (await http.get("/v1/ledger?agent=assistant")).json()

    assert by_parameter == path
    assert by_parameter["records"]
    assert (await http.get("/v1/ledger?agent=nobody-ever")).json()["records"] == []
    assert by_parameter != everything
    assert (await http.get("/v1/ledger?agent=a%20b")).status_code == 422
