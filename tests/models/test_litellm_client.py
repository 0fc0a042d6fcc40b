import asyncio
import sys

import orjson
import pytest

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.endpoint import Endpoint, RealModel
from owlclaw_ray.domain.model import ContextWindow, Message, MessageRole, ModelRequest, Price
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import ContextWindowExceededError, ModelRefusedError, ModelUnavailableError
from owlclaw_ray.ids import RequestId, ToolCallId
from owlclaw_ray.models.litellm_client import LiteLLMClient
from owlclaw_ray.models.litellm_prices import local_prices, misspelling_hint, price_in
from owlclaw_ray.testing.openai_server import CannedFailure, CannedReply, Drop, FunctionCall, Hang, Raw

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "openai/test-model"
TOOLS = orjson.dumps([{"type": "function", "function": {"name": "recall", "description": "记忆", "parameters": {}}}])
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def question(*history: Message, stream=False, timeout=20.0, tools=TOOLS, **choice) -> ModelRequest:
    return ModelRequest(
        request_id=RequestId("req_1"),
        model=ModelChoice((MODEL,), stream=stream, **choice),
        system="你是一个交易员。",
        messages=(Message(MessageRole.USER, "现在怎么样?"), *history),
        tools=tools,
        timeout=timeout,
        agent_id="trader",
        run_id="run_1",
        trigger=Trigger(TriggerKind.API),
    )


@BOTH
async def test_a_reply_has_text_calls_and_usage(client, server, stream):
    calls = [FunctionCall("recall", '{"query": "负载"}', "call_a"), FunctionCall("remember", "{}", "call_b")]
    server.enqueue(CannedReply("好的。", calls, prompt_tokens=100, completion_tokens=20, cached_tokens=64))

    reply = await client.complete(question(stream=stream), MODEL)

    assert reply.text == "好的。"
    assert reply.tool_calls == (
        ToolCall(ToolCallId("call_a"), "recall", '{"query": "负载"}'),
        ToolCall(ToolCallId("call_b"), "remember", "{}"),
    )
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens) == (100, 20, 64)
    assert (reply.usage.cost, reply.model, reply.scripted) == (0.0, MODEL, False)
    assert server.requests[0].body.get("stream", False) is stream


@BOTH
async def test_the_cost_follows_the_price_list(client, server, stream):
    server.enqueue(CannedReply("ok", prompt_tokens=1_000_000, completion_tokens=0))

    reply = await client.complete(question(stream=stream), "openai/gpt-4o")

    assert reply.usage.cost == pytest.approx(2.5)


async def test_an_organisation_and_a_project_of_openai_s_go_with_each_call(server, monkeypatch):
    monkeypatch.delenv("EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER", raising=False)
    monkeypatch.setenv("OPENAI_ORGANIZATION", "org-a")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-b")
    client = LiteLLMClient()

    assert (await client.complete(question(), MODEL)).model == MODEL

    headers = server.requests[0].headers
    assert (headers["openai-organization"], headers["openai-project"]) == ("org-a", "proj-b")


async def test_providers_that_merely_speak_openai_s_protocol_answer_and_openai_s_own_models_do_after_them(
    server, monkeypatch
):
    monkeypatch.delenv("EXPERIMENTAL_OPENAI_BASE_LLM_HTTP_HANDLER", raising=False)
    monkeypatch.setenv("XINFERENCE_API_BASE", server.base_url)
    monkeypatch.setenv("XINFERENCE_API_KEY", "sk-test")
    client = LiteLLMClient()

    for model in (MODEL, "xinference/qwen", MODEL):
        server.enqueue(CannedReply("ok"))
        assert (await client.complete(question(), model)).text == "ok"


async def test_the_conversation_goes_out_in_openai_form(client, server):
    call = ToolCall(ToolCallId("call_a"), "recall", '{"query":"负载"}')
    history = (
        Message(MessageRole.ASSISTANT, "", (call,)),
        Message(MessageRole.TOOL, '{"count":0}', call_id=call.call_id),
    )

    await client.complete(question(*history, temperature=0.2, max_tokens=99), MODEL)

    body = server.requests[0].body
    assert body["messages"] == [
        {"role": "system", "content": "你是一个交易员。"},
        {"role": "user", "content": "现在怎么样?"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "call_a", "type": "function", "function": {"name": "recall", "arguments": '{"query":"负载"}'}}
            ],
        },
        {"role": "tool", "content": '{"count":0}', "tool_call_id": "call_a"},
    ]
    assert body["tools"] == orjson.loads(TOOLS)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("test-model", 0.2, 99)


async def test_without_tools_none_are_sent(client, server):
    await client.complete(question(tools=b"[]"), MODEL)

    assert "tools" not in server.requests[0].body


@BOTH
async def test_malformed_arguments_are_passed_on_as_text(client, server, stream):
    server.enqueue(CannedReply(tool_calls=[FunctionCall("recall", '{"query": "负')]))

    reply = await client.complete(question(stream=stream), MODEL)

    assert [call.arguments for call in reply.tool_calls] == ['{"query": "负']


@BOTH
async def test_calls_without_ids_or_with_used_ones_get_ids_of_their_own(client, server, stream):
    used = ToolCall(ToolCallId("call_0"), "recall", "{}")
    history = (Message(MessageRole.ASSISTANT, "", (used,)), Message(MessageRole.TOOL, "{}", call_id=used.call_id))
    answer = CannedReply(tool_calls=[FunctionCall("recall", "{}", id_) for id_ in ("call_0", "", "call_1", "call_1")])
    server.enqueue(answer)

    reply = await client.complete(question(*history, stream=stream), MODEL)

    ids = [call.call_id for call in reply.tool_calls]
    assert len(set(ids)) == 4
    assert "call_0" not in ids
    assert all(ids)


async def test_calls_that_a_server_streams_under_one_index_stay_apart(client, server):
    named = [{"function": {"name": name, "arguments": "{}"}, "index": 0, "id": name} for name in ("recall", "remember")]
    deltas = [({"tool_calls": [call]}, None) for call in named] + [({}, "tool_calls")]
    chunks = [{"id": "c", "model": MODEL, "choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in deltas]
    server.enqueue(Raw(b"".join(b"data: " + orjson.dumps(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"))

    reply = await client.complete(question(stream=True), MODEL)

    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("recall", "{}"), ("remember", "{}")]


@BOTH
async def test_a_rate_limit_is_an_outage_with_the_provider_s_wish(client, server, stream):
    server.enqueue(CannedFailure(429, "slow down", {"Retry-After": "7"}))

    with pytest.raises(ModelUnavailableError, match=r"^rate limited by the provider \(429\): slow down$") as caught:
        await client.complete(question(stream=stream), MODEL)

    assert caught.value.retry_after == 7.0
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({}, None), ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, None), ({"Retry-After-Ms": "1500"}, 1.5)],
)
async def test_a_wish_is_read_in_milliseconds_too_and_dates_are_left_alone(client, server, headers, seconds):
    server.enqueue(CannedFailure(429, "slow down", headers))

    with pytest.raises(ModelUnavailableError) as caught:
        await client.complete(question(), MODEL)

    assert caught.value.retry_after == seconds


@BOTH
@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_a_failing_provider_is_an_outage(client, server, status, stream):
    server.enqueue(CannedFailure(status, "overloaded"))

    with pytest.raises(ModelUnavailableError, match=r"the provider failed \(5\d\d\): overloaded"):
        await client.complete(question(stream=stream), MODEL)


@BOTH
async def test_a_provider_that_does_not_answer_is_an_outage(client, server, stream):
    server.enqueue(Hang())

    with pytest.raises(ModelUnavailableError, match=r"did not answer within 0\.2 s"):
        await client.complete(question(stream=stream, timeout=0.2), MODEL)


@pytest.mark.parametrize(
    ("behaviour", "stream"),
    [
        (Drop(), False),
        (Drop(), True),
        (Drop("half a sen"), True),
        (Raw(b'{"choices": ['), False),
        (Raw(b"{}"), False),
        (Raw(b"no events"), True),
    ],
    ids=["dropped", "dropped stream", "dropped in the stream", "no JSON", "no choices", "no events"],
)
async def test_a_broken_answer_is_an_outage_never_half_a_reply(client, server, behaviour, stream):
    server.enqueue(behaviour)

    with pytest.raises(ModelUnavailableError, match="no usable answer from the provider"):
        await client.complete(question(stream=stream), MODEL)


async def test_an_unreachable_provider_is_an_outage(client, server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")

    with pytest.raises(ModelUnavailableError, match="no usable answer from the provider") as raised:
        await client.complete(question(), MODEL)

    assert "ssl" not in str(raised.value)


@BOTH
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, r"rejected the request \(400\): told"),
        (401, r"refused the key \(401\): told; check OPENAI_API_KEY"),
        (402, r"rejected the request \(402\): told"),
        (403, r"refused the key \(403\): told; check OPENAI_API_KEY"),
        (404, r"has no such model \(404\): told; check its name in agent.yaml"),
        (422, r"rejected the request \(4\d\d\): told"),
    ],
)
async def test_what_a_retry_cannot_mend_is_a_refusal(client, server, status, message, stream):
    server.enqueue(CannedFailure(status, "told"))

    with pytest.raises(ModelRefusedError, match=message):
        await client.complete(question(stream=stream), MODEL)


@BOTH
@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "the request exceeds the available context size, try increasing it",
        "prompt is too long: 213462 tokens > 200000 maximum",
    ],
)
async def test_a_prompt_that_is_too_long_for_the_model_is_told_from_other_refusals(client, server, message, stream):
    server.enqueue(CannedFailure(400, message))

    with pytest.raises(ContextWindowExceededError, match="longer than the model takes"):
        await client.complete(question(stream=stream), MODEL)


async def test_context_windows_are_those_of_the_table_that_comes_with_litellm(client, server):
    assert await client.context_window("openai/gpt-4o") == ContextWindow(128_000, 16_384)
    assert await client.context_window("anthropic/claude-sonnet-4-5") == ContextWindow(200_000, 64_000)
    assert await client.context_window("openai/nobody-knows-it") is None
    assert not server.requests


async def test_prices_are_the_highest_of_the_table_that_comes_with_litellm(client, server):
    cached, long = await client.price("anthropic/claude-sonnet-4-5"), await client.price("gemini/gemini-2.5-pro")

    assert await client.price("openai/gpt-4o") == Price(2.5, 10.0)
    assert (cached.prompt > 3.0, cached.completion >= 15.0) == (True, True)
    assert (long.prompt >= 2.5, long.completion >= 15.0) == (True, True)
    assert await client.price("openai/nobody-knows-it") is None
    assert price_in(local_prices(), "openai/gpt-4o") == Price(2.5, 10.0)
    assert not server.requests


@pytest.mark.parametrize(
    ("model", "address", "doubt"),
    [
        ("openai/gpt-4o-mini", "", ""),
        ("gpt-4o-mini", "", ""),
        ("anthropic/claude-sonnet-4-5", "", ""),
        ("openai/gpt-4o-mni", "", "litellm knows no such model; did you mean gpt-4o-mini?"),
        ("gpt4o-mini-x", "", "litellm knows no such model; did you mean gpt-4o-mini?"),
        ("claude-sonet-4-5", "", "litellm knows no such model; did you mean claude-sonnet-4-5?"),
        ("openai/zzzz", "", "litellm knows no such model"),
        ("openai/qwen3", "http://127.0.0.1:8080/v1", ""),
        ("openai/ft:gpt-4o:shop::1", "", ""),
        ("hosted_vllm/qwen3", "", ""),
        ("ollama_chat/qwen3", "", ""),
        ("azure/my-deployment", "", ""),
    ],
)
async def test_a_name_that_nobody_lists_is_doubted_where_a_provider_has_no_others(model, address, doubt):
    endpoint = Endpoint(model.partition("/")[0], address) if address else None

    assert misspelling_hint(RealModel(model, endpoint)) == doubt


async def test_a_name_without_a_provider_is_a_refusal_that_shows_the_form(client, server):
    with pytest.raises(ModelRefusedError, match="knows no provider for it; write provider/model"):
        await client.complete(question(), "nonsense")


async def test_without_a_key_nothing_is_sent_and_the_variable_is_named(client, server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")

    with pytest.raises(ModelRefusedError, match="set OPENAI_API_KEY in the environment"):
        await client.complete(question(), MODEL)

    assert server.requests == []


@BOTH
async def test_cancelling_closes_the_connection(client, server, stream):
    server.enqueue(Hang())
    task = asyncio.create_task(client.complete(question(stream=stream), MODEL))
    assert await asyncio.to_thread(server.wait_for_request)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await asyncio.to_thread(server.wait_for_disconnect)


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY"),
        ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.0-flash", "GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("azure/gpt-4o", "AZURE_API_BASE and AZURE_API_VERSION and AZURE_API_KEY"),
        ("dashscope/qwen-max", "DASHSCOPE_API_KEY"),
        ("ollama/llama3", None),
        ("vertex_ai/gemini-pro", None),
        ("nonsense", None),
    ],
)
async def test_missing_keys_are_named_without_asking_anybody(client, monkeypatch, model, missing):
    for variable in ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "AZURE", "DASHSCOPE"):
        monkeypatch.delenv(f"{variable}_API_KEY", raising=False)

    assert client.missing_key(model) == missing


async def test_a_key_that_is_there_is_not_missing(client, monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "x")

    assert client.missing_key("gemini/gemini-2.0-flash") is None


async def test_it_serves_every_name_but_scripted_ones():
    client = LiteLLMClient()

    assert client.serves("openai/gpt-4o")
    assert not client.serves("scripted:echo")


async def test_without_litellm_it_refuses_and_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)

    with pytest.raises(ModelRefusedError, match="litellm cannot be imported"):
        await LiteLLMClient().load()


async def test_importing_the_client_does_not_import_litellm():
    code = "import sys, owlclaw_ray.models.litellm_client; sys.exit('litellm' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)

    assert await process.wait() == 0
