"""Budgets under many runs at once: whatever happens in which order, no budget is overspent by more than one reservation."""

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentRef, ModelChoice
from owlclaw_ray.domain.budget import NANO, Budget, BudgetScope, BudgetUnit
from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest, Price
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.errors import BudgetExhaustedError
from owlclaw_ray.ids import RequestId, RunId
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.models.prices import Prices
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.policy.budgets import RunBudgets
from owlclaw_ray.runs.conversation import Conversation
from owlclaw_ray.runs.run_journal import RunJournal
from owlclaw_ray.store.commands import BudgetReserved, BudgetSettled, BudgetSpent, ClaimRun
from owlclaw_ray.store.durable_store import DurableStore
from owlclaw_ray.store.group_commit import GroupCommit
from owlclaw_ray.store.queries import JournalOfRun
from owlclaw_ray.store.sql.factory import open_store
from tests.contracts.store_budget_contract import reservation, settlement
from tests.contracts.store_commands import NOW, activation, ending, one, submission
from tests.world import new_stores

LIMITS = {"a": 20, "b": 7}
AGENTS = [AgentRef.parse(f"crew:{number}") for number in range(3)]
ACCOUNTS = st.sampled_from(["a", "b"])
CLAIMS = st.dictionaries(ACCOUNTS, st.integers(1, 5), min_size=1)
STEPS = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 2), st.integers(0, 3), CLAIMS),
    st.tuples(st.just("settle"), st.integers(0, 2), st.integers(0, 3), st.integers(0, 100)),
    st.tuples(st.just("take over"), st.integers(0, 2)),
    st.tuples(st.just("finish"), st.integers(0, 2)),
)


@pytest.fixture(scope="module")
def stores():
    return new_stores()


@dataclass
class Books:
    """What should be in the store."""

    used: dict = field(default_factory=lambda: {"a": 0, "b": 0})
    reserved: dict = field(default_factory=dict)

    def free(self, account):
        reserved = sum(amounts.get(account, 0) for amounts in self.reserved.values())
        return LIMITS[account] - self.used[account] - reserved

    def give_back(self, run):
        self.reserved = {key: amounts for key, amounts in self.reserved.items() if key[0] != run}


class Crew:
    """Agents whose runs come one after another, each with calls that reserve and settle."""

    def __init__(self, stores):
        database, (self.store, self.other) = stores
        database.empty()
        for each in (self.store, self.other):
            each._applier._loader._known_agents.clear()
        self.books, self.largest = Books(), {"a": 0, "b": 0}
        self.runs, self.epochs, self.ended = {}, {}, {}

    async def start(self):
        for agent in AGENTS:
            await self.next_run(agent, 0)

    async def next_run(self, agent, number):
        run = self.runs[agent] = RunId(f"{agent}-{number}")
        await self.store.apply([submission(run, agent)])
        await self.take_over(agent)

    async def take_over(self, agent):
        self.epochs[agent] = self.epochs.get(agent, 0) + 1
        await self.store.apply([activation(f"act_{self.epochs[agent]}", agent)])
        await one(self.store, ClaimRun(agent, self.epochs[agent], NOW))

    async def reserve(self, agent, slot, amounts):
        run, books = self.runs[agent], self.books
        name = f"{run}/{slot}"
        claims = [(account, LIMITS[account], amount) for account, amount in sorted(amounts.items())]
        outcome = await one(self.store, reservation(name, *claims, run=run, agent=agent, epoch=self.epochs[agent]))
        if (run, slot) in books.reserved:
            assert isinstance(outcome, BudgetReserved)
        elif all(books.free(account) > 0 for account in amounts):
            assert isinstance(outcome, BudgetReserved)
            books.reserved[run, slot] = amounts
            for account, amount in amounts.items():
                self.largest[account] = max(self.largest[account], amount)
        else:
            assert isinstance(outcome, BudgetSpent)

    async def settle(self, agent, slot, share):
        run = self.runs[agent]
        amounts = self.books.reserved.pop((run, slot), {})
        charges = {account: amount * share // 100 for account, amount in amounts.items()}
        command = settlement(f"{run}/{slot}", *charges.items(), run=run, agent=agent, epoch=self.epochs[agent])
        assert await self.other.apply([command, command]) == [BudgetSettled()] * 2
        for account, amount in charges.items():
            self.books.used[account] += amount

    async def finish(self, agent):
        run = self.runs[agent]
        self.ended[agent] = self.ended.get(agent, 0) + 1
        entry = 2 + await self._resumes(agent, run)
        await self.store.apply([ending(run, entry + 1, epoch=self.epochs[agent], agent=agent, claim_next=False)])
        self.books.give_back(run)
        await self.next_run(agent, self.ended[agent])

    async def _resumes(self, agent, run):
        return len(await self.store.read(JournalOfRun(agent.tenant, run))) - 2

    async def check(self):
        agent = AGENTS[0]
        claims = [(account, 10**9, 0) for account in sorted(LIMITS)]
        told = await one(
            self.store, reservation("ask", *claims, run=self.runs[agent], agent=agent, epoch=self.epochs[agent])
        )
        for use in told.uses:
            assert use.used == self.books.used[use.account]
            assert use.used + use.reserved == LIMITS[use.account] - self.books.free(use.account)
            over = use.used + use.reserved - LIMITS[use.account]
            assert over < max(1, self.largest[use.account])


@given(st.lists(STEPS, max_size=40))
async def test_no_order_of_events_overspends_by_more_than_one_reservation_or_leaks(stores, steps):
    crew = Crew(stores)
    await crew.start()
    for step in steps:
        agent = AGENTS[step[1]]
        match step:
            case ("reserve", _, slot, amounts):
                await crew.reserve(agent, slot, amounts)
            case ("settle", _, slot, share):
                await crew.settle(agent, slot, share)
            case ("take over", _):
                await crew.take_over(agent)
            case ("finish", _):
                await crew.finish(agent)
        await crew.check()
    for agent in AGENTS:
        await crew.finish(agent)
    assert crew.books.reserved == {}
    await crew.check()


async def test_a_thousand_runs_at_once_overspend_one_budget_by_less_than_one_reservation(stores):
    database, (one_store, other_store) = stores
    database.empty()
    for each in (one_store, other_store):
        each._applier._loader._known_agents.clear()
    commits = [GroupCommit(one_store), GroupCommit(other_store)]
    agents = [AgentRef.parse(f"crew:{number}") for number in range(1_000)]

    async def spend(number, agent):
        store, run = commits[number % 2], RunId(f"run_{number}")
        await store.apply([submission(run, agent), activation("act_1", agent), ClaimRun(agent, 1, NOW)])
        reserved = (await store.apply([reservation(f"r{number}", ("tenant", 5_000, 70), run=run, agent=agent)]))[0]
        if isinstance(reserved, BudgetSpent):
            return 0
        await store.apply([settlement(f"r{number}", ("tenant", 70), run=run, agent=agent)])
        return 70

    spent = await asyncio.gather(*(spend(number, agent) for number, agent in enumerate(agents)))

    assert 5_000 <= sum(spent) < 5_000 + 70
    assert [tuple(row) for row in database.tables("SELECT used, reserved FROM budgets")] == [(sum(spent), 0)]
    assert database.tables("SELECT * FROM budget_reservations") == []


async def test_a_thousand_runs_at_once_overspend_money_by_less_than_one_real_reservation(store_url):
    """Each reserves for its model call what the call may cost at most, and costs that."""
    opened = [await open_store(store_url, writer=f"keeper-{number}") for number in range(2)]
    commits, clock = [GroupCommit(each) for each in opened], SystemClock()
    price, reply = Price(2.5, 10.0), 4_096
    budget = Budget("house", BudgetScope.TENANT, BudgetUnit.MONEY, 2 * NANO)
    prices = Prices(no_price, clock, [("dear", price)])
    question = Message(MessageRole.USER, "what do we have? " * 100)
    tokens = estimate_tokens(question.content)

    async def spend(number):
        agent, run_id, store = AgentRef.parse(f"crew:{number}"), RunId(f"run_{number}"), commits[number % 2]
        *_, claimed = await store.apply(
            [submission(run_id, agent), activation("act_1", agent), ClaimRun(agent, 1, NOW)]
        )
        conversation = Conversation()
        conversation.restore(claimed.journal, {})
        durable = DurableStore(store, clock)
        journal = RunJournal(claimed.run, 1, conversation=conversation, store=durable, clock=clock)
        budgets = RunBudgets([budget], claimed.run, [], journal, clock, prices=prices)
        request = ModelRequest(
            RequestId("req_1"),
            ModelChoice(("dear",)),
            "",
            (question,),
            b"",
            60.0,
            agent.agent_id,
            run_id,
            claimed.run.trigger,
        )
        try:
            made = await budgets.before_model(request, Usage(), 0)
        except BudgetExhaustedError:
            return 0.0
        assert made.model.max_tokens == reply
        await asyncio.sleep(0.01)
        used = Usage(tokens, reply, cost=price.cost(tokens, reply))
        budgets.after_model(used, used, 1)
        journal.record(EntryKind.RUN_ACTIVE, {"seconds": 0})
        await journal.commit()
        return used.cost

    spent = await asyncio.gather(*map(spend, range(1_000)))
    account = budget.account("default", "crew", budget.window(NOW))
    claim = reservation("ask", (account, NANO, 0), run=RunId("run_0"), agent=AgentRef.parse("crew:0"))
    answer = await one(opened[0], claim)
    for each in commits:
        await each.close()
    for each in opened:
        await each.close()

    assert 2.0 <= sum(spent) < 2.0 + price.cost(tokens, reply)
    assert (answer.use.used, answer.use.reserved) == (round(sum(spent) * NANO), 0)


async def no_price(model):
    del model


async def test_two_keepers_share_one_budget(store_url):
    opened = [await open_store(store_url, writer=f"keeper-{number}") for number in range(2)]
    commits = [GroupCommit(each) for each in opened]

    async def spend(number):
        agent, run, store = AgentRef.parse(f"crew:{number}"), RunId(f"run_{number}"), commits[number % 2]
        await store.apply([submission(run, agent), activation("act_1", agent), ClaimRun(agent, 1, NOW)])
        claims = [("tenant", 100, 7), (f"own-{number % 5}", 1_000, 1)]
        reserved = (await store.apply([reservation(f"r{number}", *claims, run=run, agent=agent)]))[0]
        if isinstance(reserved, BudgetReserved):
            await store.apply([settlement(f"r{number}", ("tenant", 7), run=run, agent=agent)])
        return isinstance(reserved, BudgetReserved)

    grants = await asyncio.gather(*(spend(number) for number in range(60)))
    for each in opened:
        await each.close()

    assert sum(grants) == 15


async def test_old_accounts_are_removed_in_time(stores, monkeypatch):
    monkeypatch.setattr("owlclaw_ray.store.sql.writer._SWEEP_EVERY", 1)
    monkeypatch.setattr("owlclaw_ray.store.sql.writer._KEPT", -2 * 86_400_000_000)
    crew = Crew(stores)
    await crew.start()

    await crew.reserve(AGENTS[0], 0, {"a": 1})
    await crew.settle(AGENTS[0], 0, 100)
    await crew.reserve(AGENTS[1], 0, {"b": 1})

    assert [row[0] for row in stores[0].tables("SELECT account FROM budgets")] == ["b"]
