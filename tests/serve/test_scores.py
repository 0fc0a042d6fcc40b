"""Scores of runs: over HTTP, on to a server that has the wire of Langfuse's."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from langfuse.api import LangfuseAPI
from langfuse.api.scores.types.create_score_request import CreateScoreRequest

from owlclaw_ray.client import Client
from owlclaw_ray.domain.tracing import Destination, TraceParent, TracingOptions, run_span
from owlclaw_ray.errors import ScoreRefusedError
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.settings import load_runtime_settings
from owlclaw_ray.telemetry.tracing.content import ContentAttributes
from owlclaw_ray.telemetry.tracing.destinations import scores_of
from owlclaw_ray.testing.in_process import in_process_runtime
from serve.api import build_api
from tests.definitions.writing import write_definition

KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-lf-1", "LANGFUSE_SECRET_KEY": "sk-lf-1"}
CALLER = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
SECRET = "sk-abcdefghijklmnopqrstuvwxyz123456"
GOOD = {"name": "helpful", "value": 0.75, "comment": "at once"}


class Langfuse:
    """Notes what is posted, and answers as it is told."""

    def __init__(self):
        self.requests, self.status = [], 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, self.headers, body))
                answer = json.dumps({"id": "s"} if isinstance(body, dict) else {"message": "Accepted"}).encode()
                self.send_response(outer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def langfuse():
    server = Langfuse()
    yield server
    server.close()


@pytest.fixture
def served(tmp_path, langfuse):
    """The API of a runtime whose traces go to Langfuse, or to nobody."""
    write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:echo\n")

    @asynccontextmanager
    async def serving(*, to_langfuse=True):
        environ = KEYS | {"LANGFUSE_BASE_URL": f"{langfuse.url}/base/"}
        options = load_runtime_settings(tmp_path, environ).tracing.options(environ)
        assert options.destination is Destination.LANGFUSE
        scores = scores_of(options, ContentAttributes(TenantRedactors(Redactor)), environ) if to_langfuse else None
        folders = {"agents_dir": tmp_path / "agents", "data_dir": tmp_path / "data"}
        async with in_process_runtime(**folders, scores=scores) as runtime:
            api = build_api(runtime, clock=SystemClock(), body_limit_bytes=10_000)
            transport = httpx.ASGITransport(api)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8700") as http:
                yield http, transport

    return serving


async def begun(http, **headers):
    answer = await http.post("/v1/agents/assistant/triggers?wait=60", json={}, headers=headers)
    return answer.json()["run_id"]


@pytest.mark.parametrize(
    ("value", "kept"),
    [(0.75, ("NUMERIC", 0.75)), (3, ("NUMERIC", 3)), (True, ("BOOLEAN", 1)), ("good", ("CATEGORICAL", "good"))],
)
async def test_a_score_goes_to_langfuse_beside_the_trace_of_its_run(served, langfuse, value, kept):
    async with served() as (http, _):
        run_id = await begun(http)
        answer = await http.post(f"/v1/runs/{run_id}/scores", json={**GOOD, "value": value})
        await http.post(f"/v1/runs/{run_id}/scores", json={**GOOD, "value": value})

    assert answer.status_code == 200
    [(path, headers, body), (_, _, again)] = langfuse.requests
    assert path == "/base/api/public/scores"
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"pk-lf-1:sk-lf-1"
    assert (body["dataType"], body["value"]) == kept
    assert (body["name"], body["comment"]) == ("helpful", "at once")
    assert body["traceId"] == answer.json()["trace_id"] == run_span(RunId(run_id)).trace_id
    assert "observationId" not in body
    assert (again["id"], again["timestamp"]) == (body["id"], body["timestamp"])


async def test_the_fields_are_those_that_the_client_of_langfuse_sends(served, langfuse):
    with httpx.Client() as http:
        sent = CreateScoreRequest(
            id="a",
            trace_id="b",
            observation_id="c",
            name="d",
            value=1.0,
            comment="e",
            data_type="NUMERIC",
            timestamp="2026-01-01T00:00:00Z",
        )
        api = LangfuseAPI(base_url=langfuse.url, username="pk-lf-1", password="sk-lf-1", httpx_client=http)
        api.scores.create(request=[sent])
    async with served() as (http, _):
        run_id = await begun(http, traceparent=str(CALLER))
        await http.post(f"/v1/runs/{run_id}/scores", json=GOOD)

    (path, headers, [theirs]), (our_path, our_headers, ours) = langfuse.requests
    assert our_path == f"/base{path}"
    assert our_headers["Authorization"] == headers["Authorization"]
    assert ours.keys() == {key for key, value in theirs.items() if value is not None}
    assert (ours["traceId"], ours["observationId"]) == (CALLER.trace_id, run_span(RunId(run_id), str(CALLER)).span_id)


async def test_secrets_in_a_comment_do_not_leave(served, langfuse):
    async with served() as (http, _):
        await http.post(f"/v1/runs/{await begun(http)}/scores", json={**GOOD, "comment": f"it used {SECRET}"})

    assert SECRET not in repr(langfuse.requests)
    assert "it used" in langfuse.requests[0][2]["comment"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "a"},
        {"name": " ", "value": 1},
        {"name": "a" * 101, "value": 1},
        {"name": "a", "value": None},
        {"name": "a", "value": [1]},
        {"name": "a", "value": 1e16},
        {"name": "a", "value": ""},
        {"name": "a", "value": 1, "comment": 7},
        {"name": "a", "value": 1, "by": "me"},
        [],
    ],
)
async def test_what_is_no_score_is_refused_and_goes_nowhere(served, langfuse, body):
    async with served() as (http, _):
        answer = await http.post(f"/v1/runs/{await begun(http)}/scores", json=body)

    assert (answer.status_code, answer.json()["type"]) == (422, "urn:owlclaw:problem:invalid-request")
    assert all(each["where"].startswith("body") and each["fix"] for each in answer.json()["problems"])
    assert langfuse.requests == []


async def test_a_run_that_is_not_there_has_no_scores(served, langfuse):
    async with served() as (http, _):
        answer = await http.post("/v1/runs/run_gone/scores", json=GOOD)

    assert (answer.status_code, langfuse.requests) == (404, [])


async def test_where_traces_do_not_go_to_langfuse_a_score_is_refused_and_what_to_set_is_named(served, langfuse):
    async with served(to_langfuse=False) as (http, transport):
        run_id = await begun(http)
        answer = await http.post(f"/v1/runs/{run_id}/scores", json=GOOD)
        async with Client("http://localhost:8700", transport=transport) as client:
            with pytest.raises(ScoreRefusedError, match="LANGFUSE_PUBLIC_KEY"):
                await client.score(run_id, "helpful", True)

    assert (answer.status_code, answer.json()["type"]) == (409, "urn:owlclaw:problem:score-refused")
    assert "LANGFUSE_PUBLIC_KEY" in answer.json()["detail"]


@pytest.mark.parametrize(("status", "answered"), [(400, 409), (401, 503), (429, 503), (500, 503)])
async def test_what_langfuse_refuses_is_told_and_what_it_may_take_later_can_be_tried_again(
    served, langfuse, status, answered
):
    langfuse.status = status
    async with served() as (http, _):
        answer = await http.post(f"/v1/runs/{await begun(http)}/scores", json=GOOD)

    assert answer.status_code == answered
    assert f"answered {status}" in answer.json()["detail"]
    assert ("retry-after" in answer.headers) is (answered == 503)


async def test_a_langfuse_that_is_away_can_be_tried_again(served, langfuse):
    async with served() as (http, _):
        run_id = await begun(http)
        langfuse.close()
        answer = await http.post(f"/v1/runs/{run_id}/scores", json=GOOD)

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_scores_go_where_the_settings_send_traces():
    options = TracingOptions(Destination.LANGFUSE, "https://lf.example.org/api/public/otel/v1/traces")
    assert (
        scores_of(options, ContentAttributes(TenantRedactors(Redactor)), KEYS)._url
        == "https://lf.example.org/api/public/scores"
    )
