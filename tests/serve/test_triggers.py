from __future__ import annotations

from datetime import datetime, timedelta

import httpx
import orjson
import pytest
from fastapi import FastAPI
from ray.serve._private.thirdparty.get_asgi_route_name import get_asgi_route_name
from starlette.routing import Route

from owlclaw_ray.errors import QuotaReachedError
from owlclaw_ray.ids import DEFAULT_TENANT
from serve.triggers import PATH
from tests.serve.conftest import BODY_LIMIT
from tests.serve.double import FINAL_TEXT, MemoryRuntime

TRIGGERS = "/v1/agents/assistant/triggers"


def test_ray_serve_looks_at_one_route_for_the_name_of_a_trigger(api: FastAPI, monkeypatch: pytest.MonkeyPatch):
    looks, matches = [], Route.matches
    monkeypatch.setattr(Route, "matches", lambda route, scope: looks.append(route.path) or matches(route, scope))
    scope = {"type": "http", "method": "POST", "path": TRIGGERS, "headers": [], "root_path": "", "query_string": b""}

    assert get_asgi_route_name(api, scope) == PATH
    assert looks == [PATH]


async def test_a_trigger_passes_no_router(http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch):
    looks, matches = [], Route.matches
    monkeypatch.setattr(Route, "matches", lambda route, scope: looks.append(route.path) or matches(route, scope))

    assert (await http.post(TRIGGERS)).status_code == 202
    assert looks == []


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
        "merged": False,
        "interrupted": None,
    }
    assert response.headers["location"] == f"/v1/runs/{body['run_id']}"
    run = (await http.get(response.headers["location"])).json()
    assert run["trigger"] == {
        "kind": "api",
        "payload": {"股票": [1, None]},
        "focus": "看一下大盘",
        "source": "",
        "merged": 1,
    }


@pytest.mark.parametrize("body", [b"", b"{}", b'{"payload": null}'])
async def test_a_trigger_needs_no_payload(http: httpx.AsyncClient, body: bytes):
    response = await http.post(TRIGGERS, content=body)

    run = (await http.get(response.headers["location"])).json()
    assert (response.status_code, run["trigger"]["payload"]) == (202, None)


@pytest.mark.parametrize("payload", [0, "text", [1, 2], False, {"a": {"b": 1.5}}])
async def test_any_json_may_be_the_payload(http: httpx.AsyncClient, payload: object):
    response = await http.post(TRIGGERS, json={"payload": payload, "kind": "event"})

    run = (await http.get(response.headers["location"])).json()
    assert run["trigger"] == {"kind": "event", "payload": payload, "focus": "", "source": "", "merged": 1}


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


async def test_the_same_key_for_another_request_is_a_conflict(http: httpx.AsyncClient):
    headers = {"Idempotency-Key": "order-17"}
    await http.post(TRIGGERS, json={"payload": 1}, headers=headers)
    response = await http.post(TRIGGERS, json={"payload": 2}, headers=headers)

    assert (response.status_code, response.json()["key"]) == (409, "order-17")


async def test_the_same_key_for_another_agent_is_another_key(http: httpx.AsyncClient):
    headers = {"Idempotency-Key": "order-17"}
    first = await http.post(TRIGGERS, json={"payload": 1}, headers=headers)
    second = await http.post("/v1/agents/patient/triggers", json={"payload": 1}, headers=headers)

    assert (second.status_code, second.json()["duplicate"]) == (202, False)
    assert second.json()["run_id"] != first.json()["run_id"]


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


@pytest.mark.parametrize("body", [b"\xff\xfe", b'{"payload": "\\ud8"}', b"[" * 50])
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
        "body.colour": (
            "unknown field",
            "known fields: payload, focus, kind, task_type, session, user, busy, priority, deadline_seconds, callback_url",
        ),
        "body.focus": ("is 7", "a text of up to 500 characters, without NUL"),
        "body.kind": ('is "heartbeat"', "one of api, event"),
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


PATIENT = "/v1/agents/patient/triggers"


async def test_priority_and_deadline_are_those_of_the_run(http: httpx.AsyncClient):
    response = await http.post(TRIGGERS, json={"busy": "coalesce", "priority": -3, "deadline_seconds": 0.5})

    run = (await http.get(response.headers["location"])).json()
    made, until = (datetime.fromisoformat(run[name]) for name in ("created_at", "deadline"))
    assert (run["priority"], until - made) == (-3, timedelta(seconds=0.5))


async def test_without_them_a_run_has_no_deadline_and_the_usual_priority(http: httpx.AsyncClient):
    run = (await http.get((await http.post(TRIGGERS)).headers["location"])).json()

    assert (run["priority"], run["deadline"], run["interrupted_by"]) == (0, None, None)


async def test_a_busy_agent_refuses_a_trigger_that_asks_for_it_and_names_its_run(http: httpx.AsyncClient):
    run_id = (await http.post(PATIENT)).json()["run_id"]
    response = await http.post(PATIENT, json={"busy": "reject"})

    assert (response.status_code, response.json()["type"]) == (409, "urn:owlclaw:problem:agent-busy")
    assert (response.json()["agent"], response.json()["run_id"]) == ("patient", run_id)
    assert "retry-after" not in response.headers


async def test_a_merged_trigger_is_accepted_as_the_run_that_it_joined(http: httpx.AsyncClient, runtime: MemoryRuntime):
    run_id = runtime.merging_into = (await http.post(PATIENT)).json()["run_id"]
    response = await http.post(PATIENT, json={"busy": "coalesce"})

    assert (response.status_code, response.json()["run_id"], response.json()["merged"]) == (202, run_id, True)
    assert response.headers["location"] == f"/v1/runs/{run_id}"


async def test_an_interrupt_names_the_run_that_it_ends(http: httpx.AsyncClient):
    run_id = (await http.post(PATIENT)).json()["run_id"]
    response = await http.post(PATIENT, json={"busy": "interrupt"})

    assert (response.status_code, response.json()["interrupted"]) == (202, run_id)


async def test_a_full_queue_says_when_to_come_back(http: httpx.AsyncClient, runtime: MemoryRuntime):
    runtime.full_at = 1_000
    response = await http.post(TRIGGERS)

    assert (response.status_code, response.headers["retry-after"]) == (429, "5")
    assert response.headers["content-type"] == "application/problem+json"
    assert (response.json()["type"], response.json()["limit"]) == ("urn:owlclaw:problem:queue-full", 1_000)


async def test_a_reached_quota_says_what_it_is_and_when_there_is_more(http: httpx.AsyncClient, runtime: MemoryRuntime):
    runtime.refusal = QuotaReachedError("starts_a_minute", 600, 17.2)
    response = await http.post(TRIGGERS)
    batch = await http.post("/v1/triggers:batch", json={"triggers": [{"agent": "assistant"}]})
    runtime.refusal = QuotaReachedError("open_runs", 1, 1.0, of_key=True)
    other = await http.post(TRIGGERS)

    assert (response.status_code, response.headers["retry-after"]) == (429, "18")
    assert response.headers["ratelimit-policy"] == '"starts_a_minute";q=600;w=60'
    assert response.headers["ratelimit"] == '"starts_a_minute";r=0;t=18'
    problem = response.json()
    assert (problem["type"], problem["quota"], problem["limit"], problem["of"]) == (
        "urn:owlclaw:problem:quota-reached",
        "starts_a_minute",
        600,
        "tenant",
    )
    assert (
        problem["detail"]
        == "quota reached: the tenant has 600 starts in this minute (starts_a_minute), and may have no more"
    )
    assert batch.json()["results"][0]["problem"]["type"] == problem["type"]
    assert other.headers["ratelimit-policy"] == '"open_runs";q=1'
    assert (other.json()["of"], other.json()["detail"]) == (
        "key",
        "quota reached: the key has 1 run that is not over (open_runs), and may have no more",
    )


@pytest.mark.parametrize(
    ("field", "values", "fix"),
    [
        ("busy", ["wait", 1, None, ["reject"], ""], "one of enqueue, reject, coalesce, interrupt"),
        ("priority", [11, -11, 1.5, "1", True, None], "a whole number from -10 to 10"),
        ("deadline_seconds", [0, -1, 604_801, "60", True, None], "seconds, over 0 and up to 604800"),
    ],
)
async def test_an_admission_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, field: str, values: list[object], fix: str
):
    for value in values:
        response = await http.post(TRIGGERS, json={field: value})
        (problem,) = response.json()["problems"]
        shown = {"where": f"body.{field}", "what": f"is {orjson.dumps(value).decode()}", "fix": fix}
        assert (response.status_code, problem) == (422, shown)
    assert (await http.get("/v1/runs")).json()["runs"] == []


async def test_a_focus_that_is_too_long_is_refused_with_its_length(http: httpx.AsyncClient):
    response = await http.post(TRIGGERS, json={"focus": "x" * 501})

    assert response.json()["problems"] == [
        {
            "where": "body.focus",
            "what": "is a text of 501 characters",
            "fix": "a text of up to 500 characters, without NUL",
        }
    ]


async def test_a_key_that_is_null_in_a_batch_is_none(http: httpx.AsyncClient):
    response = await http.post(
        "/v1/triggers:batch", json={"triggers": [{"agent": "assistant:1", "idempotency_key": None}] * 2}
    )

    accepted = [each["accepted"]["run_id"] for each in response.json()["results"]]
    assert len(set(accepted)) == 2


async def test_all_that_is_wrong_with_an_admission_is_said_at_once(http: httpx.AsyncClient):
    wrong = {"busy": "x" * 100, "priority": 99, "deadline_seconds": -1, "focus": 3}
    response = await http.post(TRIGGERS, json=wrong)

    what = {each["where"]: each["what"] for each in response.json()["problems"]}
    assert what == {
        "body.busy": "is a text of 100 characters",
        "body.priority": "is 99",
        "body.deadline_seconds": "is -1",
        "body.focus": "is 3",
    }


async def test_the_limits_of_an_admission_are_accepted(http: httpx.AsyncClient):
    for body in ({"priority": 10}, {"priority": -10}, {"deadline_seconds": 604_800}, {"deadline_seconds": 0.001}):
        assert (await http.post(TRIGGERS, json=body)).status_code == 202


@pytest.mark.parametrize("other", [{"busy": "reject"}, {"priority": 1}, {"deadline_seconds": 5}])
async def test_the_same_key_with_another_admission_is_a_conflict(http: httpx.AsyncClient, other: object):
    headers = {"Idempotency-Key": "order-17"}
    usual = {"busy": "enqueue", "priority": 0}
    responses = [await http.post(TRIGGERS, json=body, headers=headers) for body in ({}, usual, other)]

    assert [response.status_code for response in responses] == [202, 202, 409]


CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(("header", "kept"), [(CALLER, CALLER), ("nonsense", ""), (None, "")])
async def test_a_usable_traceparent_is_kept_with_the_run(http: httpx.AsyncClient, runtime: MemoryRuntime, header, kept):
    response = await http.post(TRIGGERS, headers={} if header is None else {"traceparent": header})

    run = await runtime.run(DEFAULT_TENANT, response.json()["run_id"])
    assert run.trigger.traceparent == kept


async def test_a_repetition_under_another_span_is_still_the_same_request(http: httpx.AsyncClient):
    headers = {"Idempotency-Key": "k-1"}
    first = await http.post(TRIGGERS, headers={**headers, "traceparent": CALLER})
    again = await http.post(TRIGGERS, headers=headers)

    assert (again.status_code, again.json()["run_id"]) == (202, first.json()["run_id"])


async def test_a_trigger_may_say_its_type_of_task(http: httpx.AsyncClient):
    first = await http.post(TRIGGERS, json={"task_type": "交易"}, headers={"Idempotency-Key": "k"})
    other = await http.post(TRIGGERS, json={"task_type": "summary"}, headers={"Idempotency-Key": "k"})
    run = (await http.get(first.headers["location"])).json()
    wrong = await http.post(TRIGGERS, json={"task_type": "x" * 65})

    assert (first.status_code, other.status_code, wrong.status_code) == (202, 409, 422)
    assert run["trigger"]["task_type"] == "交易"
    assert wrong.json()["problems"][0]["where"] == "body.task_type"
