from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

import httpx
import jsonschema
import pytest
from msgspec import ValidationError

from owlclaw_ray.wire import BackfillRequest, Reindexed
from serve.errors import InvalidRequestError
from serve.examples import example_of
from serve.resource import body
from tests.serve.double import MemoryRuntime

METHODS = {"get", "post", "put", "patch", "delete"}
OPERATIONS = """
trigger_agent                POST   /v1/agents/{agent}/triggers                    TriggerRequest    Accepted or Run
trigger_agents               POST   /v1/triggers:batch                             BatchRequest      BatchResults
list_webhook_sources         GET    /v1/webhooks                                   -                 WebhookSources
receive_webhook              POST   /v1/webhooks/{source}                          -                 WebhookReceipt
list_deliveries              GET    /v1/deliveries                                 -                 Deliveries
get_delivery                 GET    /v1/deliveries/{delivery_id}                   -                 FullDelivery
redeliver_webhook            POST   /v1/deliveries/{delivery_id}/redelivery        -                 WebhookReceipt
list_callback_secrets        GET    /v1/callback-secrets                            -                 CallbackSecrets
list_callbacks               GET    /v1/callbacks                                  -                 Callbacks
get_callback                 GET    /v1/callbacks/{callback_id}                    -                 Callback
redeliver_callback           POST   /v1/callbacks/{callback_id}/redelivery         -                 Callback
list_runs                    GET    /v1/runs                                       -                 Runs
get_run                      GET    /v1/runs/{run_id}                              -                 Run
stream_run_events            GET    /v1/runs/{run_id}/events                       -                 -
cancel_run                   POST   /v1/runs/{run_id}/cancel                       -                 Run
score_run                    POST   /v1/runs/{run_id}/scores                       ScoreRequest      Score
get_usage                    GET    /v1/usage                                      -                 UsageReport
list_agents                  GET    /v1/agents                                     -                 Agents
get_agent                    GET    /v1/agents/{agent}                             -                 Agent
list_skills                  GET    /v1/agents/{agent}/skills                      -                 Skills
reload_agent                 POST   /v1/agents/{agent}/reload                      -                 Agent
list_artifacts               GET    /v1/agents/{agent}/artifacts                   -                 Artifacts
get_artifact                 GET    /v1/agents/{agent}/artifacts/{artifact_id}     -                 -
list_memories                GET    /v1/agents/{agent}/memories                    -                 Memories
create_memory                POST   /v1/agents/{agent}/memories                    MemoryRequest     Memory
search_memories              GET    /v1/agents/{agent}/memories/search             -                 FoundMemories
get_memory_stats             GET    /v1/agents/{agent}/memories/stats              -                 MemoryStats
get_memory_text              GET    /v1/agents/{agent}/memory.md                   -                 -
put_memory_text              PUT    /v1/agents/{agent}/memory.md                   -                 MemoryImported
get_archive_text             GET    /v1/agents/{agent}/memory.archive.md           -                 -
put_archive_text             PUT    /v1/agents/{agent}/memory.archive.md           -                 ArchiveImported
get_memory                   GET    /v1/agents/{agent}/memories/{memory_id}        -                 Memory
update_memory                PATCH  /v1/agents/{agent}/memories/{memory_id}        MemoryChange      Memory
delete_memory                DELETE /v1/agents/{agent}/memories/{memory_id}        -                 Memory
archive_memories             POST   /v1/agents/{agent}/memories/archive            ArchiveRequest    ArchivedMemories
reindex_memories             POST   /v1/agents/{agent}/memories/reindex            -                 Reindexed
list_schedules               GET    /v1/schedules                                  -                 Schedules
list_agent_schedules         GET    /v1/agents/{agent}/schedules                   -                 Schedules
create_schedule              POST   /v1/agents/{agent}/schedules                   ScheduleRequest   Schedule
get_schedule                 GET    /v1/schedules/{schedule_id}                    -                 Schedule
list_ticks                   GET    /v1/schedules/{schedule_id}/ticks              -                 Ticks
pause_schedule               POST   /v1/schedules/{schedule_id}/pause              -                 Schedule
resume_schedule              POST   /v1/schedules/{schedule_id}/resume             -                 Schedule
cancel_schedule              POST   /v1/schedules/{schedule_id}/cancel             -                 Schedule
ring_schedule                POST   /v1/schedules/{schedule_id}/ring               -                 Ring
backfill_schedule            POST   /v1/schedules/{schedule_id}/backfill           BackfillRequest   Backfill
list_approvals               GET    /v1/approvals                                  -                 Approvals
get_approval                 GET    /v1/approvals/{approval_id}                    -                 Approval
decide_approval              POST   /v1/approvals/{approval_id}/decision           DecisionRequest   Approval
list_ledger_records          GET    /v1/ledger                                     -                 Ledger
verify_ledger                GET    /v1/ledger/verification                        -                 LedgerVerification
list_ledger_heads            GET    /v1/ledger/heads                               -                 LedgerHeads
list_agent_ledger_records    GET    /v1/agents/{agent}/ledger                      -                 Ledger
list_secrets                 GET    /v1/secrets                                    -                 Secrets
set_secret                   PUT    /v1/secrets/{name}                             SecretRequest     Secret
delete_secret                DELETE /v1/secrets/{name}                             -                 Secret
rotate_secrets               POST   /v1/secrets:rotate                             -                 SecretRotation
rotate_all_secrets           POST   /v1/secrets:rotate-all                         -                 SecretRotation
list_mcp_servers             GET    /v1/mcp                                        -                 McpServers
list_nodes                   GET    /v1/nodes                                      -                 Nodes
drain_node                   POST   /v1/nodes/{node}/drain                         -                 Nodes
undrain_node                 POST   /v1/nodes/{node}/undrain                       -                 Nodes
list_keys                    GET    /v1/keys                                       -                 AccessKeys
get_key                      GET    /v1/keys/{key_id}                              -                 KeyDetails
create_key                   POST   /v1/keys                                       KeyRequest        IssuedKey
rotate_key                   POST   /v1/keys/{key_id}/rotate                       KeyRotation       IssuedKey
revoke_key                   POST   /v1/keys/{key_id}/revoke                       -                 AccessKey
list_tenants                 GET    /v1/tenants                                    -                 Tenants
get_tenant                   GET    /v1/tenants/{tenant}                           -                 TenantDetails
create_tenant                POST   /v1/tenants                                    TenantRequest     Tenant
update_tenant                PATCH  /v1/tenants/{tenant}                           TenantChange      Tenant
delete_tenant                DELETE /v1/tenants/{tenant}                           -                 Tenant
export_tenant                GET    /v1/tenants/{tenant}/export                    -                 -
get_liveness                 GET    /healthz                                       -                 Liveness
get_readiness                GET    /readyz                                        -                 Health
get_metrics                  GET    /metrics                                       -                 -
"""
"""What a generated client has: name, method and path, the component of the body, those of the answers."""


@pytest.fixture
async def document(http: httpx.AsyncClient) -> dict:
    return (await http.get("/openapi.json")).json()


def check(document: dict, path: str, method: str, response: httpx.Response) -> None:
    documented = document["paths"][path][method]["responses"][str(response.status_code)]["content"]
    schema = documented[response.headers["content-type"]]["schema"]
    jsonschema.validate(response.json(), {**schema, "components": document["components"]})


def shown_example(document: dict, content: dict) -> object:
    if "example" in content:
        return content["example"]
    (reference,) = content["examples"].values()
    return document["components"]["examples"][reference["$ref"].rpartition("/")[2]]["value"]


async def test_every_operation_documents_its_responses_with_examples_that_fit(document: dict):
    operations = [op for path in document["paths"].values() for method, op in path.items() if method in METHODS]

    assert len(operations) == 76
    for operation in operations:
        assert operation["summary"]
        for response in operation["responses"].values():
            for content in response["content"].values():
                schema = {**content["schema"], "components": document["components"]}
                jsonschema.validate(shown_example(document, content), schema)


def component(schema: dict) -> str:
    return schema.get("$ref", "").rpartition("/")[2]


def shapes(content: dict) -> list[str]:
    return [name for each in content.values() if (name := component(each["schema"]))]


def named(operation: dict, method: str, path: str) -> tuple[str, ...]:
    good = [shapes(each["content"]) for status, each in operation["responses"].items() if status[0] == "2"]
    answers = dict.fromkeys(name for names in good for name in names)
    body = shapes(operation.get("requestBody", {}).get("content", {}))
    return (operation["operationId"], method.upper(), path, *(body or ["-"]), " or ".join(answers) or "-")


async def test_operations_and_bodies_have_the_names_that_a_generated_client_should_have(document: dict):
    found = [named(op, method, path) for path, ops in document["paths"].items() for method, op in ops.items()]

    expected = [tuple(line.split(maxsplit=4)) for line in OPERATIONS.strip().splitlines()]
    assert sorted(found) == sorted(expected)
    assert len({name for name, *_ in found}) == len(found)


async def test_no_operation_and_no_component_is_named_by_default(document: dict):
    operations = [op["operationId"] for ops in document["paths"].values() for op in ops.values()]

    assert not [name for name in operations if re.search(r"_v\d|__|_(get|post|patch|delete|put)$", name)]
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", name) for name in document["components"]["schemas"])


def schemas_in(part: object) -> Iterator[dict]:
    if isinstance(part, list):
        for each in part:
            yield from schemas_in(each)
    elif isinstance(part, dict):
        yield part
        for key, each in part.items():
            if key not in {"example", "examples"}:
                yield from schemas_in(each)


async def test_each_enum_and_each_form_of_an_object_is_one_component(document: dict):
    schemas = list(schemas_in([document["paths"], document["components"]["schemas"]]))
    enums = Counter(tuple(each["enum"]) for each in schemas if isinstance(each.get("enum"), list))
    forms = [
        each
        for schema in document["components"]["schemas"].values()
        for each in schema.get("oneOf", schema.get("anyOf", ()))
    ]

    assert [enum for enum, times in enums.items() if times > 1] == []
    assert document["components"]["schemas"]["TriggerRequest"]["properties"]["busy"] == {
        "$ref": "#/components/schemas/BusyPolicy",
        "default": "enqueue",
        "description": "one of enqueue, reject, coalesce, interrupt",
    }
    assert forms
    assert all(each.keys() == {"$ref"} for each in forms)


async def test_every_reference_of_the_document_leads_somewhere(document: dict):
    references = set(re.findall(r"#/components/(\w+)/(\w+)", json.dumps(document)))

    assert references
    assert all(name in document["components"][kind] for kind, name in references)


async def test_every_operation_on_data_documents_problems(document: dict):
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path.startswith("/v1/"):
                assert "application/problem+json" in operation["responses"]["503"]["content"]


async def test_the_examples_of_trigger_bodies_are_accepted(http: httpx.AsyncClient, document: dict):
    body = document["paths"]["/v1/agents/{agent}/triggers"]["post"]["requestBody"]["content"]["application/json"]
    for example in body["examples"].values():
        jsonschema.validate(example["value"], {**body["schema"], "components": document["components"]})
        response = await http.post("/v1/agents/assistant/triggers", json=example["value"])
        assert response.status_code == 202
    batch = document["paths"]["/v1/triggers:batch"]["post"]["requestBody"]["content"]["application/json"]["example"]
    results = (await http.post("/v1/triggers:batch", json=batch)).json()["results"]
    assert [each["status"] for each in results] == [202, 202]


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
    check(document, "/v1/agents/{agent}/skills", "get", await http.get("/v1/agents/assistant/skills"))
    check(document, "/v1/agents/{agent}/skills", "get", await http.get("/v1/agents/broken/skills"))
    check(document, "/v1/agents/{agent}/reload", "post", await http.post("/v1/agents/assistant/reload"))
    check(document, "/v1/agents/{agent}/reload", "post", await http.post("/v1/agents/broken/reload"))
    check(document, "/v1/agents/{agent}/memories", "get", await http.get("/v1/agents/assistant/memories"))
    memories = "/v1/agents/{agent}/memories"
    ours = memories.format(agent="assistant")
    made = await http.post(ours, json={"content": "The owner is away."})
    memory_id = made.json()["memory_id"]
    check(document, memories, "post", made)
    check(document, memories, "post", await http.post(ours, json={"content": " "}))
    check(document, f"{memories}/search", "get", await http.get(f"{ours}/search?query=owner"))
    check(document, f"{memories}/stats", "get", await http.get(f"{ours}/stats"))
    text = "/v1/agents/{agent}/memory.md"
    check(document, text, "put", await http.put(text.format(agent="assistant"), content=b"## tea"))
    check(document, text, "put", await http.put(text.format(agent="assistant"), headers={"If-Match": "x"}))
    archive = "/v1/agents/{agent}/memory.archive.md"
    check(document, archive, "put", await http.put(archive.format(agent="assistant"), content=b"## tea"))
    check(document, f"{memories}/reindex", "post", await http.post(f"{ours}/reindex"))
    one = f"{memories}/{{memory_id}}"
    check(document, one, "get", await http.get(f"{ours}/{memory_id}"))
    check(document, one, "patch", await http.patch(f"{ours}/{memory_id}", json={"tags": ["owner"]}))
    check(document, f"{memories}/archive", "post", await http.post(f"{ours}/archive", json={"memory_ids": [memory_id]}))
    check(document, one, "delete", await http.delete(f"{ours}/{memory_id}"))
    check(document, one, "delete", await http.delete(f"{ours}/{memory_id}"))
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
    runtime.full_at = None
    batch = {"triggers": [{"agent": "assistant"}, {"agent": "nobody"}]}
    check(document, "/v1/triggers:batch", "post", await http.post("/v1/triggers:batch", json=batch))
    check(document, "/v1/webhooks", "get", await http.get("/v1/webhooks"))
    mac = "sha256=20d1dabccf85a1f63ceaa168d8807b55775d7d61c083080a4fd09c45eb888409"
    hook = {"headers": {"X-Hub-Signature-256": mac}}
    body = b'{"action": "opened", "issue": {"number": 17}}'
    sent = await http.post("/v1/webhooks/github", content=body, **hook)
    assert sent.status_code == 202
    check(document, "/v1/webhooks/{source}", "post", sent)
    unmapped = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    hook = {"headers": {"X-Hub-Signature-256": unmapped}}
    check(
        document,
        "/v1/webhooks/{source}",
        "post",
        await http.post("/v1/webhooks/github", content=b"Hello, World!", **hook),
    )
    check(document, "/v1/webhooks/{source}", "post", await http.post("/v1/webhooks/github"))
    check(document, "/v1/deliveries", "get", await http.get("/v1/deliveries"))
    check(document, "/v1/deliveries/{delivery_id}", "get", await http.get("/v1/deliveries/whd_2"))
    again = "/v1/deliveries/{delivery_id}/redelivery"
    check(document, again, "post", await http.post("/v1/deliveries/whd_1/redelivery"))
    check(document, again, "post", await http.post("/v1/deliveries/whd_2/redelivery"))
    scores = "/v1/runs/{run_id}/scores"
    said = {"name": "helpful", "value": 0.9}
    check(document, scores, "post", await http.post(f"/v1/runs/{run_id}/scores", json=said))
    check(document, scores, "post", await http.post(f"/v1/runs/{run_id}/scores", json={**said, "name": "refused"}))
    check(document, scores, "post", await http.post(f"/v1/runs/{run_id}/scores", json={**said, "value": []}))
    check(document, "/v1/callbacks", "get", await http.get("/v1/callbacks"))
    check(document, "/v1/callbacks/{callback_id}", "get", await http.get("/v1/callbacks/cb_1"))
    again = "/v1/callbacks/{callback_id}/redelivery"
    check(document, again, "post", await http.post("/v1/callbacks/cb_1/redelivery"))
    check(document, again, "post", await http.post("/v1/callbacks/cb_2/redelivery"))
    secret = "/v1/secrets/{name}"
    check(document, secret, "put", await http.put("/v1/secrets/CRM_TOKEN", json={"value": "hush-hush"}))
    check(document, secret, "put", await http.put("/v1/secrets/CRM_TOKEN", json={}))
    check(document, "/v1/secrets", "get", await http.get("/v1/secrets"))
    check(document, "/v1/secrets:rotate", "post", await http.post("/v1/secrets:rotate"))
    check(document, secret, "delete", await http.delete("/v1/secrets/CRM_TOKEN"))
    check(document, secret, "delete", await http.delete("/v1/secrets/CRM_TOKEN"))
    check(document, "/v1/mcp", "get", await http.get("/v1/mcp"))
    check(document, "/v1/agents/{agent}/ledger", "get", await http.get("/v1/agents/assistant/ledger"))
    check(document, "/v1/ledger", "get", await http.get("/v1/ledger"))
    check(document, "/v1/ledger", "get", await http.get("/v1/ledger?since=yesterday"))
    check(document, "/v1/ledger/verification", "get", await http.get("/v1/ledger/verification"))
    check(document, "/healthz", "get", await http.get("/healthz"))
    check(document, "/readyz", "get", await http.get("/readyz"))


async def test_the_documentation_page_is_served(http: httpx.AsyncClient):
    assert "/openapi.json" in (await http.get("/docs")).text


@pytest.mark.parametrize(
    ("example", "problem"),
    [({"focus": "look around"}, "is missing"), ({"since": "yesterday", "until": "2026-11-03T00:00:00Z"}, "yesterday")],
)
def test_an_example_of_a_body_that_would_be_refused_fails_at_import(example: dict, problem: str):
    with pytest.raises(InvalidRequestError, match=problem):
        body(BackfillRequest, {"day": example})


@pytest.mark.parametrize("said", [{"indexed": "many"}, {"count": 3}])
def test_an_example_that_does_not_fit_its_type_fails_at_import(said: dict):
    with pytest.raises((TypeError, ValidationError)):
        example_of(Reindexed, said)
