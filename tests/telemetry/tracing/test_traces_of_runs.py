"""What a receiver of OTLP gets of real runs, decoded from the bytes on the wire."""

from __future__ import annotations

import asyncio
import json
import shutil
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from owlclaw_ray.app import OwlClaw
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.approval import ApprovalDecision, Decision
from owlclaw_ray.domain.embedding import EmbeddedCall, EmbeddingPurpose
from owlclaw_ray.domain.entries import embedding_record
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.model import FailedAttempt, ModelReply
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tracing import Destination, TraceParent, run_span
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import ConfigurationError, ModelRefusedError, ModelUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, RecordId, RunId, TenantId
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.store.commands import AppendLedger, CancelRun
from owlclaw_ray.store.queries import ApprovalFilter
from owlclaw_ray.store.sql.factory import open_store
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from owlclaw_ray.tools.agents.options import AgentOptions
from owlclaw_ray.tools.context import ToolContext
from owlclaw_ray.tools.host import HostTools
from tests.contracts.store_commands import AGENT, NOW, submission

CALLER = TraceParent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
SECRET = "sk-abcdefghijklmnopqrstuvwxyz123456"


@pytest.fixture
def agents(tmp_path):
    folder = tmp_path / "agents" / "watch"
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are calm.")
    (folder / "IDENTITY.md").write_text("# Watch\n\n## My Capabilities\n- look\n")

    def script(*turns):
        (folder / "agent.yaml").write_text(yaml.safe_dump({"model": "scripted:script.yaml"}))
        (folder / "script.yaml").write_text(yaml.safe_dump({"rules": [{"turns": list(turns)}]}))
        return folder.parent

    return script


def asks(tool, **arguments):
    return {"tool_calls": [{"name": tool, "arguments": arguments}]}


@pytest.fixture
def app():
    app = OwlClaw("shop")

    @app.handler("shop.order")
    def order(item: str, context: ToolContext) -> str:
        """Order something."""
        if item == "nothing":
            raise ValueError("there is no nothing")
        return context.traceparent

    return app


def of(spans, operation):
    return [each for each in spans if each.attributes.get("gen_ai.operation.name") == operation]


async def test_a_run_is_one_trace_with_its_model_calls_and_tool_calls_inside(
    agents, app, receiver, exporting, tmp_path
):
    folder = agents(asks("shop__order", item="tea"), {"text": "ordered"})
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", app=app) as runtime,
        exporting(runtime.store) as export,
    ):
        run = await runtime.trigger("watch", {"order": 7}, focus="喝茶")

        await export.step()

    spans = receiver.spans
    [root] = of(spans, "invoke_agent")
    first, second = of(spans, "chat")
    [tool] = of(spans, "execute_tool")
    assert {each.trace_id for each in spans} == {root.trace_id}
    assert root.parent_id == ""
    assert {each.parent_id for each in (first, second, tool)} == {root.span_id}
    assert (root.name, first.name, tool.name) == (
        "invoke_agent watch",
        "chat scripted:script.yaml",
        "execute_tool shop.order",
    )
    assert root.start == nanoseconds(run.started_at)
    assert root.end == nanoseconds(run.finished_at)
    assert root.start <= first.start <= first.end <= tool.end <= second.end <= root.end
    assert (first.kind, tool.kind, root.service) == ("CLIENT", "INTERNAL", "owlclaw")
    assert root.attributes["gen_ai.agent.name"] == root.attributes["langfuse.trace.name"] == "watch"
    assert root.attributes["owlclaw.trigger.kind"] == "api"
    assert root.attributes["owlclaw.run.status"] == "completed"
    assert root.attributes["langfuse.trace.tags"] == ["api", "scripted"]
    assert {each.attributes["session.id"] for each in spans} == {"default/watch"}
    assert {each.attributes["user.id"] for each in spans} == {"default"}
    assert [each.attributes["langfuse.observation.type"] for each in (root, first, tool)] == [
        "agent",
        "generation",
        "tool",
    ]
    usage = run.result.usage
    assert sum(each.attributes["gen_ai.usage.input_tokens"] for each in (first, second)) == usage.prompt_tokens
    assert sum(each.attributes["gen_ai.usage.output_tokens"] for each in (first, second)) == usage.completion_tokens
    assert root.attributes["owlclaw.run.cost"] == usage.cost
    assert first.attributes["gen_ai.response.finish_reasons"] == ["tool_call"]
    assert not any(each.failed for each in spans)
    assert "You are calm." in first.attributes["gen_ai.system_instructions"]
    assert "喝茶" in first.attributes["gen_ai.input.messages"]
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"item": "tea"}
    [answered] = json.loads(second.attributes["gen_ai.output.messages"])
    assert answered == {
        "role": "assistant",
        "parts": [{"type": "text", "content": "ordered"}],
        "finish_reason": "stop",
    }


def nanoseconds(at):
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1_000


async def test_the_tool_is_told_the_span_of_its_own_call(agents, app, receiver, exporting, tmp_path):
    folder = agents(asks("shop__order", item="tea"), {"text": "ordered"})
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", app=app) as runtime,
        exporting(runtime.store) as export,
    ):
        await runtime.trigger("watch")
        await export.step()

    [tool] = of(receiver.spans, "execute_tool")
    assert json.loads(tool.attributes["gen_ai.tool.call.result"]) == f"00-{tool.trace_id}-{tool.span_id}-01"


async def test_a_run_with_a_traceparent_is_part_of_its_callers_trace(agents, receiver, exporting, tmp_path):
    trigger = Trigger(TriggerKind.API, traceparent=str(CALLER))
    async with (
        in_process_runtime(agents_dir=agents({"text": "hi"}), data_dir=tmp_path / "data") as runtime,
        exporting(runtime.store) as export,
    ):
        accepted = await runtime.submit(AgentRef.parse("watch"), trigger)
        await runtime.outcome(accepted)
        await export.step()

    [root] = of(receiver.spans, "invoke_agent")
    assert (root.trace_id, root.parent_id) == (CALLER.trace_id, CALLER.span_id)
    assert root.span_id == run_span(accepted.run_id, str(CALLER)).span_id
    assert "langfuse.trace.name" not in root.attributes


async def test_a_failed_tool_call_is_an_error_on_its_span_alone(agents, app, receiver, exporting, tmp_path):
    folder = agents(asks("shop__order", item="nothing"), {"text": "sorry"})
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", app=app) as runtime,
        exporting(runtime.store) as export,
    ):
        await runtime.trigger("watch")
        await export.step()

    [failed] = [each for each in receiver.spans if each.failed]
    assert failed.name == "execute_tool shop.order"
    assert failed.attributes["error.type"] == "execution_failed"
    assert failed.message == failed.attributes["langfuse.observation.status_message"]
    assert "there is no nothing" in failed.message
    assert failed.attributes["langfuse.observation.level"] == "ERROR"


async def test_a_model_that_fails_is_an_error_on_its_call_and_on_the_run(agents, receiver, exporting, tmp_path):
    folder = agents({"error": {"type": "refused", "message": "overloaded"}})
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data") as runtime,
        exporting(runtime.store) as export,
    ):
        run = await runtime.trigger("watch")
        await export.step()

    assert run.status.value == "failed"
    [root], [call] = of(receiver.spans, "invoke_agent"), of(receiver.spans, "chat")
    assert root.failed
    assert call.failed
    assert root.attributes["error.type"] == call.attributes["error.type"] == "model_failed"
    assert "overloaded" in call.message
    assert root.start <= call.start <= call.end <= root.end


async def test_without_content_nothing_that_was_said_leaves(agents, app, receiver, exporting, tmp_path):
    folder = agents(
        asks("shop__order", item="jasmine"), asks("shop__order", item="nothing"), {"text": "ordered jasmine"}
    )
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", app=app) as runtime,
        exporting(runtime.store, content=False) as export,
    ):
        await runtime.trigger("watch", "jasmine, please", focus="jasmine")
        await export.step()

    assert len(receiver.spans) == 6
    assert [each.message for each in receiver.spans if each.failed] == ["execution_failed"]
    assert "jasmine" not in repr(receiver.spans)
    assert "calm" not in repr(receiver.spans)


async def test_the_applications_mask_and_then_the_redactor_see_everything_that_was_said(
    agents, app, receiver, exporting, tmp_path
):
    folder = agents(asks("shop__order", item=SECRET), {"text": "to Ada, of course"})
    masked = []

    def mask(value):
        masked.append(value)
        return json.loads(json.dumps(value).replace("Ada", "[a customer]"))

    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", app=app) as runtime,
        exporting(runtime.store, mask=mask) as export,
    ):
        await runtime.trigger("watch", {"for": "Ada"}, focus="for Ada")
        await export.step()

    left = repr(receiver.spans)
    assert "[a customer]" in left
    assert "Ada" not in left
    assert SECRET not in left
    assert "[redacted" in left
    assert masked


async def test_secrets_of_the_run_s_tenant_do_not_leave_and_what_others_have_is_no_secret(
    agents, receiver, exporting, tmp_path
):
    redactors = TenantRedactors(Redactor)
    redactors.add(DEFAULT_TENANT, "CRM", "correct-horse")
    redactors.add(TenantId("acme"), "CRM", "battery-staple")
    folder = agents({"text": "it is correct-horse or battery-staple"})

    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data") as runtime,
        exporting(runtime.store, redactors=redactors) as export,
    ):
        await runtime.trigger("watch", "correct-horse")
        await export.step()
        redactors.add(DEFAULT_TENANT, "SOUL", "You are calm")
        await runtime.trigger("watch", "again")
        receiver.batches.clear()
        await export.step()
        later = repr(receiver.spans)

    assert "it is [redacted:CRM] or battery-staple" in later
    assert "correct-horse" not in later
    assert "You are calm" not in later, "the prompt was made into text before"


async def test_of_a_value_whose_mask_fails_nothing_leaves(agents, receiver, exporting, tmp_path, caplog):
    def mask(value):
        raise KeyError("broken")

    async with (
        in_process_runtime(agents_dir=agents({"text": "to Ada"}), data_dir=tmp_path / "data") as runtime,
        exporting(runtime.store, mask=mask) as export,
    ):
        await runtime.trigger("watch", "for Ada")
        await export.step()

    assert "Ada" not in repr(receiver.spans)
    assert "mask failed" in repr(receiver.spans)
    assert "the application's mask of traces failed" in caplog.text


async def test_langfuse_gets_them_where_and_with_what_its_own_sdk_sends(agents, receiver, exporting, tmp_path):
    from langfuse import Langfuse
    from opentelemetry.sdk.trace import TracerProvider

    keys = {"public_key": "pk-lf-1", "secret_key": "sk-lf-1"}
    theirs = Langfuse(**keys, base_url=receiver.url, tracer_provider=TracerProvider())
    theirs.start_observation(name="theirs").end()
    theirs.shutdown()
    environ = {"LANGFUSE_PUBLIC_KEY": keys["public_key"], "LANGFUSE_SECRET_KEY": keys["secret_key"]}
    url = f"{receiver.url}/api/public/otel/v1/traces"
    async with (
        in_process_runtime(agents_dir=agents({"text": "hi"}), data_dir=tmp_path / "data") as runtime,
        exporting(runtime.store, destination=Destination.LANGFUSE, url=url, environ=environ) as export,
    ):
        await runtime.trigger("watch")
        await export.step()

    sdk, ours = receiver.batches
    said = ("authorization", "content-type", "content-encoding")
    headers = [each for each in sdk.headers if each.startswith("x-langfuse") or each in said]
    assert ours.path == sdk.path
    assert len(headers) == 7
    assert [ours.headers[each] for each in headers] == [sdk.headers[each] for each in headers]


async def test_langfuse_is_told_of_runs_calls_and_errors_as_by_its_own_sdk(agents, app, receiver, exporting, tmp_path):
    from langfuse import Langfuse, propagate_attributes
    from opentelemetry.sdk.trace import TracerProvider

    theirs = Langfuse(
        public_key="pk-lf-2", secret_key="sk-lf-2", base_url=receiver.url, tracer_provider=TracerProvider()
    )
    metadata = {"agent_id": "watch", "tenant": "default", "trigger": "api"}
    with (
        propagate_attributes(
            user_id="default",
            session_id="default/watch",
            trace_name="watch",
            tags=["api", "scripted"],
            metadata=metadata,
        ),
        theirs.start_as_current_observation(name="run", as_type="agent"),
    ):
        usage, cost = {"input": 8, "output": 3, "input_cached_tokens": 2}, {"total": 0.25}
        theirs.start_observation(name="call", as_type="generation", usage_details=usage, cost_details=cost).end()
        theirs.start_observation(name="act", as_type="tool", level="ERROR", status_message="no").end()
    theirs.shutdown()
    spent = {"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 2, "cost": 0.25}
    folder = agents({**asks("shop__order", item="nothing"), "usage": spent}, {"text": "sorry", "usage": spent})
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", app=app) as runtime,
        exporting(runtime.store) as export,
    ):
        await runtime.trigger("watch")
        sdk = told_by(receiver.spans)
        receiver.batches.clear()
        await export.step()

    ours = told_by(receiver.spans)
    assert sdk.keys() == {"agent", "generation", "tool"}
    of_nothing_else = {"langfuse.environment"}
    compared = {
        kind: [key for key in attributes if key not in of_nothing_else and not key.startswith("langfuse.internal.")]
        for kind, attributes in sdk.items()
    }
    assert {kind: {key: ours[kind].get(key) for key in keys} for kind, keys in compared.items()} == {
        kind: {key: sdk[kind][key] if key != STATUS else ours[kind][key] for key in keys}
        for kind, keys in compared.items()
    }
    assert "there is no nothing" in ours["tool"][STATUS]


STATUS = "langfuse.observation.status_message"


def told_by(spans):
    """What Langfuse reads of the last span of each type."""
    return {
        span.attributes["langfuse.observation.type"]: {
            key: json.loads(value) if key.endswith("_details") else value
            for key, value in span.attributes.items()
            if key.startswith(("langfuse.", "user.", "session."))
        }
        for span in spans
    }


def test_the_names_of_attributes_are_those_of_the_conventions_and_of_langfuse():
    from langfuse import LangfuseOtelSpanAttributes
    from opentelemetry.semconv._incubating.attributes import session_attributes, user_attributes
    from opentelemetry.semconv.attributes import error_attributes

    from owlclaw_ray.telemetry.tracing import attributes

    ours = {value for name, value in vars(attributes).items() if name.isupper()}
    modules = (gen_ai_attributes, session_attributes, user_attributes, error_attributes)
    known = {value for module in modules for value in vars(module).values() if isinstance(value, str)}
    known |= {value for value in vars(LangfuseOtelSpanAttributes).values() if isinstance(value, str)}
    assert {each for each in ours if not each.startswith(("owlclaw.", "service."))} <= known


def test_an_application_has_one_mask():
    app = OwlClaw("shop")
    app.mask_traces(lambda value: value)

    with pytest.raises(ConfigurationError, match="mask_traces"):
        app.mask_traces(lambda value: value)


class Flaky:
    """A model that answers at the second try."""

    def __init__(self):
        self.tries = 0

    def serves(self, model):
        return True

    async def load(self):
        pass

    async def complete(self, request, model):
        self.tries += 1
        if self.tries == 1:
            raise ModelUnavailableError("too busy")
        return ModelReply("done", (), model)


async def test_a_failed_attempt_is_an_event_of_the_call_that_was_answered_after_all(
    agents, receiver, exporting, tmp_path
):
    folder = agents({"text": "never asked"})
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", models=[Flaky()]) as runtime,
        exporting(runtime.store) as export,
    ):
        await runtime.trigger("watch")
        await export.step()

    [call] = of(receiver.spans, "chat")
    [event] = call.events
    assert not call.failed
    assert (event.name, event.attributes["owlclaw.model.reason"]) == ("owlclaw.model.attempt_failed", "too busy")


class Slow:
    """Two models: one refuses after 20 s, the other answers after 2 s."""

    def __init__(self, clock):
        self.clock = clock

    def serves(self, model):
        return True

    async def load(self):
        pass

    async def complete(self, request, model):
        await self.clock.advance(20 if model == "a/first" else 2)
        if model == "a/first":
            raise ModelRefusedError("no such model")
        return ModelReply("done", (), model)


async def test_the_span_of_a_call_begins_with_its_first_attempt_and_knows_when_that_failed(
    agents, receiver, exporting, tmp_path
):
    folder, clock = agents({"text": "never asked"}), ManualClock()
    (folder / "watch" / "agent.yaml").write_text("model: a/first\nfallback: [b/second]\n")
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", models=[Slow(clock)], clock=clock) as runtime,
        exporting(runtime.store) as export,
    ):
        await runtime.trigger("watch")
        await export.step()

    [call] = of(receiver.spans, "chat")
    [event] = call.events
    assert (call.end - call.start, event.time - call.start) == (22 * 10**9, 20 * 10**9)


async def test_a_query_that_was_embedded_at_the_second_attempt_is_no_failed_call_of_the_run(
    agents, receiver, exporting, tmp_path
):
    folder = agents({"text": "ok"})
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data") as runtime,
        exporting(runtime.store) as export,
    ):
        run = await runtime.trigger("watch")
        attempts = (FailedAttempt("embedder", "busy", retryable=True),)
        data = embedding_record(
            EmbeddedCall("embedder", Usage(), run.finished_at, 5, attempts), EmbeddingPurpose.RECALL
        )
        of_run = run.agent.tenant, run.agent.agent_id, run.run_id
        record = LedgerRecord(RecordId("rec_query"), *of_run, LedgerKind.MODEL_CALL, run.finished_at, data)
        await runtime.store.apply([AppendLedger((record,))])
        await export.step()

    assert [each.name for each in of(receiver.spans, "chat")] == ["chat scripted:script.yaml"]
    assert not any(each.failed for each in receiver.spans)


async def test_a_run_that_was_cancelled_before_it_began_is_a_trace_without_calls(receiver, exporting, tmp_path):
    store = await open_store(f"sqlite:///{tmp_path}/owlclaw.db", writer="keeper")
    async with exporting(store) as export:
        await store.apply([submission("run_1"), CancelRun(AGENT.tenant, RunId("run_1"), NOW + timedelta(seconds=5))])
        await export.step()
    await store.close()

    [root] = receiver.spans
    assert (root.attributes["owlclaw.run.status"], root.failed) == ("cancelled", False)
    assert (root.end - root.start) == 5 * 10**9


async def test_the_time_that_a_run_waits_for_a_person_is_a_span(agents, app, receiver, exporting, tmp_path):
    folder = agents(asks("shop__order", item="tea"), {"text": "ordered"})
    definition = folder / "watch" / "agent.yaml"
    definition.write_text("model: scripted:script.yaml\npermissions: {ask: [shop.order]}\n")
    async with (
        in_process_runtime(agents_dir=folder, data_dir=tmp_path / "data", app=app) as runtime,
        exporting(runtime.store) as export,
    ):
        accepted = await runtime.submit(AgentRef.parse("watch"), Trigger(TriggerKind.API))
        waiting = []
        while not waiting:
            waiting = await runtime.approvals(ApprovalFilter(AGENT.tenant))
            await asyncio.sleep(0)
        decision = ApprovalDecision(Decision.ALLOW_ONCE, "ada")
        await runtime.decide(AGENT.tenant, waiting[0].request.approval_id, decision)
        await runtime.outcome(accepted)
        await export.step()

    [root] = of(receiver.spans, "invoke_agent")
    [wait] = [each for each in receiver.spans if each.name == "wait for approvals"]
    [tool] = of(receiver.spans, "execute_tool")
    assert wait.parent_id == root.span_id
    assert wait.end <= tool.end
    assert not root.failed


async def test_a_run_that_another_one_starts_is_part_of_its_trace(agents, receiver, exporting, tmp_path):
    assigned = {"agent_definition_id": "helper", "assignment": "look around"}
    folder = agents(asks("agent.create_sub_agent", **assigned), {"text": "done"})
    shutil.copytree(folder / "watch", folder / "helper")
    (folder / "helper" / "agent.yaml").write_text("model: scripted:echo\n")
    async with (
        in_process_runtime(
            agents_dir=folder, data_dir=tmp_path / "data", host_tools=HostTools(agents=AgentOptions())
        ) as runtime,
        exporting(runtime.store) as export,
    ):
        run = await runtime.trigger("watch")
        await export.step()

    child, parent = of(receiver.spans, "invoke_agent")
    [tool] = of(receiver.spans, "execute_tool")
    assert {each.attributes["session.id"] for each in receiver.spans} == {"default/watch"}
    assert child.name == "invoke_agent helper"
    assert (child.trace_id, child.parent_id) == (parent.trace_id, tool.span_id)
    assert child.attributes["owlclaw.parent_run"] == run.run_id
    assert "langfuse.trace.name" not in child.attributes
    assert [each.name for each in receiver.spans if each.name.startswith("wait")] == ["wait for runs"]
