from __future__ import annotations

import httpx
import orjson
import pytest

from tests.serve.conftest import BODY_LIMIT
from tests.serve.double import FINAL_TEXT

TRIGGERS = "/v1/agents/assistant/triggers"


async def test_a_trigger_is_accepted_and_says_where_its_run_is(http: httpx.AsyncClient):
    response = await http.post(TRIGGERS, json={"payload": {"股票": [1, None]}, "focus": "看一下大盘"})

    assert response.status_code == 202
    body = response.json()
    assert body == {
        "run_id": body["run_id"],
        "agent": "assistant",
        "status": "queued",
        "scripted": True,
        "duplicate": False,
    }
    assert response.headers["location"] == f"/v1/runs/{body['run_id']}"
    run = (await http.get(response.headers["location"])).json()
    assert run["trigger"] == {"kind": "api", "payload": {"股票": [1, None]}, "focus": "看一下大盘", "source": ""}


@pytest.mark.parametrize("body", [b"", b"{}", b'{"payload": null}'])
async def test_a_trigger_needs_no_payload(http: httpx.AsyncClient, body: bytes):
    response = await http.post(TRIGGERS, content=body)

    run = (await http.get(response.headers["location"])).json()
    assert (response.status_code, run["trigger"]["payload"]) == (202, None)


@pytest.mark.parametrize("payload", [0, "text", [1, 2], False, {"a": {"b": 1.5}}])
async def test_any_json_may_be_the_payload(http: httpx.AsyncClient, payload: object):
    response = await http.post(TRIGGERS, json={"payload": payload, "kind": "event"})

    run = (await http.get(response.headers["location"])).json()
    assert run["trigger"] == {"kind": "event", "payload": payload, "focus": "", "source": ""}


async def test_an_agent_may_carry_a_key(http: httpx.AsyncClient):
    response = await http.post("/v1/agents/assistant:股票.600519/triggers")

    assert response.json()["agent"] == "assistant:股票.600519"


async def test_waiting_answers_with_the_finished_run(http: httpx.AsyncClient):
    response = await http.post(f"{TRIGGERS}?wait=10")

    assert response.status_code == 200
    assert response.json()["status"] == "completed"
    assert response.json()["result"]["final_text"] == FINAL_TEXT
    assert response.headers["location"].endswith(response.json()["run_id"])


async def test_waiting_in_vain_answers_that_the_run_goes_on(http: httpx.AsyncClient):
    response = await http.post("/v1/agents/patient/triggers?wait=0.01")

    assert (response.status_code, response.json()["status"]) == (202, "running")


async def test_the_same_key_and_body_give_the_same_run_however_the_json_is_laid_out(http: httpx.AsyncClient):
    headers = {"Idempotency-Key": "order-17"}
    first = await http.post(TRIGGERS, content=b'{"payload": {"a": 1, "b": 2}}', headers=headers)
    second = await http.post(TRIGGERS, content=b'{"kind":"api","payload":{"b":2,"a":1}}', headers=headers)

    assert second.status_code == 202
    assert second.json() == {**first.json(), "duplicate": True, "status": "completed"}


@pytest.mark.parametrize(("agent", "body"), [("assistant", {"payload": 2}), ("patient", {"payload": 1})])
async def test_the_same_key_for_another_request_is_a_conflict(http: httpx.AsyncClient, agent: str, body: object):
    headers = {"Idempotency-Key": "order-17"}
    await http.post(TRIGGERS, json={"payload": 1}, headers=headers)
    response = await http.post(f"/v1/agents/{agent}/triggers", json=body, headers=headers)

    assert (response.status_code, response.json()["key"]) == (409, "order-17")


@pytest.mark.parametrize("key", ["", "two words", "k" * 256])
async def test_a_malformed_idempotency_key_is_refused(http: httpx.AsyncClient, key: str):
    response = await http.post(TRIGGERS, headers={"Idempotency-Key": key})

    assert response.status_code == 422
    assert response.json()["problems"][0]["where"] == "header Idempotency-Key"


@pytest.mark.parametrize("wait", ["-1", "301", "soon", "nan", "inf", ""])
async def test_a_wait_outside_its_bounds_is_refused(http: httpx.AsyncClient, wait: str):
    response = await http.post(TRIGGERS, params={"wait": wait})

    assert (response.status_code, response.json()["problems"][0]["fix"]) == (422, "seconds from 0 to 300")


async def test_a_body_that_is_not_json_is_refused_with_the_place(http: httpx.AsyncClient):
    response = await http.post(TRIGGERS, content=b'{\n  "payload": oops\n}')

    problem = response.json()
    assert (response.status_code, problem["line"], problem["column"]) == (400, 2, 14)
    assert "line 2, column 14" in problem["detail"]
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("body", [b"\xff\xfe", b'{"payload": "\\ud800"}', b"[" * 5_000])
async def test_bytes_that_are_no_proper_json_are_refused(http: httpx.AsyncClient, body: bytes):
    assert (await http.post(TRIGGERS, content=body)).status_code == 400


async def test_a_body_that_is_no_object_is_refused(http: httpx.AsyncClient):
    response = await http.post(TRIGGERS, json=["payload"])

    assert response.status_code == 422
    assert response.json()["problems"] == [
        {"where": "body", "what": "must be a JSON object, not an array", "fix": 'put it into a field: {"payload": …}'}
    ]


async def test_every_wrong_field_is_named_with_what_is_right(http: httpx.AsyncClient):
    response = await http.post(TRIGGERS, json={"fokus": "x", "colour": 1, "focus": 7, "kind": "heartbeat"})

    assert response.status_code == 422
    assert {each["where"]: (each["what"], each["fix"]) for each in response.json()["problems"]} == {
        "body.fokus": ("unknown field", "did you mean focus?"),
        "body.colour": ("unknown field", "known fields: payload, focus, kind"),
        "body.focus": ("is a number", "a text of up to 500 characters"),
        "body.kind": ('is "heartbeat"', '"api" (default) or "event"'),
    }


@pytest.mark.parametrize("focus", ["x" * 501, "a\0b", None])
async def test_a_focus_that_cannot_be_stored_is_refused(http: httpx.AsyncClient, focus: object):
    assert (await http.post(TRIGGERS, json={"focus": focus})).status_code == 422


async def test_a_body_over_the_limit_is_refused_by_its_announced_length(http: httpx.AsyncClient):
    response = await http.post(TRIGGERS, content=b"x" * (BODY_LIMIT + 1))

    assert (response.status_code, response.json()["limit_bytes"]) == (413, BODY_LIMIT)


async def test_a_streamed_body_over_the_limit_is_refused_before_it_is_read_to_its_end(http: httpx.AsyncClient):
    sent = 0

    async def endless():
        nonlocal sent
        while sent < 1_000:
            sent += 1
            yield b"x" * 1_000

    response = await http.post(TRIGGERS, content=endless())

    assert response.status_code == 413
    assert sent < 20


async def test_a_body_at_the_limit_is_accepted(http: httpx.AsyncClient):
    frame = len(orjson.dumps({"payload": ""}))
    response = await http.post(TRIGGERS, content=orjson.dumps({"payload": "x" * (BODY_LIMIT - frame)}))

    assert response.status_code == 202


async def test_an_unknown_agent_is_not_found_and_the_known_ones_are_named(http: httpx.AsyncClient):
    response = await http.post("/v1/agents/asistant/triggers")

    assert response.status_code == 404
    assert response.json()["known"] == ["assistant", "broken", "patient"]
    assert "asistant" in response.json()["detail"]


async def test_a_text_that_is_no_agent_id_is_refused_with_the_right_form(http: httpx.AsyncClient):
    response = await http.post("/v1/agents/The Assistant/triggers")

    assert response.status_code == 422
    assert "such as trader or trader:AAPL" in response.json()["detail"]


async def test_a_broken_definition_is_a_conflict_that_lists_what_to_mend(http: httpx.AsyncClient):
    response = await http.post("/v1/agents/broken/triggers")

    assert response.status_code == 409
    assert response.json()["type"] == "urn:owlclaw:problem:definition-error"
    assert response.json()["problems"] == [
        {"where": "agents/broken/SOUL.md", "what": "is missing", "fix": "write who the agent is"}
    ]
    assert (await http.get("/v1/runs")).json()["runs"] == []
