"""A provider that accepts calls and never answers, beside one that does: both are real servers, asked by the real client."""

import asyncio
import resource

import pytest
from msgspec.structs import replace

from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.models.model_gateway import ModelGateway
from owlclaw_ray.testing.openai_server import CannedReply, Hang, OpenAIServer
from tests.model_requests import model_request

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_two_hundred_agents_of_a_provider_that_hangs_keep_no_other_from_its_answers(client, monkeypatch):
    with OpenAIServer(lambda _: Hang()) as hanging, OpenAIServer(lambda _: CannedReply("well")) as well:
        monkeypatch.setenv("OPENAI_BASE_URL", hanging.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", well.base_url)
        monkeypatch.setenv("HOSTED_VLLM_API_KEY", "sk-test")
        gateway = ModelGateway([client], clock=SystemClock(), retry=RetryPolicy(), jitter=lambda: 0.0)

        def ask(agent, model):
            request = replace(model_request(model, timeout=600.0), agent_id=f"agent:{agent}")
            return asyncio.create_task(gateway.complete(request))

        hung = [ask(number, "openai/test-model") for number in range(200)]
        while not gateway.slots or len(hanging.requests) < gateway.slots[0].running:
            await asyncio.sleep(0.01)

        replies = await asyncio.gather(*(ask(number, "hosted_vllm/test-model") for number in range(50)))

        assert [reply.text for reply in replies] == ["well"] * 50
        assert not any(task.done() for task in hung)
        assert len(hanging.requests) == gateway.slots[0].running < 200
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)
        assert (gateway.slots[0].running, gateway.slots[0].waiting) == (0, 0)


@pytest.fixture
def many_files():
    """Allows this process as many connections as a test needs whose client and server are both in it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
async def test_the_client_has_no_bound_of_its_own_on_the_calls_of_a_provider(client, server):
    """Else calls would wait for a connection, and spend their time limit with it."""
    server.enqueue(*[Hang() for _ in range(600)])
    asking = []
    while len(asking) < 600:  # in parts, for more would not fit into the line before the server
        request = model_request("openai/test-model", timeout=600.0)
        asking += [asyncio.create_task(client.complete(request, "openai/test-model")) for _ in range(50)]
        while len(server.requests) < len(asking):
            await asyncio.sleep(0.01)

    assert not any(task.done() for task in asking)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
