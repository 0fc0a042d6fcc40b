"""Tokens of model calls that a tenant may use in a minute: calls that find none left wait."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.budget import Budget, BudgetScope, BudgetUnit
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
from owlclaw_ray.domain.quota import NO_QUOTAS, Quotas
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import BudgetExhaustedError
from owlclaw_ray.ids import RequestId, RunId
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

    async def call(self, run, tokens, leaving=None):
        """Make a call that uses so many tokens, and return when it was made, in seconds; None if it was not made."""

        async def quotas(tenant):
            assert tenant == RUN.agent.tenant
            return self.quotas

        of_run = replace(RUN, run_id=RunId(run))
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


async def test_a_call_that_finds_no_tokens_of_the_minute_left_waits_for_the_next_one():
    calls = Calls(Quotas(model_tokens_a_minute=100))
    await calls.clock.advance(10)

    first, second = await calls.call("run_1", 60), await calls.call("run_2", 60)
    third = asyncio.create_task(calls.call("run_3", 150))
    await calls.clock.advance(49)
    assert not third.done()
    await calls.clock.advance(1)

    assert (first, second, await third) == (10, 10, 60)
    fourth = asyncio.create_task(calls.call("run_4", 1))
    await calls.clock.advance(60)
    assert await fourth == 120


async def test_tokens_of_calls_under_way_count_with_what_they_may_use():
    calls = Calls(Quotas(model_tokens_a_minute=10_000))
    calls.lasts = 70.0

    made = [asyncio.create_task(calls.call(f"run_{number}", 100)) for number in range(5)]
    await calls.clock.advance(59)
    begun = [*calls.begun]
    await calls.clock.advance(120)

    assert begun == [0, 0, 0], "each may use 4,096 tokens beside its prompt: a third one begins while any are left"
    assert [await each for each in made] == [0, 0, 0, 60, 60]


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
