"""What a receiver of OTLP gets of calls for vectors, decoded from the bytes on the wire."""

from __future__ import annotations

import asyncio
import json
from typing import get_args

import pytest
import yaml
from langfuse._client.constants import ObservationTypeGenerationLike
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.ids import ToolCallId
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.in_process import in_process_runtime
from tests.paid_embeddings import Provider

WATCH = AgentRef.parse("watch")
FRIDAYS = "the disk fills on Fridays"
QUARTER = 250 * 10**6
"""Of a second, in nanoseconds."""


class SlowProvider(Provider):
    """Takes a quarter of a second for an answer."""

    def __init__(self, clock, failing):
        super().__init__(failing)
        self._clock = clock

    async def embed(self, request):
        await self._clock.advance(0.25)
        return self.ask(request)


class Model:
    """Gives the replies that it was told, for ten tokens and a dollar each."""

    def __init__(self, *replies):
        self._replies = iter(replies)

    def serves(self, model):
        return True

    async def load(self):
        """Have nothing to load."""

    async def complete(self, request, model):
        calls = tuple(
            ToolCall(ToolCallId(f"call_{number}"), tool, json.dumps(arguments))
            for number, (tool, arguments) in enumerate(next(self._replies))
        )
        return ModelReply("ok", calls, "openai/chat", Usage(10, 5, cost=1.0))


@pytest.fixture
def runtime_of(tmp_path):
    folder = tmp_path / "agents" / "watch"
    folder.mkdir(parents=True)
    (folder / "SOUL.md").write_text("You are calm.")
    (folder / "IDENTITY.md").write_text("# Watch\n\n## My Capabilities\n- look\n")
    (folder / "agent.yaml").write_text(yaml.safe_dump({"model": "openai/chat"}))
    clock = ManualClock()

    def start(*replies, failing=0):
        return in_process_runtime(
            agents_dir=folder.parent,
            data_dir=tmp_path / "data",
            models=[Model(*replies)],
            clock=clock,
            embedder="litellm:openai/x",
            embedding=SlowProvider(clock, failing),
        )

    return start


def of(spans, operation):
    return [each for each in spans if each.attributes.get("gen_ai.operation.name") == operation]


def total(spans, attribute):
    return sum(each.attributes.get(attribute, 0) for each in spans)


def assert_adds_up(root, parts):
    for of_part, of_run in (
        ("gen_ai.usage.input_tokens", "owlclaw.run.input_tokens"),
        ("gen_ai.usage.output_tokens", "owlclaw.run.output_tokens"),
        ("owlclaw.cost", "owlclaw.run.cost"),
    ):
        assert total(parts, of_part) == root.attributes[of_run] > 0


async def test_a_question_s_vector_is_a_span_of_its_tool_call_and_that_of_the_start_one_of_the_run(
    runtime_of, receiver, exporting
):
    async with (
        runtime_of([("recall", {"query": "when"})], [], failing=1) as runtime,
        exporting(runtime.store) as export,
    ):
        await runtime.memory.remember(WATCH, FRIDAYS)
        await asyncio.to_thread(runtime.indexed_memory.settle)
        run = await runtime.trigger("watch", {"question": "why does the disk fill"})
        await export.step()

    [root], [tool] = of(receiver.spans, "invoke_agent"), of(receiver.spans, "execute_tool")
    chats, (start, question) = of(receiver.spans, "chat"), of(receiver.spans, "embeddings")
    assert (start.parent_id, question.parent_id) == (root.span_id, tool.span_id)
    for span in (start, question):
        assert (span.name, span.kind, span.failed) == ("embeddings openai/x", "CLIENT", False)
        assert span.end - span.start == QUARTER
        assert span.attributes["gen_ai.request.model"] == "openai/x"
        assert span.attributes["gen_ai.provider.name"] == "openai"
        assert span.attributes["gen_ai.usage.input_tokens"] == 1
        assert span.attributes["owlclaw.cost"] == 0.25
        assert span.attributes["owlclaw.embedding.purpose"] == "recall"
        assert span.attributes["langfuse.observation.type"] == "embedding"
        assert json.loads(span.attributes["langfuse.observation.usage_details"]) == {"input": 1, "output": 0}
        assert json.loads(span.attributes["langfuse.observation.cost_details"]) == {"total": 0.25}
        assert [event.attributes["owlclaw.model.reason"] for event in span.events] == ["busy"]
    assert tool.start <= question.start < question.end <= tool.end
    assert root.start <= start.start < start.end <= chats[0].start
    assert_adds_up(root, [*chats, start, question])
    assert root.attributes["owlclaw.run.cost"] == run.result.usage.cost == 2.5


async def test_vectors_of_what_a_run_remembered_are_a_span_of_it(runtime_of, receiver, exporting):
    async with (
        runtime_of([("remember", {"content": FRIDAYS})], []) as runtime,
        exporting(runtime.store) as export,
    ):
        run = await runtime.trigger("watch")
        await asyncio.to_thread(runtime.indexed_memory.settle)
        await export.step()

    [root], chats = of(receiver.spans, "invoke_agent"), of(receiver.spans, "chat")
    [span] = of(receiver.spans, "embeddings")
    assert (span.parent_id, span.trace_id) == (root.span_id, root.trace_id)
    assert (span.attributes["owlclaw.embedding.purpose"], span.end - span.start) == ("index", QUARTER)
    assert_adds_up(root, [*chats, span])
    assert root.attributes["owlclaw.run.cost"] == run.result.usage.cost + 0.25


def test_the_names_are_those_of_the_conventions_and_of_langfuse():
    assert gen_ai_attributes.GenAiOperationNameValues.EMBEDDINGS.value == "embeddings"
    assert "embedding" in get_args(ObservationTypeGenerationLike)
