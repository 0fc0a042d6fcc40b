"""Tokens of model calls that a tenant may use in a minute: calls that find none left wait."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.budget import Budget, BudgetScope, BudgetUnit
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
from owlclaw_ray.domain.quota import NO_QUOTAS, KeyQuota, Quotas
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import BudgetExhaustedError
from owlclaw_ray.ids import KeyId, RequestId, RunId
from owlclaw_ray.policy.budgets import RunBudgets
from owlclaw_ray.testing.clock import ManualClock
from tests.policy.world import RUN, BudgetAccount

TOTAL = Budget("all", BudgetScope.TENANT, BudgetUnit.TOKENS, 1_000)


class Calls:
    """Model calls of a tenant's runs, on one account and one clock."""

    def __init__(self, quotas, *budgets):
        self.quotas, self.budgets = quotas, budgets
        self.clock, self.account = ManualClock(), BudgetAccount()
        self.waited, self.begun, self.lasts = [], [], 0.0

    async def call(self, run, tokens, leaving=None, keys=()):
        """Make a call that uses so many tokens, of a run of these keys, and return when it was made, in seconds; None if it was not."""

        async def quotas(tenant):
            assert tenant == RUN.agent.tenant
            return self.quotas

        of_run = replace(RUN, run_id=RunId(run), key_quotas=keys)
        budgets = RunBudgets(self.budgets, of_run, [], self.account, self.clock, quotas=quotas)
        messages = (Message(MessageRole.USER, "x" * 40),)
        request = ModelRequest(
            RequestId(f"req_{run}"), ModelChoice(("m",)), "", messages, b"", 60.0, "trader", run, RUN.trigger
        )
        waited = []
        allowed = await budgets.before_model(request, Usage(), 0, waited.append, leaving)
        at = self.clock.monotonic()
        assert waited in ([], [True, False])
        self.waited += waited
        if allowed is None:
            return None
        self.begun.append(at)
        await self.clock.sleep(self.lasts)
        usage = Usage(prompt_tokens=tokens)
        budgets.after_model(usage, usage, 1)
        return at


async def test_a_call_that_finds_fewer_tokens_of_the_minute_left_than_it_may_use_waits_for_the_next_one():
    calls = Calls(Quotas(model_tokens_a_minute=6_000))
    await calls.clock.advance(10)

    first, second = await calls.call("run_1", 1_000), await calls.call("run_2", 900)
    third = asyncio.create_task(calls.call("run_3", 1_000))
    await calls.clock.advance(49)
    assert not third.done(), "1,900 of 6,000 are used, and it may use 4,096 beside its prompt"
    await calls.clock.advance(1)

    assert (first, second, await third) == (10, 10, 60)


async def test_a_call_of_a_key_waits_for_the_tokens_of_the_key_and_those_of_others_go_on():
    calls = Calls(Quotas(model_tokens_a_minute=20_000))
    narrow, wide = KeyQuota(KeyId("key1"), model_tokens_a_minute=6_000), KeyQuota(KeyId("key2"), open_runs=1)

    await calls.call("run_1", 2_000, keys=(narrow,))
    second = asyncio.create_task(calls.call("run_2", 2_000, keys=(wide, narrow)))
    await calls.clock.advance(1)
    other = await calls.call("run_3", 2_000, keys=(wide,))
    await calls.clock.advance(59)

    assert (other, await second) == (1, 60)


async def test_the_tokens_of_a_key_count_in_those_of_its_tenant():
    calls = Calls(Quotas(model_tokens_a_minute=6_000))
    key = KeyQuota(KeyId("key1"), model_tokens_a_minute=90_000)

    await calls.call("run_1", 2_000, keys=(key,))
    second = asyncio.create_task(calls.call("run_2", 2_000))
    await calls.clock.advance(59)
    waiting = not second.done()
    await calls.clock.advance(1)

    assert (waiting, await second) == (True, 60)


async def test_calls_at_once_never_use_more_of_a_minute_than_there_is():
    calls = Calls(Quotas(model_tokens_a_minute=10_000))
    calls.lasts = 70.0

    made = [asyncio.create_task(calls.call(f"run_{number}", 4_000)) for number in range(5)]
    await calls.clock.advance(59)
    begun = [*calls.begun]
    await calls.clock.advance(180)

    assert begun == [0, 0], "each may use 4,096 tokens beside its prompt"
    assert [await each for each in made] == [0, 0, 60, 60, 120]
    assert sorted(calls.account.used.values()) == [4_000, 8_000, 8_000]


async def test_a_call_begins_in_the_same_minute_when_calls_under_way_end_with_less_than_they_might_have_used():
    calls = Calls(Quotas(model_tokens_a_minute=10_000))
    calls.lasts = 20.0

    made = [asyncio.create_task(calls.call(f"run_{number}", 100)) for number in range(3)]
    await calls.clock.advance(120)

    assert [await each for each in made] == [0, 0, 20]


async def test_a_call_that_may_use_more_than_a_minute_has_is_made_alone_in_one():
    calls = Calls(Quotas(model_tokens_a_minute=100))
    await calls.clock.advance(10)

    first = await calls.call("run_1", 60)
    others = [asyncio.create_task(calls.call(f"run_{number}", 150)) for number in (2, 3)]
    await calls.clock.advance(110)

    assert (first, sorted([await each for each in others])) == (10, [60, 120])


async def test_a_call_that_waits_says_so_and_goes_on_as_soon_as_its_quota_is_larger_or_gone():
    calls = Calls(Quotas(model_tokens_a_minute=0))
    waiting = asyncio.create_task(calls.call("run_1", 60))
    await calls.clock.advance(130)
    assert not waiting.done()

    calls.quotas = NO_QUOTAS
    await calls.clock.advance(5)

    assert await waiting <= 135
    assert calls.waited == [True, False]


async def test_a_call_that_waits_is_given_up_when_its_run_leaves_and_takes_nothing_of_the_minute():
    calls, leaving = Calls(Quotas(model_tokens_a_minute=100)), asyncio.Event()
    await calls.call("run_1", 100)
    used = dict(calls.account.used)
    waiting = asyncio.create_task(calls.call("run_2", 60, leaving))
    await calls.clock.advance(5)
    assert not waiting.done()

    leaving.set()

    assert await waiting is None
    assert (calls.waited, calls.clock.monotonic(), calls.account.used) == ([True, False], 5, used)


@pytest.mark.parametrize("quotas", [NO_QUOTAS, Quotas(open_runs=1, starts_a_minute=1)])
async def test_a_tenant_without_that_quota_asks_no_account(quotas):
    calls = Calls(quotas)

    assert [await calls.call(f"run_{number}", 10**9) for number in range(3)] == [0, 0, 0]
    assert not calls.account.used


async def test_a_budget_that_is_exhausted_is_not_waited_for_though_there_is_a_quota():
    calls = Calls(Quotas(model_tokens_a_minute=10_000), TOTAL)
    await calls.call("run_1", 1_000)

    with pytest.raises(BudgetExhaustedError, match="the budget all"):
        await calls.call("run_2", 1)
