"""Whose key arrives at a provider: the tenant's own where it has one, else the runtime's."""

from __future__ import annotations

import asyncio
import logging

import pytest
import pytest_asyncio
from msgspec.structs import replace

from owlclaw_ray.domain.embedding import EmbeddingRequest
from owlclaw_ray.domain.endpoint import Endpoint
from owlclaw_ray.domain.model import ModelReply
from owlclaw_ray.errors import (
    ModelOverloadedError,
    ModelRefusedError,
    ModelUnavailableError,
    NotFoundError,
    SecretsUnavailableError,
    StoreUnavailableError,
)
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.litellm_client import LiteLLMClient
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.models.tenant_keys import FRESH_SECONDS, TenantKeys
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.openai_server import CannedFailure, CannedReply, FunctionCall, OpenAIServer, Vectors
from tests.model_requests import model_request

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACME, BEAR, CORE = TenantId("acme"), TenantId("bear"), TenantId("core")
MODELS = ["openai/qwen", "hosted_vllm/qwen", "deepseek/qwen"]


class Vault:
    """Secrets of tenants by tenant and name; an error is raised."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], str | Exception] = {
            (ACME, "PROVIDER_KEY"): "sk-of-acme",
            (BEAR, "PROVIDER_KEY"): "sk-of-bear",
            (CORE, "OTHER"): "sk-other",
        }
        self.asked: list[tuple[str, str]] = []

    async def secret(self, tenant: TenantId, name: str) -> str:
        self.asked.append((tenant, name))
        found = self.values.get((tenant, name), NotFoundError("secret", name))
        if isinstance(found, Exception):
            raise found
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loaded():
    client = LiteLLMClient()
    await client.load()
    yield client
    await client.close()


@pytest.fixture
def vault() -> Vault:
    return Vault()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def keys(vault, clock) -> TenantKeys:
    return TenantKeys(vault.secret, clock)


@pytest.fixture
def client(loaded, keys) -> LiteLLMClient:
    client = LiteLLMClient(keys)
    client._litellm = loaded._litellm
    return client


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("RUNTIME_KEY", "sk-of-the-runtime")
    with OpenAIServer() as server:
        yield server


def asking(tenant, model, server, question="你好", *, stream=False, **more):
    endpoint = Endpoint(model.partition("/")[0], server.base_url, "${RUNTIME_KEY}", key_secret="PROVIDER_KEY")
    request = replace(model_request(model, question=question), tenant=tenant)
    choice = replace(request.model, stream=stream, endpoints=(replace(endpoint, **more),))
    return replace(request, model=choice), model


def authorizations(server) -> dict[str, set[str]]:
    """The keys that arrived, by the question beside which they did."""
    found: dict[str, set[str]] = {}
    for each in server.requests:
        found.setdefault(each.body["messages"][-1]["content"], set()).add(each.headers["authorization"])
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", MODELS)
async def test_calls_of_tenants_at_the_same_time_have_each_their_own_key(client, server, model, stream):
    tenants = (ACME, BEAR, CORE)
    calls = [asking(each, model, server, question=f"of {each}", stream=stream) for each in tenants for _ in range(10)]

    await asyncio.gather(*(client.complete(*each) for each in calls))

    assert authorizations(server) == {
        "of acme": {"Bearer sk-of-acme"},
        "of bear": {"Bearer sk-of-bear"},
        "of core": {"Bearer sk-of-the-runtime"},
    }


async def test_a_tenant_needs_no_key_of_the_runtime_and_without_any_is_told_both_ways(client, server, vault):
    for tenant in (ACME, CORE):
        request = asking(tenant, "openai/qwen", server, api_key="${NO_SUCH_KEY}")
        if tenant is ACME:
            await client.complete(*request)
        else:
            with pytest.raises(ModelRefusedError, match="set the tenant's secret PROVIDER_KEY, or set NO_SUCH_KEY in"):
                await client.complete(*request)

    assert [each.headers["authorization"] for each in server.requests] == ["Bearer sk-of-acme"]


async def test_no_other_endpoint_gets_the_key(client, server, vault, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    general = Endpoint("openai", "http://127.0.0.1:1/v1", key_secret="PROVIDER_KEY")
    elsewhere = Endpoint("openai", server.base_url).over(general)
    request, model = asking(ACME, "openai/qwen", server)
    for endpoints in ((elsewhere,), (), (replace(general, provider="deepseek"),)):
        await client.complete(replace(request, model=replace(request.model, endpoints=endpoints)), model)

    assert [each.headers["authorization"] for each in server.requests] == ["Bearer none", *2 * ["Bearer sk-of-openai"]]
    assert vault.asked == []


async def test_an_agent_file_s_own_key_goes_before_the_tenants_that_another_file_names():
    general = Endpoint("openai", api_key="${A}", key_secret="PROVIDER_KEY")

    assert Endpoint("openai", api_key="${B}").over(general).key_secret == ""
    assert Endpoint("openai", api_version="1").over(general).key_secret == "PROVIDER_KEY"
    assert Endpoint("openai", key_secret="MINE").over(general).api_key == "${A}"


async def test_a_key_is_read_once_for_some_seconds_and_a_new_one_is_used_after_them(client, server, vault, clock):
    async def key():
        await client.complete(*asking(ACME, "openai/qwen", server))
        return server.requests[-1].headers["authorization"]

    await asyncio.gather(*(client.complete(*asking(ACME, "openai/qwen", server)) for _ in range(5)))
    vault.values[ACME, "PROVIDER_KEY"] = "sk-newer"
    before, asked = await key(), len(vault.asked)
    await clock.advance(FRESH_SECONDS)

    assert (before, asked, await key()) == ("Bearer sk-of-acme", 1, "Bearer sk-newer")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (SecretsUnavailableError("no master key opens it"), ModelRefusedError),
        (StoreUnavailableError("the Keeper is being restarted"), ModelUnavailableError),
    ],
)
async def test_what_is_not_known_of_a_tenant_s_key_does_not_cost_the_runtime_s(client, server, vault, error, raised):
    vault.values[ACME, "PROVIDER_KEY"] = error

    with pytest.raises(raised, match="PROVIDER_KEY"):
        await client.complete(*asking(ACME, "openai/qwen", server))

    assert server.requests == []


async def test_a_key_that_a_provider_says_again_is_in_no_error_reply_or_log(client, server, keys):
    server.enqueue(CannedFailure(401, "Incorrect API key provided: sk-of-acme"))
    server.enqueue(CannedReply("you sent sk-of-acme", [FunctionCall("tell", '{"key": "sk-of-acme"}')]))

    with pytest.raises(ModelRefusedError) as refused:
        await client.complete(*asking(ACME, "openai/qwen", server))
    reply = await client.complete(*asking(ACME, "openai/qwen", server))

    assert "provider refused the key (401)" in str(refused.value)
    assert "check the tenant's secret PROVIDER_KEY" in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
    shown = "[redacted:PROVIDER_KEY]"
    assert shown in str(refused.value)
    assert (reply.text, reply.tool_calls[0].arguments) == (f"you sent {shown}", f'{{"key": "{shown}"}}')
    assert "sk-of-acme" not in str(refused.value) + str(reply)
    assert keys.read.hidden("a log of sk-of-acme") == f"a log of {shown}"
    assert logging.getLogger("LiteLLM").level == logging.ERROR


class Limited:
    """A provider that says of one tenant that it asks too often, and holds the calls of the other."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.go_on = asyncio.Event()

    def serves(self, model: str) -> bool:
        return True

    async def load(self) -> None:
        pass

    async def complete(self, request, model) -> ModelReply:
        self.running.append(request.tenant)
        if request.tenant == ACME:
            raise ModelOverloadedError("rate limited by the provider (429)")
        await self.go_on.wait()
        return ModelReply("ok", (), model)


async def test_a_provider_that_limits_one_tenant_s_key_leaves_the_others_their_places(server, keys, clock):
    provider = Limited()
    gateway = ModelGateway(
        [provider], clock=clock, retry=RetryPolicy(1), max_concurrent=8, jitter=lambda: 0.0, keys=keys
    )

    async def call(tenant):
        return await gateway.complete(asking(tenant, "openai/qwen", server)[0])

    for _ in range(20):
        with pytest.raises(ModelUnavailableError):
            await call(ACME)
    others = [
        asyncio.create_task(call(each)) for each in (BEAR, CORE, TenantId("dusk"), TenantId("east")) for _ in "ab"
    ]
    await clock.settle()
    [seen] = gateway.slots
    provider.go_on.set()
    await asyncio.gather(*others)

    assert provider.running[20:] == [BEAR, BEAR, CORE, CORE, "dusk", "dusk", "east", "east"]
    assert (seen.provider.partition(" at ")[0], seen.running, seen.waiting) == ("openai", 8, 0)


def embedding(tenant, server, text="你好", **more):
    endpoint = Endpoint("openai", server.base_url, "${RUNTIME_KEY}", key_secret="PROVIDER_KEY")
    return EmbeddingRequest("openai/vectors", (text,), 5.0, 5.0, replace(endpoint, **more), tenant=tenant)


async def test_vectors_of_tenants_at_the_same_time_are_made_with_each_their_own_key(client, server, vault, clock):
    tenants = (ACME, BEAR, CORE)
    server.enqueue(*[Vectors()] * 31)

    await asyncio.gather(*(client.embed(embedding(each, server, f"of {each}")) for each in tenants for _ in range(10)))
    vault.values[ACME, "PROVIDER_KEY"] = "sk-newer"
    await clock.advance(FRESH_SECONDS)
    await client.embed(embedding(ACME, server, "later"))

    found: dict[str, set[str]] = {}
    for each in server.requests:
        (text,) = each.body["input"]
        found.setdefault(text, set()).add(each.headers["authorization"])
    assert found == {
        "of acme": {"Bearer sk-of-acme"},
        "of bear": {"Bearer sk-of-bear"},
        "of core": {"Bearer sk-of-the-runtime"},
        "later": {"Bearer sk-newer"},
    }


async def test_vectors_cost_the_runtime_nothing_while_the_tenants_key_is_not_known_and_errors_have_no_key(
    client, server, vault
):
    vault.values[ACME, "PROVIDER_KEY"] = StoreUnavailableError("the Keeper is being restarted")
    with pytest.raises(ModelUnavailableError, match="PROVIDER_KEY"):
        await client.embed(embedding(ACME, server))
    with pytest.raises(ModelRefusedError, match="set the tenant's secret PROVIDER_KEY, or set NO_SUCH_KEY in"):
        await client.embed(embedding(CORE, server, api_key="${NO_SUCH_KEY}"))
    assert server.requests == []

    server.enqueue(CannedFailure(401, "Incorrect API key provided: sk-of-bear"))
    with pytest.raises(ModelRefusedError, match=r"\[redacted:PROVIDER_KEY\]") as refused:
        await client.embed(embedding(BEAR, server))

    assert "sk-of-bear" not in str(refused.value)
    assert refused.value.__cause__ is None
