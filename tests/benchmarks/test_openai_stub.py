import httpx
import orjson
import pytest

from benchmarks.child import running
from benchmarks.litellm_calls import measure_litellm
from owlclaw_ray.models.litellm_client import load_litellm

TOOL = {"type": "function", "function": {"name": "log_decision", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "what now?"}


def ask(url, *messages):
    arguments = {"model": "openai/gpt-4o-mini", "tools": [TOOL], "api_base": url, "api_key": "sk-x"}
    return load_litellm().completion(messages=list(messages), **arguments).choices[0]


@pytest.mark.long
def test_the_stub_asks_for_a_tool_and_then_ends_and_its_requests_can_be_repeated(monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with running("benchmarks.openai_stub") as stub:
        first = ask(stub.url, USER)
        call = first.message.tool_calls[0]
        answer = {"role": "tool", "tool_call_id": call.id, "content": "{}"}
        second = ask(stub.url, USER, first.message.model_dump(), answer)

        assert call.function.name == "log_decision"
        assert orjson.loads(call.function.arguments)["reasoning"]
        assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
        assert second.message.content == "done"
        assert orjson.loads((stub.folder / "second.json").read_bytes())["messages"][-1]["role"] == "tool"

        keys = {"OPENAI_API_KEY": "sk-x", "OPENAI_BASE_URL": stub.url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        cost = measure_litellm(stub.folder, keys, 0.2)
        assert cost.pairs > 0
        assert cost.cpu_ms_per_pair > 0
    assert not stub.folder.exists()
    assert not stub.tree.processes()


@pytest.mark.long
def test_a_long_request_in_pieces_gets_one_answer():
    with running("benchmarks.openai_stub") as stub, httpx.Client() as client:
        body = {"model": "gpt-4o-mini", "messages": [{**USER, "content": "x" * 300_000}]}
        answers = [client.post(f"{stub.url}/chat/completions", json=body).json() for _ in range(2)]

    assert [answer["choices"][0]["finish_reason"] for answer in answers] == ["tool_calls", "tool_calls"]
