"""The ModelGateway and its helpers on real Ray, with real litellm, against a local server that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field

import psutil
import pytest
from msgspec.structs import replace

from actors.gateway_link import GatewayLink
from actors.model_gateway import ModelGatewayActor
from actors.plan import WorkerPlan
from actors.remote import GATEWAY, full_name, kill, make
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.pooled_client import PoolGrowth
from owlclaw_ray.testing.openai_server import CannedReply, Hang, OpenAIServer
from tests.actors.gateway_calls import calls_over
from tests.model_requests import model_request

pytestmark = pytest.mark.ray

NAMESPACE = "pool-trial"
FOREVER = 10**9


@dataclass
class Provider:
    """Answers each question once it was asked as often as the test wants; until then it hangs."""

    hangs: Counter[str] = field(default_factory=Counter)

    def __call__(self, recorded):
        question = recorded.body["messages"][-1]["content"]
        self.hangs[question] -= 1
        return Hang() if self.hangs[question] >= 0 else CannedReply(f"answer to {question}")


def request(question, timeout=60.0):
    return model_request("openai/test-model", question=question, timeout=timeout)


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def server(provider):
    with OpenAIServer(provider) as server:
        yield server


@pytest.fixture
def gateway(trial, server):
    """A gateway that takes one helper as soon as calls wait, however little CPU it uses."""
    plan = replace(
        trial.plan,
        worker=WorkerPlan("", "", "", "none", NAMESPACE),
        model_retry=RetryPolicy(attempts=1),
        model_workers_max=2,
        model_growth=PoolGrowth(busy=0.0, look=0.2),
    )
    variables = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test"}
    environment = {"env_vars": variables}
    actor = make(
        ModelGatewayActor, plan, name=full_name(GATEWAY), namespace=NAMESPACE, runtime_env=environment, max_restarts=-1
    )
    yield actor
    kill(actor)


@pytest.fixture
async def link(gateway):
    return GatewayLink("trial", NAMESPACE)


@pytest.fixture
async def hanging(link):
    """Calls that nobody has answered yet."""
    async with calls_over(link) as calls:
        yield calls


def asks(process, server):
    """Whether that process has a connection to the server."""
    port = int(server.base_url.split(":")[2].split("/")[0])
    try:
        return any(connection.raddr and connection.raddr.port == port for connection in process.net_connections("tcp"))
    except psutil.Error:
        return False


async def hangs(link, server):
    """Begin a call, and return it when the server has it."""
    call = asyncio.create_task(link.complete(request("hang")))
    assert await asyncio.to_thread(server.wait_for_request)
    return call


async def grown(trial, server, link, hanging):
    """Have calls wait until the gateway has a helper, and the last of them made by it; return its process."""
    hanging += [await hangs(link, server), await hangs(link, server)]
    while True:
        probe = await hangs(link, server)
        for helper in trial.processes("ModelWorkerActor"):
            if asks(helper, server):
                hanging.append(probe)
                return helper
        probe.cancel()
        assert await asyncio.to_thread(server.wait_for_disconnect)


async def test_a_gateway_with_waiting_calls_gets_a_helper_whose_death_costs_no_attempt(
    trial, provider, server, link, hanging
):
    provider.hangs["hang"] = FOREVER
    helper = await grown(trial, server, link, hanging)
    assert len(trial.processes("ModelWorkerActor")) == 1

    provider.hangs["hang"] = 0
    os.kill(helper.pid, 9)
    reply = await hanging[-1]

    assert (reply.text, reply.failed_attempts) == ("answer to hang", ())
    assert not any(task.done() for task in hanging[:-1])


async def test_cancelling_a_call_closes_the_connection_of_the_helper_that_makes_it(
    trial, provider, server, link, hanging
):
    provider.hangs["hang"] = FOREVER
    helper = await grown(trial, server, link, hanging)

    hanging[-1].cancel()

    assert await asyncio.to_thread(server.wait_for_disconnect)
    async with asyncio.timeout(10):
        while asks(helper, server):
            await asyncio.sleep(0)
    assert not any(task.done() for task in hanging[:-1])


async def test_helpers_end_with_their_gateway_and_its_successor_makes_the_calls_again(
    trial, provider, server, link, hanging
):
    provider.hangs["hang"] = FOREVER
    helper = await grown(trial, server, link, hanging)
    provider.hangs["hang"] = 0

    for process in trial.processes("ModelGatewayActor"):
        if asks(process, server):
            os.kill(process.pid, 9)
    replies = await asyncio.gather(*hanging)

    assert {reply.text for reply in replies} == {"answer to hang"}
    assert await asyncio.to_thread(psutil.wait_procs, [helper], 60) == ([helper], [])


async def test_a_time_limit_starts_when_the_client_is_loaded(gateway, link):
    reply = await link.complete(request("at once", timeout=2.0))

    assert (reply.text, reply.failed_attempts) == ("answer to at once", ())
