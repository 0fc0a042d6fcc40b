"""A model is asked where, with which key and with which headers its endpoint says."""

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.embedding import EmbeddingRequest
from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.errors import ModelRefusedError
from owlclaw_ray.testing.openai_server import CannedReply, OpenAIServer, Raw, Vectors
from tests.model_requests import model_request

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLLAMA = b"""{"model": "qwen", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": "ok"},
 "done": true, "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5}"""


@pytest.fixture
def other():
    with OpenAIServer() as other:
        yield other


@pytest.fixture
def office(other, monkeypatch):
    monkeypatch.setenv("OFFICE_KEY", "sk-office")
    monkeypatch.setenv("TEAM", "desk")
    headers = (("X-Team", "team ${TEAM}"), ("X-Plain", "yes"))
    return lambda provider: Endpoint(provider, other.base_url, "${OFFICE_KEY}", headers=headers)


def asking(model, *endpoints, stream=False):
    request = model_request(model)
    return replace(request, model=replace(request.model, stream=stream, endpoints=endpoints)), model


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "model",
    ["openai/qwen", "hosted_vllm/qwen", "lm_studio/qwen", "llamafile/qwen", "litellm_proxy/qwen", "deepseek/qwen"],
)
async def test_a_model_is_asked_at_its_own_address_with_its_key_and_headers(client, other, office, model, stream):
    endpoint = office(model.partition("/")[0])
    other.enqueue(CannedReply("ok"))

    reply = await client.complete(*asking(model, endpoint, stream=stream))

    assert (reply.text, reply.model) == ("ok", model)
    request = other.requests[0]
    assert (request.path, request.body["model"]) == ("/v1/chat/completions", "qwen")
    assert request.headers["authorization"] == "Bearer sk-office"
    assert (request.headers["x-team"], request.headers["x-plain"]) == ("team desk", "yes")


async def test_an_address_gets_no_key_that_is_meant_for_the_provider_s_own(client, server, other):
    await client.complete(*asking("openai/qwen", Endpoint("openai", other.base_url)))

    assert other.requests[0].headers["authorization"] == "Bearer none"


async def test_a_key_of_its_own_goes_where_the_provider_s_variables_say(client, server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("TEAM_KEY", "sk-team")
    endpoint = Endpoint("openai", api_key="${TEAM_KEY}")

    assert client.missing_key("openai/qwen", endpoint) is None
    await client.complete(*asking("openai/qwen", endpoint))

    assert server.requests[0].headers["authorization"] == "Bearer sk-team"


async def test_azure_has_an_address_and_a_version_and_the_key_of_its_variable(client, server, other, monkeypatch):
    address = other.base_url.removesuffix("/v1")
    endpoint = Endpoint("azure", address, api_version="2024-10-21", headers=(("X-Team", "desk"),))
    monkeypatch.delenv("AZURE_API_KEY", raising=False)
    assert client.missing_key("azure/my-deployment", endpoint) == "AZURE_API_KEY"
    monkeypatch.setenv("AZURE_API_KEY", "azure-key")
    other.enqueue(CannedReply("ok"))

    assert (await client.complete(*asking("azure/my-deployment", endpoint))).text == "ok"

    request = other.requests[0]
    assert request.path == "/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"
    assert (request.headers["api-key"], request.headers["x-team"]) == ("azure-key", "desk")


async def test_ollama_is_asked_by_its_own_protocol(client, other):
    endpoint = Endpoint("ollama_chat", other.base_url.removesuffix("/v1"))
    other.enqueue(Raw(OLLAMA))

    assert (await client.complete(*asking("ollama_chat/qwen", endpoint))).text == "ok"

    assert [each.path for each in other.requests] == ["/api/chat"]


async def test_a_call_names_the_variables_that_its_endpoint_lacks(client, other):
    endpoint = Endpoint("openai", other.base_url, "${NO_SUCH_KEY}", headers=(("X-Team", "${NO_SUCH_TEAM}"),))

    with pytest.raises(ModelRefusedError, match="set NO_SUCH_KEY and NO_SUCH_TEAM in the environment"):
        await client.complete(*asking("openai/qwen", endpoint))

    assert other.requests == []


async def test_vectors_come_from_the_provider_s_endpoint(client, server, other, office):
    other.enqueue(Vectors([[0.5, 0.25]]))

    reply = await client.embed(EmbeddingRequest("openai/small", ("tea",), 20.0, 20.0, office("openai")))

    assert (list(reply.vectors[0]), server.requests, other.requests[0].path) == ([0.5, 0.25], [], "/v1/embeddings")
    headers = other.requests[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer sk-office", "team desk")
