"""Memories embedded by a provider's model: tool worker, ModelGateway, litellm and Keeper, against a local server of OpenAI's form."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
import ray
from msgspec.structs import replace

from actors.gateway_link import GatewayTokens
from actors.keeper import KeeperActor
from actors.model_gateway import ModelGatewayActor
from actors.plan import WorkerPlan
from actors.remote import DIRECTORY, GATEWAY, KEEPER, NamedActor, full_name, kill, make
from actors.remote_actor import RemoteActor
from actors.tool_task import run_tools
from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, ModelChoice
from owlclaw_ray.domain.budget import Budget, BudgetScope, BudgetUnit
from owlclaw_ray.domain.governance import Governance
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import ContextWindow
from owlclaw_ray.domain.tool import Effect, ToolClass
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import DEFAULT_TENANT, ActivationId, RunId, ToolCallId
from owlclaw_ray.kernel.packing import pack, unpack
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.store.command_link import apply_now
from owlclaw_ray.store.commands import ActivateAgent, SubmitRun
from owlclaw_ray.store.queries import LedgerFilter
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.testing.openai_server import CannedFailure, OpenAIServer, Vectors

pytestmark = pytest.mark.ray

NAMESPACE = "embedding-trial"


@pytest.fixture
def server():
    with OpenAIServer(lambda _: Vectors()) as server:
        yield server


class Definitions(RemoteActor):
    """A Directory that knows one definition, whose tenant may make this many calls of models."""

    def __init__(self):
        self._limit = 100

    async def allow(self, limit):
        self._limit = limit

    async def definition(self, name, known_version):
        if known_version == str(self._limit):
            return None
        rules = Governance(budgets=(Budget("few", BudgetScope.TENANT, BudgetUnit.CALLS, self._limit),))
        choice = ModelChoice(("m",))
        return AgentDefinition(name, str(self._limit), "", "Be calm.", "- trade", "", choice, governance=rules)


@pytest.fixture
def worker(trial, server, tmp_path):
    """The plan of a worker whose gateway, warm as after a start, Keeper and Directory are there."""
    plan = WorkerPlan("", "", str(tmp_path), "litellm:openai/own-embeddings", NAMESPACE)
    whole = replace(
        trial.plan,
        worker=plan,
        store_url=f"sqlite:///{tmp_path}/owlclaw.db",
        model_retry=RetryPolicy(attempts=2, base=0.01),
    )
    environment = {"env_vars": {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test"}}
    parts = [
        make(ModelGatewayActor, whole, name=full_name(GATEWAY), namespace=NAMESPACE, runtime_env=environment),
        make(KeeperActor, whole, name=full_name(KEEPER), namespace=NAMESPACE),
        make(Definitions, name=full_name(DIRECTORY), namespace=NAMESPACE),
    ]
    NamedActor(GATEWAY, NAMESPACE).call_now(
        lambda gateway: gateway.warm(()), 120.0
    )  # a recall waits for vectors for seconds only
    yield plan
    for part in parts:
        kill(part)


def call(worker, tool, number, **arguments):
    invocation = ToolInvocation(
        call_id=ToolCallId(f"call_{number}"),
        tool=tool,
        arguments=orjson.dumps(arguments).decode(),
        agent=AgentRef.parse("trader"),
        run_id=RunId("run_1"),
        trigger=TriggerKind.API,
        effect=Effect.IDEMPOTENT,
        tool_class=ToolClass.ALONE,
        timeout=60.0,
        idempotency_key=f"key_{number}",
    )
    task = run_tools.options(resources={"tool_slots": 1}).remote(pack((worker, [invocation], None)))
    (outcome,) = unpack(ray.get(task, timeout=120))
    assert outcome.result.error is None, outcome.result.error
    return outcome


def begin_the_run():
    """Have the store execute the run whose tool calls these are."""
    agent, at = AgentRef.parse("trader"), datetime(2026, 11, 23, tzinfo=UTC)
    trigger = Trigger(TriggerKind.API)
    commands = [
        SubmitRun(RunId("run_1"), agent, trigger, at),
        ActivateAgent(agent, ActivationId("act_1"), at, claim=True),
    ]
    apply_now(commands, lambda parcels: NamedActor(KEEPER, NAMESPACE).call_now(lambda keeper: keeper.apply(parcels)))


def spent_on(purpose):
    page = NamedActor(KEEPER, NAMESPACE).call_now(lambda keeper: keeper.read(LedgerFilter(DEFAULT_TENANT, limit=50)))
    records = [each.record for each in page if each.record.kind is LedgerKind.MODEL_CALL]
    return [each for each in records if each.data["purpose"] == purpose]


def test_memories_are_embedded_through_the_gateway_and_what_that_costs_is_recorded(worker, server):
    begin_the_run()
    server.enqueue(CannedFailure(503, "warming up"))
    call(worker, "remember", 1, content="likes green tea")

    found = call(worker, "recall", 2, query="green tea", explain=True)

    (memory,) = found.result.content["memories"]
    assert found.result.content["degraded"] is False
    assert memory["explanation"]["cosine"] is not None
    assert found.usage.prompt_tokens >= 4
    assert [(each.data["model"], each.data["purpose"]) for each in found.records] == [
        ("openai/own-embeddings", "recall")
    ]
    assert {request.path for request in server.requests} == {"/v1/embeddings"}
    indexed = spent_on("index")
    assert indexed
    assert {(each.agent_id, each.data["model"]) for each in indexed} == {("trader", "openai/own-embeddings")}
    assert list(Path(worker.data_dir).rglob("memories-*own-embeddings-2.lance"))
    asked = len(server.requests)
    NamedActor(DIRECTORY, NAMESPACE).call_now(lambda definitions: definitions.allow(2))

    spent = call(worker, "recall", 3, query="tea")

    assert spent.result.content["degraded"] is True
    assert [each["content"] for each in spent.result.content["memories"]] == ["likes green tea"]
    (warning,) = spent.records
    assert "the budget few (2 calls for the tenant) is spent" in warning.data["why"]
    assert len(server.requests) == asked


async def test_tokens_are_counted_where_the_tokenizers_are(worker, server):
    counted = await GatewayTokens(NAMESPACE, ManualClock(), seconds=100).count_tokens(
        "openai/gpt-4o", ["the quick brown fox", "文" * 10_000]
    )

    assert counted[0] == 4
    assert counted[1] > 5_000
    window = await GatewayTokens(NAMESPACE, ManualClock(), seconds=100).context_window("openai/gpt-4o")
    assert window == ContextWindow(128_000, 16_384)
    assert not server.requests


async def test_without_a_gateway_tokens_are_estimated(trial):
    assert await GatewayTokens("nobody-is-here", ManualClock()).count_tokens("openai/gpt-4o", ["word", "观察"]) == [
        1,
        3,
    ]


class StuckGateway(RemoteActor):
    """A gateway that takes calls and answers none."""

    async def count_tokens(self, *_) -> None:
        await asyncio.Event().wait()


async def test_a_gateway_that_hangs_is_waited_for_once_and_then_left_alone(trial):
    clock = ManualClock()
    gateway = make(StuckGateway, name=full_name(GATEWAY), namespace="stuck-gateway")
    tokens = GatewayTokens("stuck-gateway", clock, seconds=0.5)

    assert await tokens.count_tokens("openai/gpt-4o", ["word"]) == [1]
    kill(gateway)
    assert await tokens.count_tokens("openai/gpt-4o", ["words"]) == [2]
    assert tokens._gateway._actor is not None, "the dead gateway was not asked again"
    await clock.advance(60)
    assert await tokens.count_tokens("openai/gpt-4o", ["word"]) == [1]
    assert tokens._gateway._actor is None
