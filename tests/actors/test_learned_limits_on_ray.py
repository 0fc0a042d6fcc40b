"""What a gateway learned of its providers is there for the next one: real gateways and a real Keeper on Ray, with scripted models."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from actors.gateway_link import GatewayLink
from actors.keeper import KeeperActor
from actors.keeper_client import KeeperClient
from actors.model_gateway import ModelGatewayActor
from actors.plan import WorkerPlan
from actors.remote import GATEWAY, KEEPER, NamedActor, full_name, kill, make
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import RequestId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.models.learned_limits import LearnedLimits
from tests.actors.gateway_calls import calls_over
from tests.model_requests import model_request

pytestmark = pytest.mark.ray

NAMESPACE = "learned-limits"
MODEL = "scripted:wait.py"
SCRIPT = """
from owlclaw_ray.models.scripted import ScriptedReply


def reply(request):
    return ScriptedReply(text="done", latency=request.trigger.payload["seconds"])
"""


@pytest.fixture
def gateway(trial, tmp_path):
    plan = replace(
        trial.plan,
        worker=WorkerPlan("", "", "", "none", NAMESPACE),
        store_url=f"sqlite:///{tmp_path}/owlclaw.db",
        max_concurrent_models=1_000,
    )
    parts = [
        make(KeeperActor, plan, name=full_name(KEEPER), namespace=NAMESPACE),
        make(ModelGatewayActor, plan, name=full_name(GATEWAY), namespace=NAMESPACE, max_restarts=-1),
    ]
    yield NamedActor(GATEWAY, NAMESPACE)
    for part in parts:
        kill(part)


@pytest.fixture
async def link(gateway):
    return GatewayLink("trial", NAMESPACE)


@pytest.fixture
async def long(link):
    """Calls that go on until the test is over."""
    async with calls_over(link) as calls:
        yield calls


def asked(folder, number, seconds):
    return replace(
        model_request(MODEL),
        request_id=RequestId(f"req_{number}"),
        run_id=f"run_{number}",
        agent_id=f"definition{number % 4}:{number}",
        base_dir=str(folder),
        trigger=Trigger(TriggerKind.API, {"seconds": seconds}),
    )


async def slots(gateway):
    [found] = await gateway.call.slots()
    return found.limit


async def test_a_gateway_that_was_killed_goes_on_with_as_many_calls_at_once(trial, gateway, link, long, tmp_path):
    (tmp_path / "wait.py").write_text(SCRIPT)
    long += [asyncio.create_task(link.complete(asked(tmp_path, 1_000 + at, 300.0))) for at in range(40)]
    await asyncio.gather(*(link.complete(asked(tmp_path, at, 0.1)) for at in range(120)))
    grown = await slots(gateway)
    elsewhere = LearnedLimits(KeeperClient(NAMESPACE), "another node", SystemClock())
    while (noted := await elsewhere.limit(MODEL)) is None or noted.calls < 0.9 * grown:
        await asyncio.sleep(0.2)

    newest = max(trial.processes("ModelGatewayActor"), key=lambda process: process.create_time())
    newest.kill()
    newest.wait()
    await link.complete(asked(tmp_path, 2_000, 0.0))

    assert grown > 100
    assert await slots(gateway) >= noted.calls
