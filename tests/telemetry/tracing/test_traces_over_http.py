"""A trace that begins at somebody else: in over HTTP, on to a tool and the service that it asks, out to who is told, and exported."""

from __future__ import annotations

import base64
import json

import httpx
import pytest

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.definitions.defaults import Defaults
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.callback import CallbackRules
from owlclaw_ray.domain.tracing import TraceParent
from owlclaw_ray.ids import RunId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.store.commands import RunAccepted
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.context import ToolContext
from owlclaw_ray.webhooks.outbox import CallbackOptions
from serve.api import build_api
from tests.definitions.writing import write_definition
from tests.webhooks.receiver import receiving

CALLER = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
KEY = base64.b64encode(bytes(range(32))).decode()
SCRIPT = {
    "rules": [
        {
            "turns": [
                {"tool_calls": [{"name": "shop.order", "arguments": {"customer": "Ada", "item": "tea"}}]},
                {"text": "ordered for Ada"},
            ]
        }
    ]
}


@pytest.fixture
async def service():
    """What the tool asks, and who is told of the end."""
    async with receiving() as listening:
        yield listening


@pytest.fixture
def app(service):
    app = OwlClaw("shop")

    @app.handler("shop.order")
    def order(customer: str, item: str, context: ToolContext) -> str:
        """Order something, at another service."""
        httpx.post(service.url, headers={"traceparent": context.traceparent})
        return f"{item} for {customer}"

    @app.mask_traces
    def mask(value):
        return json.loads(json.dumps(value).replace("Ada", "[customer]"))

    return app


@pytest.fixture
def trace(tmp_path, app, service, exporting):
    """Triggers a run over HTTP and returns it, once it is told of and exported."""
    agent = write_definition(tmp_path / "agents" / "assistant", agent="model: scripted:script.yaml\n")
    (agent / "script.yaml").write_text(json.dumps(SCRIPT))

    async def of(path, body, headers):
        async with (
            in_process_runtime(
                agents_dir=tmp_path / "agents",
                data_dir=tmp_path / "data",
                app=app,
                defaults=Defaults(callbacks=CallbackRules(("127.0.0.0/8",))),
                callbacks=CallbackOptions((KEY,), RetryPolicy(attempts=1, base=1.0, cap=1.0), 5.0),
            ) as runtime,
            exporting(runtime.store, mask=app.trace_mask) as export,
        ):
            transport = httpx.ASGITransport(build_api(runtime, clock=SystemClock(), body_limit_bytes=10_000))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8700") as http:
                answer = (await http.post(path, json=body, headers=headers)).json()
                accepted = answer["results"][0]["accepted"] if "results" in answer else answer
                await runtime.outcome(RunAccepted(RunId(accepted["run_id"]), 1, AgentRef.parse("assistant")))
                run = (await http.get(f"/v1/runs/{accepted['run_id']}")).json()
            await runtime.callbacks.tick()
            await runtime.callbacks.settled()
            await export.step()
        return run

    return of


TRIGGER = {"payload": {"for": "Ada"}, "focus": "an order for Ada"}


@pytest.mark.parametrize("batch", [False, True])
async def test_it_is_one_trace_from_the_caller_to_whoever_is_asked_and_told(trace, service, receiver, batch):
    told = {**TRIGGER, "callback_url": service.url}
    path, body = "/v1/agents/assistant/triggers", told
    if batch:
        path, body = "/v1/triggers:batch", {"triggers": [{**told, "agent": "assistant"}]}

    run = await trace(path, body, {"traceparent": str(CALLER)})

    assert run["status"] == "completed"
    spans = {each.name: each for each in receiver.spans}
    root, tool = spans["invoke_agent assistant"], spans["execute_tool shop.order"]
    assert {each.trace_id for each in spans.values()} == {CALLER.trace_id}
    assert (root.parent_id, tool.parent_id) == (CALLER.span_id, root.span_id)
    asked, told_of_end = (TraceParent.parse(each.headers["traceparent"]) for each in service.received)
    assert asked == TraceParent(CALLER.trace_id, tool.span_id)
    assert told_of_end == TraceParent(CALLER.trace_id, root.span_id)


async def test_without_a_caller_the_run_begins_a_trace_that_the_tool_is_part_of(trace, service, receiver):
    await trace("/v1/agents/assistant/triggers", TRIGGER, {"traceparent": "00-nonsense"})

    spans = {each.name: each for each in receiver.spans}
    root, tool = spans["invoke_agent assistant"], spans["execute_tool shop.order"]
    (asked,) = (TraceParent.parse(each.headers["traceparent"]) for each in service.received)
    assert root.parent_id == ""
    assert asked == TraceParent(root.trace_id, tool.span_id)


async def test_what_the_mask_hides_leaves_nowhere_in_the_trace_and_comes_to_the_tool_as_it_is(trace, receiver):
    run = await trace("/v1/agents/assistant/triggers", TRIGGER, {})

    assert run["result"]["final_text"] == "ordered for Ada"
    left = repr(receiver.spans)
    assert "Ada" not in left
    assert "tea for [customer]" in left


async def test_session_and_user_of_a_trigger_are_those_of_every_span_within_their_tenant(trace, receiver):
    told = {**TRIGGER, "session": "chat 4711", "user": "ada@example.org"}

    run = await trace("/v1/agents/assistant/triggers", told, {})

    assert (run["trigger"]["session"], run["trigger"]["user"]) == ("chat 4711", "ada@example.org")
    assert {each.attributes["session.id"] for each in receiver.spans} == {"default/chat 4711"}
    assert {each.attributes["user.id"] for each in receiver.spans} == {"default/ada@example.org"}
    [root] = [each for each in receiver.spans if each.name == "invoke_agent assistant"]
    assert root.attributes["gen_ai.conversation.id"] == "chat 4711"
