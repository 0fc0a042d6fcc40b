from __future__ import annotations

import httpx
import pytest

from owlclaw_ray.access.keys import KeyRequest
from owlclaw_ray.client import Client, ClientError
from owlclaw_ray.domain.principal import LOCAL
from owlclaw_ray.errors import AlreadyDecidedError, NotFoundError
from owlclaw_ray.ids import RunId
from tests.serve.double import MemoryRuntime

DECISION = "/v1/approvals/apr_1/decision"


@pytest.fixture
def approval(runtime: MemoryRuntime):
    return runtime.request_approval()


async def test_an_approval_has_all_that_it_takes_to_judge_it(http: httpx.AsyncClient, approval):
    shown = (await http.get("/v1/approvals/apr_1")).json()

    assert (shown["agent"], shown["role"], shown["run_id"], shown["tool"]) == (
        "assistant",
        "assistant",
        "run_1",
        "mail.send",
    )
    assert (shown["permission"], shown["tags"], shown["reason"]) == ("write", ["dangerous"], "dangerous tools ask")
    assert (shown["arguments"]["to"], shown["written"], shown["target"]) == ("张三", '{"to":"李四"}', '{"to":"张三"}')
    assert (shown["cwd"], shown["trigger"], shown["source"]) == ("/work", "agent", "run_0")
    assert shown["hooks"][0]["hook"] == "app.check"
    assert (shown["status"], shown["decision"], shown["decided_at"]) == ("pending", None, None)
    assert shown["requested_at"] < shown["expires_at"]
    assert shown["input_schema"]["properties"].keys() == {"to", "text"}


async def test_approvals_are_listed_by_agent_run_and_status(http: httpx.AsyncClient, runtime: MemoryRuntime, approval):
    runtime.request_approval("patient", run_id=RunId("run_9"))
    await http.post(DECISION, json={"decision": "deny"})

    async def found(**query):
        return [each["approval_id"] for each in (await http.get("/v1/approvals", params=query)).json()["approvals"]]

    assert await found() == ["apr_2", "apr_1"]
    assert await found(status="pending") == ["apr_2"]
    assert await found(status="denied") == ["apr_1"]
    assert await found(agent="patient") == await found(run="run_9") == ["apr_2"]
    assert await found(limit=1) == ["apr_2"]
    assert (await http.get("/v1/approvals?status=open")).status_code == 422
    assert (await http.get("/v1/approvals?agent=No!")).status_code == 422


async def test_a_decision_is_answered_with_the_approval_as_it_stands(http: httpx.AsyncClient, approval):
    body = {"decision": "allow_once", "reason": "好", "by": "ada", "arguments": {"to": "王五"}}

    answer = await http.post(DECISION, json=body)

    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["decision"]) == ("allowed", body)
    assert (await http.get("/v1/approvals/apr_1")).json() == answer.json()


async def test_repeating_a_decision_answers_the_same_and_another_is_a_conflict(http: httpx.AsyncClient, approval):
    first = await http.post(DECISION, json={"decision": "allow_for_session"})
    again = await http.post(DECISION, json={"decision": "allow_for_session"})
    other = await http.post(DECISION, json={"decision": "deny"})

    assert first.json() == again.json()
    assert other.status_code == 409
    assert other.json()["type"] == "urn:owlclaw:problem:already-decided"
    assert (other.json()["approval_id"], other.json()["approval_status"]) == ("apr_1", "allowed")


async def test_arguments_that_do_not_fit_the_tool_are_refused(http: httpx.AsyncClient, approval):
    answer = await http.post(DECISION, json={"decision": "allow_once", "arguments": {"to": 3}})

    assert (answer.status_code, answer.json()["type"]) == (422, "urn:owlclaw:problem:invalid-arguments")
    assert "to: given 3" in answer.json()["problems"][0]["what"]
    assert (await http.get("/v1/approvals/apr_1")).json()["status"] == "pending"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", ["body.decision"]),
        (b"[]", ["body"]),
        (b'{"decision": "yes"}', ["body.decision"]),
        (b'{"decision": ["deny"]}', ["body.decision"]),
        (b'{"decision": "deny", "reason": 3, "by": "\\u0000", "why": 1}', ["body.why", "body.reason", "body.by"]),
        (b'{"decision": "allow_once", "arguments": []}', ["body.arguments"]),
        (b'{"decision": "deny", "arguments": {}}', ["body.arguments"]),
    ],
)
async def test_every_wrong_field_of_a_decision_is_named(http: httpx.AsyncClient, approval, body, where):
    answer = await http.post(DECISION, content=body)

    assert answer.status_code == 422
    assert [each["where"] for each in answer.json()["problems"]] == where


async def test_a_decision_that_is_no_json_is_a_bad_request(http: httpx.AsyncClient, approval):
    assert (await http.post(DECISION, content=b"{")).status_code == 400


async def test_an_approval_that_there_is_not_is_not_found(http: httpx.AsyncClient):
    for answer in (await http.get("/v1/approvals/apr_1"), await http.post(DECISION, json={"decision": "deny"})):
        assert answer.status_code == 404
        assert (answer.json()["kind"], answer.json()["id"]) == ("approval", "apr_1")


async def test_the_client_lists_shows_and_decides(server: str, runtime: MemoryRuntime, approval):
    runtime.request_approval("patient")
    async with Client(server) as client:
        assert [each["approval_id"] for each in await client.approvals()] == ["apr_2", "apr_1"]
        settled = await client.decide("apr_1", "allow_once", by="ada", arguments={"to": "王五"})
        assert await client.approval("apr_1") == settled
        assert [each["approval_id"] for each in await client.approvals()] == ["apr_2"]
        assert [each["approval_id"] for each in await client.approvals("assistant", status=None)] == ["apr_1"]
        with pytest.raises(AlreadyDecidedError, match="it is allowed"):
            await client.decide("apr_1", "deny")
        with pytest.raises(NotFoundError):
            await client.approval("apr_9")
        with pytest.raises(ClientError, match="do not fit"):
            await client.decide("apr_2", "allow_once", arguments={"to": 3})


async def test_a_call_that_two_must_allow_tells_who_did_and_how_many_are_still_needed(http, runtime):
    runtime.request_approval(needed=2)
    keys = [
        {"Authorization": f"Bearer {(await runtime.keys.create(LOCAL, KeyRequest(name, ('approver',)))).text}"}
        for name in ("ada", "bob")
    ]

    async def allow(key, **more):
        return (await http.post(DECISION, json={"decision": "allow_once", **more}, headers=keys[key])).json()

    shown = (await http.get("/v1/approvals/apr_1", headers=keys[0])).json()
    assert (shown["needed"], shown["still_needed"], shown["allowed_by"]) == (2, 2, [])
    first = await allow(0, reason="好")
    again = await allow(0, by="bob")
    assert [(each["status"], each["still_needed"], len(each["allowed_by"])) for each in (first, again)] == [
        ("pending", 1, 1),
        ("pending", 1, 1),
    ]
    [ada] = first["allowed_by"]
    assert (ada["decision"], ada["reason"], ada["arguments"]) == ("allow_once", "好", None)
    assert ada["by"] == f"{ada['principal']} (ada)"
    assert ada["at"]

    second = await allow(1)

    assert (second["status"], second["still_needed"]) == ("allowed", 0)
    assert [each["by"].partition(" ")[2] for each in second["allowed_by"]] == ["(ada) for bob", "(bob)"]


async def test_without_keys_all_are_one_person_whoever_they_say_they_are(http, runtime):
    runtime.request_approval(needed=2)

    for who in ("ada", "bob", "carol"):
        answer = await http.post(DECISION, json={"decision": "allow_once", "by": who})

    assert (answer.json()["status"], answer.json()["still_needed"]) == ("pending", 1)


async def test_an_approver_of_some_agents_decides_about_these_alone(http, runtime):
    runtime.request_approval()
    runtime.request_approval("patient")
    key = (await runtime.keys.create(LOCAL, KeyRequest("ada", ("approver",), ("agent:patient",)))).text
    headers = {"Authorization": f"Bearer {key}"}

    theirs, ours = [
        await http.post(f"/v1/approvals/{each}/decision", json={"decision": "allow_once"}, headers=headers)
        for each in ("apr_1", "apr_2")
    ]

    assert (theirs.status_code, ours.status_code) == (403, 200)
    assert ours.json()["decision"]["by"].startswith("key:")
