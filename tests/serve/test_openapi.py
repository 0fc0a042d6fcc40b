from __future__ import annotations

import httpx
import jsonschema
import pytest

from tests.serve.double import MemoryRuntime

METHODS = {"get", "post"}


@pytest.fixture
async def document(http: httpx.AsyncClient) -> dict:
    return (await http.get("/openapi.json")).json()


def check(document: dict, path: str, method: str, response: httpx.Response) -> None:
    documented = document["paths"][path][method]["responses"][str(response.status_code)]["content"]
    schema = documented[response.headers["content-type"]]["schema"]
    jsonschema.validate(response.json(), {**schema, "components": document["components"]})


def example_of(document: dict, content: dict) -> object:
    if "example" in content:
        return content["example"]
    (reference,) = content["examples"].values()
    return document["components"]["examples"][reference["$ref"].rpartition("/")[2]]["value"]


async def test_every_operation_documents_its_responses_with_examples_that_fit(document: dict):
    operations = [op for path in document["paths"].values() for method, op in path.items() if method in METHODS]

    assert len(operations) == 30
    for operation in operations:
        assert operation["summary"]
        for response in operation["responses"].values():
            for content in response["content"].values():
                schema = {**content["schema"], "components": document["components"]}
                jsonschema.validate(example_of(document, content), schema)


async def test_every_operation_on_data_documents_problems(document: dict):
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/v1/"):
                assert "application/problem+json" in operation["responses"]["503"]["content"]


async def test_the_examples_of_trigger_bodies_are_accepted(http: httpx.AsyncClient, document: dict):
    body = document["paths"]["/v1/agents/{agent}/triggers"]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        jsonschema.validate(example["value"], body["schema"])
        response = await http.post("/v1/agents/assistant/triggers", json=example["value"])
        assert response.status_code == 202


async def test_responses_are_what_the_document_says(http: httpx.AsyncClient, document: dict, runtime: MemoryRuntime):
    triggers = "/v1/agents/{agent}/triggers"
    accepted = await http.post("/v1/agents/assistant/triggers")
    run_id = accepted.json()["run_id"]

    check(document, triggers, "post", accepted)
    check(document, triggers, "post", await http.post("/v1/agents/assistant/triggers?wait=1"))
    check(document, triggers, "post", await http.post("/v1/agents/broken/triggers"))
    check(document, triggers, "post", await http.post("/v1/agents/assistant/triggers", content=b"{"))
    await http.post("/v1/agents/patient/triggers")
    check(document, triggers, "post", await http.post("/v1/agents/patient/triggers", json={"busy": "reject"}))
    runtime.full_at = 1
    check(document, triggers, "post", await http.post("/v1/agents/assistant/triggers"))
    check(document, "/v1/runs", "get", await http.get("/v1/runs"))
    check(document, "/v1/runs", "get", await http.get("/v1/runs?limit=0"))
    check(document, "/v1/runs/{run_id}", "get", await http.get(f"/v1/runs/{run_id}?events=true"))
    check(document, "/v1/runs/{run_id}", "get", await http.get("/v1/runs/run_x"))
    check(document, "/v1/runs/{run_id}/cancel", "post", await http.post(f"/v1/runs/{run_id}/cancel"))
    check(document, "/v1/agents", "get", await http.get("/v1/agents"))
    check(document, "/v1/agents/{agent}", "get", await http.get("/v1/agents/assistant"))
    check(document, "/v1/agents/{agent}", "get", await http.get("/v1/agents/nobody"))
    check(document, "/v1/agents/{agent}/memories", "get", await http.get("/v1/agents/assistant/memories"))
    check(document, "/v1/agents/{agent}/artifacts", "get", await http.get("/v1/agents/assistant/artifacts"))
    body = {"focus": "看一下", "cron_expression": "@daily", "timezone": "Asia/Shanghai"}
    made = await http.post("/v1/agents/assistant/schedules", json=body)
    schedule = f"/v1/schedules/{made.json()['schedule_id']}"
    times = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}
    check(document, "/v1/agents/{agent}/schedules", "post", made)
    check(document, "/v1/agents/{agent}/schedules", "get", await http.get("/v1/agents/assistant/schedules"))
    check(document, "/v1/schedules", "get", await http.get("/v1/schedules"))
    check(document, "/v1/schedules/{schedule_id}", "get", await http.get(schedule))
    backfill = await http.post(f"{schedule}/backfill", json=times)
    check(document, "/v1/schedules/{schedule_id}/backfill", "post", backfill)
    check(document, "/v1/schedules/{schedule_id}/ticks", "get", await http.get(f"{schedule}/ticks"))
    for verb in ("pause", "resume", "cancel", "pause"):
        check(document, f"/v1/schedules/{{schedule_id}}/{verb}", "post", await http.post(f"{schedule}/{verb}"))
    check(document, "/v1/agents/{agent}/schedules", "post", await http.post("/v1/agents/assistant/schedules"))
    check(document, "/v1/mcp", "get", await http.get("/v1/mcp"))
    check(document, "/v1/agents/{agent}/ledger", "get", await http.get("/v1/agents/assistant/ledger"))
    check(document, "/v1/ledger", "get", await http.get("/v1/ledger"))
    check(document, "/v1/ledger", "get", await http.get("/v1/ledger?since=yesterday"))
    check(document, "/v1/ledger/verification", "get", await http.get("/v1/ledger/verification"))
    check(document, "/healthz", "get", await http.get("/healthz"))
    check(document, "/readyz", "get", await http.get("/readyz"))


async def test_the_documentation_page_is_served(http: httpx.AsyncClient):
    assert "/openapi.json" in (await http.get("/docs")).text
