"""A definition and its rules, without an engine around them."""

from collections import Counter

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState, ModelChoice
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.governance import CallOutcome, Governance
from owlclaw_ray.domain.model import Price
from owlclaw_ray.domain.permission import Approver, PermissionPolicy
from owlclaw_ray.domain.run import Run, RunStatus
from owlclaw_ray.domain.tool import Effect, Permission, ToolDefinition
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.ids import RunId, ToolCallId
from owlclaw_ray.models.prices import Prices
from owlclaw_ray.policy.governor import DefinitionGovernor
from owlclaw_ray.store.commands import BudgetReserved, BudgetSpent
from owlclaw_ray.testing.clock import ManualClock

AGENT = AgentRef.parse("trader:AAPL")
RUN = Run(RunId("run_1"), 1, AGENT, Trigger(TriggerKind.API), RunStatus.RUNNING, ManualClock().now())


def tool(name, *tags):
    return ToolDefinition(name, name, {"type": "object"}, Permission.WRITE, Effect.PURE, tags=frozenset(tags))


def definition(governance):
    return AgentDefinition("trader", "1", "", "Be calm.", "- trade", "", ModelChoice(("m",)), governance=governance)


def at_once(question):
    """Return the answer of a coroutine that waits for nothing."""
    try:
        question.send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("it waits")


class BudgetAccount:
    """A till that keeps its books in memory, with one account for each that it is asked of."""

    def __init__(self):
        self.used, self.reserved, self.told = Counter(), {}, []

    async def reserve(self, reservation_id, claims):
        for claim in claims:
            taken = self._use(claim).used + self._use(claim).reserved
            if taken >= claim.limit or (claim.must_fit and taken and taken + claim.amount > claim.limit):
                return BudgetSpent(self._use(claim))
        amounts = {claim.account: claim.amount for claim in claims if claim.amount}
        if amounts:
            self.reserved.setdefault(reservation_id, amounts)
        return BudgetReserved(tuple(map(self._use, claims)))

    def settle(self, reservation_id, charges):
        if self.reserved.pop(reservation_id, None) is not None:
            for charge in charges:
                self.used[charge.account] += charge.amount

    def audit(self, kind, key, data):
        self.told.append(data["why"])

    def _use(self, claim):
        reserved = sum(amounts.get(claim.account, 0) for amounts in self.reserved.values())
        return BudgetUse(claim.account, self.used[claim.account], reserved)


PRICES = (("dear", Price(2.5, 10.0)), ("cheap*", Price(1.0, 40.0)))
"""In dollars for a million tokens."""


async def unknown_price(model):
    del model


class Rules:
    """The rules of one agent's runs, one after another, on a clock that a test moves."""

    def __init__(self, governance=None, *tools, clock=None, budget_account=None, approver=Approver.PEOPLE):
        self.clock = clock or ManualClock()
        self.tools = {each.name: each for each in tools}
        policy = PermissionPolicy(approver=approver)
        self.definition = replace(definition(governance or Governance()), permissions=policy)
        prices = Prices(unknown_price, self.clock, PRICES)
        self._governor = DefinitionGovernor(tools, self.clock, prices=prices)
        self.state, self.outcomes = AgentState(), []
        self.budget_account = budget_account or BudgetAccount()
        self.resume()

    @property
    def now(self):
        return self.clock.now().timestamp()

    def resume(self):
        """Have another activation take the run over."""
        self.run = self._governor.rules(RUN, self.definition, self.state, self.outcomes, self.budget_account)

    def next_run(self):
        """End the run and begin another, the state saved in between."""
        self.state, self.outcomes = self.run.kept(self.state), []
        self.resume()

    async def visible(self):
        return await self.run.decide(sorted(self.tools))

    async def reasons(self):
        return {tool: (each.by, each.reason) for each in (await self.visible()).hidden for tool in each.tools}

    def begin(self, name, call_id="c"):
        """Return the error type of the refusal, or the empty text."""
        refused = self.admit(name, call_id)
        return refused.type if refused else ""

    def admit(self, name, call_id="c"):
        return at_once(self.run.admit(self.tools[name], ToolCallId(call_id)))

    def end(self, name, error="", call_id="c"):
        self.outcomes.append(CallOutcome(name, call_id, error, self.now))

    def over(self, name, call_id="c"):
        """Have the end of a call written down."""
        self.run.budgets.after_call(self.tools[name], ToolCallId(call_id))

    def call(self, name, error="", call_id="c"):
        refused = self.begin(name, call_id)
        self.end(name, refused or error, call_id)
        return refused
