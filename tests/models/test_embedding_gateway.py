import asyncio
from collections import Counter

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.embedding import EmbeddingReply, EmbeddingRequest
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import ModelRefusedError, ModelUnavailableError
from owlclaw_ray.ids import AgentId, TenantId
from owlclaw_ray.kernel.retry import RetryPolicy
from owlclaw_ray.models.embedding_gateway import EmbeddingGateway
from owlclaw_ray.testing.clock import ManualClock

REPLY = EmbeddingReply(((1.0, 0.0),), Usage(4, cost=0.01))
REQUEST = EmbeddingRequest("openai/x", ("tea",), timeout=5.0, patience=30.0)


def of(tenant, agent):
    return replace(REQUEST, tenant=TenantId(tenant), agent_id=AgentId(agent))


class Provider:
    """Answers as its queue says: a reply, an error, or seconds to take before a reply."""

    def __init__(self, clock, *answers):
        self._clock, self._answers = clock, list(answers)
        self.asked = []
        self.running = self.most_running = 0

    async def load(self):
        await asyncio.sleep(0)

    async def embed(self, request):
        self.asked.append(self._clock.monotonic())
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, float):
                await self._clock.sleep(answer)
            return REPLY
        finally:
            self.running -= 1


@pytest.fixture
def clock():
    return ManualClock()


def gateway(provider, clock, **options):
    retry = RetryPolicy(attempts=3, base=1.0)
    return EmbeddingGateway(provider, clock=clock, retry=retry, jitter=lambda: 0.0, **options)


async def test_a_passing_failure_is_tried_again_and_told(clock):
    provider = Provider(clock, ModelUnavailableError("busy"), ModelUnavailableError("busy", 4.0), REPLY)
    asking = asyncio.create_task(gateway(provider, clock).embed(REQUEST))
    await clock.advance(10)

    reply = await asking

    assert (reply.vectors, reply.usage) == (REPLY.vectors, REPLY.usage)
    assert [each.error for each in reply.failed_attempts] == ["busy", "busy"]
    assert provider.asked == [0.0, 0.5, 4.5]


async def test_after_its_attempts_it_is_unavailable(clock):
    provider = Provider(clock, ModelUnavailableError("busy"))
    asking = asyncio.create_task(gateway(provider, clock).embed(REQUEST))
    await clock.advance(10)

    with pytest.raises(ModelUnavailableError, match=r"openai/x \(3 attempts\): busy"):
        await asking


async def test_a_refusal_is_not_repeated(clock):
    provider = Provider(clock, ModelRefusedError("bad key"))

    with pytest.raises(ModelRefusedError, match="bad key"):
        await gateway(provider, clock).embed(REQUEST)

    assert len(provider.asked) == 1


async def test_an_attempt_that_hangs_is_given_up_and_tried_again(clock):
    provider = Provider(clock, 1_000.0, REPLY)
    asking = asyncio.create_task(gateway(provider, clock).embed(REQUEST))
    await clock.advance(6)

    assert [each.error for each in (await asking).failed_attempts] == ["did not answer within 5 s"]


async def test_patience_ends_it_whatever_attempts_are_left(clock):
    provider = Provider(clock, 1_000.0)
    request = EmbeddingRequest("openai/x", ("tea",), timeout=5.0, patience=7.0)
    asking = asyncio.create_task(gateway(provider, clock).embed(request))
    await clock.advance(8)

    with pytest.raises(ModelUnavailableError, match="no vectors within 7 s: did not answer within 5 s"):
        await asking


async def test_no_more_calls_run_at_once_than_may(clock):
    provider = Provider(clock, 1.0)
    front = gateway(provider, clock, max_concurrent=2)
    asking = [asyncio.create_task(front.embed(REQUEST)) for _ in range(5)]
    for _ in range(3):
        await clock.advance(1)

    assert await asyncio.gather(*asking) == [REPLY] * 5
    assert provider.most_running == 2


async def test_a_tenant_s_flood_of_texts_holds_up_no_question_of_another(clock):
    front = gateway(Provider(clock, 1.0), clock, max_concurrent=4)
    flood = [asyncio.create_task(front.embed(of("greedy", f"a{number}"))) for number in range(60)]
    await clock.advance(0.5)

    question = asyncio.create_task(front.embed(of("modest", "b")))
    await clock.advance(1)

    assert question.done()
    for each in flood:
        each.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_tenants_have_calls_by_weight_and_their_agents_in_turns(clock):
    weights, answered = {"greedy": 3.0}, Counter()
    front = gateway(Provider(clock, 1.0), clock, max_concurrent=4, weight=lambda tenant: weights.get(tenant, 1.0))

    async def ask(tenant, agent):
        await front.embed(of(tenant, agent))
        answered[tenant, agent] += 1

    asking = [asyncio.create_task(ask("greedy", f"a{number // 30}")) for number in range(60)]
    asking += [asyncio.create_task(ask("modest", "b")) for _ in range(30)]
    await clock.settle()
    for _ in range(8):
        await clock.advance(1)

    assert sum(answered[each] for each in (("greedy", "a0"), ("greedy", "a1"))) == pytest.approx(24, abs=1)
    assert answered["modest", "b"] == pytest.approx(8, abs=1)
    assert answered["greedy", "a0"] == pytest.approx(answered["greedy", "a1"], abs=4)
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
