"""What the calls of one run may use, and what becomes of it (G2).

A run's own budgets are added up from its journal, which the run alone writes: they cost nothing. Those of agents and tenants are in
the store: one question before each model call, or each call of a tool that they count, and an answer that travels with the
journal entry of the call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.budget import NANO, Budget, BudgetPeriod, BudgetScope, BudgetUnit, BudgetUse, BudgetWindow
from owlclaw_ray.domain.governance import CallOutcome, Governance, matches
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind, LedgerRecord
from owlclaw_ray.domain.model import ModelRequest, Price
from owlclaw_ray.domain.quota import NO_QUOTAS, Quotas, model_tokens_budget
from owlclaw_ray.domain.run import Run, Usage
from owlclaw_ray.domain.tool import ToolDefinition, ToolError
from owlclaw_ray.errors import BudgetExhaustedError, UnpricedModelError
from owlclaw_ray.ids import RecordId, ReservationId, RunId, TenantId, ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.prices import Prices
from owlclaw_ray.models.tokens import estimate_tokens
from owlclaw_ray.policy.visibility import VisibilityEvaluator, VisibilityFacts
from owlclaw_ray.store.commands import BudgetAlert, BudgetCharge, BudgetClaim, BudgetReserved, BudgetSpent

NOT_STARTED_ERRORS = frozenset(
    {
        "not_executed",
        "tool_not_available",
        "rate_limited",
        "circuit_open",
        "budget_exhausted",
        "limit_reached",
        "denied",
    }
)
"""The errors of calls that were answered without being made."""
_NO_LIMIT = 2**62
_REPLY = 4_096
"""Tokens of a reply, where neither definition nor budget says how many."""
_LOOK_SECONDS = 5.0
"""After how long a call that waits for tokens of a minute looks whether its quota is another one, at the latest."""
_SCRIPTED = "scripted:"
_SCRIPT_COSTS = NANO // 20
"""What a script is taken to say that its reply costs."""
VECTORS = Price(1.0, 0.0)
"""More than models for vectors cost, which are cheap: what is reserved for them."""

logger = logging.getLogger(__name__)


Windows: TypeAlias = Sequence[tuple[Budget, BudgetWindow]]
"""Budgets of agents and tenants, each with the window that a call falls into."""


class BudgetAccount(Protocol):
    """Where a run's use of budgets is written down: its journal."""

    async def reserve(
        self, reservation_id: ReservationId, claims: tuple[BudgetClaim, ...]
    ) -> BudgetReserved | BudgetSpent:
        """Commit a reservation; see ReserveBudget. Raises StaleEpochError."""
        ...

    def settle(self, reservation_id: ReservationId, charges: tuple[BudgetCharge, ...]) -> None:
        """Settle a reservation together with the facts that the run commits next; see SettleBudget."""
        ...

    def audit(self, kind: LedgerKind, key: str, data: JsonObject) -> None:
        """Add a ledger record; `key` distinguishes it from others of its kind in this run."""
        ...


class BudgetReservation(Struct, frozen=True):
    """What a call under way reserved, and of which budgets."""

    reservation_id: ReservationId
    windows: Windows


class BudgetAccounts(Struct, frozen=True):
    """How calls of an agent, in a run or in none, are booked on the store's accounts."""

    agent: AgentRef
    run_id: RunId
    clock: Clock

    def windows(self, budgets: Iterable[Budget]) -> Windows:
        """Return the budgets that have accounts, with their present windows."""
        now = self.clock.now()
        return [(each, each.window(now)) for each in budgets if each.scope is not BudgetScope.RUN]

    def reservation(self, call: str, windows: Windows) -> BudgetReservation:
        """Return the reservation of a call: the same one after a failover, unless another window has begun.

        In no run it is the same one in all windows: the next call takes its place, and none is left for good by a process that died.
        """
        whose: tuple[str, ...] = (self.agent.tenant, self.agent.agent_id, call)
        if self.run_id:
            whose = (self.run_id, call, *(_account(budget, self.agent, window) for budget, window in windows))
        return BudgetReservation(ReservationId(derived_id("resv", *whose)), windows)

    def claims(self, windows: Windows, amounts: Iterable[int]) -> tuple[BudgetClaim, ...]:
        """Return what a call asks for."""
        return tuple(
            BudgetClaim(
                _account(budget, self.agent, window),
                budget.limit,
                amount,
                window.ends_at,
                must_fit=budget.period is BudgetPeriod.MINUTE,
            )
            for (budget, window), amount in zip(windows, amounts, strict=True)
        )

    def charges(self, windows: Windows, amounts: Iterable[int]) -> tuple[BudgetCharge, ...]:
        """Return what a call used."""
        return tuple(
            BudgetCharge(_account(budget, self.agent, window), amount, self._alerts(budget, window))
            for (budget, window), amount in zip(windows, amounts, strict=True)
        )

    def refusal(self, windows: Windows, use: BudgetUse) -> str:
        """Return why a call must not be made, of whose accounts this one has too little left."""
        found = [pair for pair in windows if _account(pair[0], self.agent, pair[1]) == use.account]
        budget, window = found[0]
        return _spent(budget, use.used, window, use.reserved)

    def more_at(self, windows: Windows, use: BudgetUse) -> datetime | None:
        """Return when the account that has too little left is whole again, if that is waited for."""
        found = [pair for pair in windows if _account(pair[0], self.agent, pair[1]) == use.account]
        budget, window = found[0]
        return window.ends_at if budget.period is BudgetPeriod.MINUTE else None

    def _alerts(self, budget: Budget, window: BudgetWindow) -> tuple[BudgetAlert, ...]:
        account = _account(budget, self.agent, window)
        return tuple(
            BudgetAlert(
                _share(budget, percent),
                LedgerRecord(
                    RecordId(derived_id("rec", "budget", account, str(percent))),
                    self.agent.tenant,
                    self.agent.agent_id,
                    self.run_id,
                    LedgerKind.WARNING,
                    self.clock.now(),
                    _alert(budget, percent),
                ),
            )
            for percent in budget.alerts
        )


class RunBudgets:
    """The budgets of one run."""

    def __init__(
        self,
        budgets: Iterable[Budget],
        run: Run,
        outcomes: Sequence[CallOutcome],
        budget_account: BudgetAccount,
        clock: Clock,
        *,
        prices: Prices | None = None,
        quotas: Callable[[TenantId], Awaitable[Quotas]] | None = None,
    ) -> None:
        """Without `prices` no model has one; without `quotas` no tenant has any."""
        self._quotas, self._clock = quotas, clock
        kept = tuple(budgets)
        self._prices = prices
        self._of_models = tuple(each for each in kept if not each.tools)
        self._of_run = tuple(each for each in self._of_models if each.scope is BudgetScope.RUN)
        self._of_tools = tuple(each for each in kept if each.tools)
        self._run, self._outcomes, self._budget_account = run, outcomes, budget_account
        self._accounts = BudgetAccounts(run.agent, run.run_id, clock)
        self._asked: BudgetReservation | None = None
        self._calls: dict[ToolCallId, BudgetReservation] = {}
        self._embedding: dict[ToolCallId, int] = {}
        """Tokens that tool calls under way may have made into vectors."""
        self._counted: dict[Budget, set[str]] = {
            each: set() for each in self._of_tools if each.scope is BudgetScope.RUN
        }
        """The calls that the run's own budgets count: begun here, or ended by earlier activations too."""
        self._seen = 0

    async def before_model(
        self,
        request: ModelRequest,
        used: Usage,
        calls: int,
        waits: Callable[[bool], object] = lambda _: None,
        leaving: asyncio.Event | None = None,
    ) -> ModelRequest | None:
        """Return the request as it may be made, given what the run's calls used so far; `waits` is told when it waits and when not.

        What finds too little left of the tokens of a minute, the tenant's or a key's, waits until there is enough: in the next one,
        unless other runs have theirs first, which may go on for minutes where calls are of very different sizes. Or it waits until
        `leaving` is set: then it is not to be made, nothing is reserved for it, and None is returned. Raises BudgetExhaustedError;
        UnpricedModelError, if a budget counts money and the price of a model is unknown.
        """
        if not self._of_models and not await self._of_minute():
            return request
        uses = [(each, amount_used(each, used, calls)) for each in self._of_run]
        for budget, amount in uses:
            if amount >= budget.limit:
                raise BudgetExhaustedError(_spent(budget, amount, None))
        price = await self._price(request)
        request = _bounded(request, self._of_models)
        found = await self._granted(request, price, waits, leaving)
        if found is None:
            return None
        windows, granted = found
        uses += [(budget, use.used) for (budget, _), use in zip(windows, granted.uses, strict=True)]
        for budget, used_so_far in uses:
            if budget.cheaper and budget.alerts and used_so_far >= _share(budget, budget.alerts[-1]):
                return replace(request, model=replace(request.model, chain=(budget.cheaper,)))
        return request

    async def _granted(
        self,
        request: ModelRequest,
        price: Price | None,
        waits: Callable[[bool], object],
        leaving: asyncio.Event | None,
    ) -> tuple[Windows, BudgetReserved] | None:
        """Reserve of all accounts what the call may use, once the tenant and the keys have tokens of the minute. A tenant's
        quotas may change meanwhile.

        None: it had none yet when `leaving` was set.
        """
        self._asked, waiting = None, False
        tokens, reply = -1, request.model.max_tokens or _REPLY
        try:
            while True:
                windows = self._accounts.windows((*self._of_models, *await self._of_minute()))
                if not windows:
                    return windows, BudgetReserved(())
                if tokens < 0 and any(each.unit is not BudgetUnit.CALLS for each, _ in windows):
                    tokens = _prompt_tokens(request)
                amounts = [amount_expected(budget, tokens, reply, price) for budget, _ in windows]
                asked, answer = await self._reserve(request.request_id, windows, amounts)
                if isinstance(answer, BudgetReserved):
                    self._asked = asked
                    return windows, answer
                more_at = self._accounts.more_at(windows, answer.use)
                if more_at is None:
                    raise BudgetExhaustedError(self._accounts.refusal(windows, answer.use))
                if not waiting:
                    waiting = True
                    waits(waiting)
                left = (more_at - self._clock.now()).total_seconds()
                await self._pause(min(max(0.0, left), _LOOK_SECONDS), leaving)
                if leaving is not None and leaving.is_set():
                    return None
        finally:
            if waiting:
                waits(False)

    async def _pause(self, seconds: float, leaving: asyncio.Event | None) -> None:
        """Return after so many seconds, or as soon as `leaving` is set."""
        if leaving is None:
            return await self._clock.sleep(seconds)
        first = {asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(leaving.wait())}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in first:
                each.cancel()
        return None

    async def _of_minute(self) -> tuple[Budget, ...]:
        """Return what the tenant, and the keys that the run counts for, may use in a minute."""
        quotas = NO_QUOTAS if self._quotas is None else await self._quotas(self._run.agent.tenant)
        found = (model_tokens_budget(quotas), *map(model_tokens_budget, self._run.key_quotas))
        return tuple(budget for budget in found if budget is not None)

    async def _price(self, request: ModelRequest) -> Price | None:
        """Return what the dearest of the models that may answer costs, if that is counted; None for scripted ones."""
        counting = [each for each in self._of_models if each.unit is BudgetUnit.MONEY]
        if not counting:
            return None
        models = dict.fromkeys((*request.model.chain, *(each.cheaper for each in self._of_models if each.cheaper)))
        found = [(model, None if self._prices is None else await self._prices.of(model)) for model in models]
        for model, price in found:
            if price is None and not model.startswith(_SCRIPTED):
                raise UnpricedModelError(model, counting[0].name)
        prices = [price for _, price in found if price is not None]
        if not prices:
            return None
        return Price(max(each.prompt for each in prices), max(each.completion for each in prices))

    def after_model(self, reply: Usage, used: Usage, calls: int) -> None:
        """Write down what a reply used, `used` and `calls` being what the run used with it."""
        if self._asked is not None:
            amounts = [amount_used(budget, reply, 1) for budget, _ in self._asked.windows]
            charges = self._accounts.charges(self._asked.windows, amounts)
            self._budget_account.settle(self._asked.reservation_id, charges)
            self._asked = None
        self._note(reply, 1, used, calls)

    def before_embedding(self, call_id: ToolCallId, text: str, used: Usage, calls: int) -> str:
        """Return why the run's own budgets allow no vector of a text for a tool call, given what its calls used so far.

        Empty if they do: then it counts as under way until `after_embedding`. The other budgets are reserved of where it is asked for.
        """
        tokens = estimate_tokens(text) if self._of_run else 0
        for budget in self._of_run:
            amount = amount_used(budget, used, calls)
            reserved = sum(amount_expected(budget, each, 0, VECTORS) for each in self._embedding.values())
            if amount + reserved >= budget.limit:
                return _spent(budget, amount, None, reserved)
        self._embedding[call_id] = tokens
        return ""

    def after_embedding(self, call_id: ToolCallId, spent: Usage, made: int, used: Usage, calls: int) -> None:
        """Write down which calls for vectors a tool call made; `used` and `calls` are what the run used with them."""
        self._embedding.pop(call_id, None)
        if made:
            self._note(spent, made, used, calls)

    def _note(self, spent: Usage, made: int, used: Usage, calls: int) -> None:
        for budget in self._of_run:
            after = amount_used(budget, used, calls)
            self._tell(budget, after - amount_used(budget, spent, made), after)

    async def before_call(self, tool: ToolDefinition, call_id: ToolCallId) -> ToolError | None:
        """Return why a call of a tool must not be made, or None."""
        counting = [each for each in self._of_tools if matches(tool.name, each.tools)]
        if not counting:
            return None
        for budget in counting:
            used = self._calls_of(budget) if budget.scope is BudgetScope.RUN else 0
            if budget.scope is BudgetScope.RUN and used >= budget.limit:
                return ToolError("budget_exhausted", _spent(budget, used, None))
        own = [self._counted[each] for each in counting if each.scope is BudgetScope.RUN]
        for counted in own:
            counted.add(call_id)
        windows = self._accounts.windows(counting)
        if windows:
            reserved, answer = await self._reserve(call_id, windows, [1] * len(windows))
            if isinstance(answer, BudgetSpent):
                for counted in own:
                    counted.discard(call_id)
                return ToolError("budget_exhausted", self._accounts.refusal(windows, answer.use))
            self._calls[call_id] = reserved
        return None

    def after_call(self, tool: ToolDefinition, call_id: ToolCallId) -> None:
        """Write down that a call was made, in this activation or in one before it."""
        counting = [each for each in self._of_tools if matches(tool.name, each.tools)]
        windows = self._accounts.windows(counting)
        if windows:
            reserved = self._calls.pop(call_id, None) or self._accounts.reservation(call_id, windows)
            charges = self._accounts.charges(reserved.windows, [1] * len(reserved.windows))
            self._budget_account.settle(reserved.reservation_id, charges)
        for budget in counting:
            if budget.scope is BudgetScope.RUN:
                used = self._calls_of(budget)
                self._tell(budget, used - 1, used)

    def give_back(self, call_id: ToolCallId) -> None:
        """Free what was reserved here for a call that is not made."""
        for counted in self._counted.values():
            counted.discard(call_id)
        reserved = self._calls.pop(call_id, None)
        if reserved is not None:
            self._budget_account.settle(reserved.reservation_id, ())

    def _calls_of(self, budget: Budget) -> int:
        """Return how many calls that the budget counts were begun in this run, by earlier activations too."""
        for outcome in self._outcomes[self._seen :]:
            if outcome.error not in NOT_STARTED_ERRORS:
                for each, counted in self._counted.items():
                    if matches(outcome.tool, each.tools):
                        counted.add(outcome.call_id)
        self._seen = len(self._outcomes)
        return len(self._counted[budget])

    async def _reserve(
        self, call: str, windows: Windows, amounts: Sequence[int]
    ) -> tuple[BudgetReservation, BudgetReserved | BudgetSpent]:
        reserved = self._accounts.reservation(call, windows)
        return reserved, await self._budget_account.reserve(
            reserved.reservation_id, self._accounts.claims(windows, amounts)
        )

    def _tell(self, budget: Budget, before: int, after: int) -> None:
        """Add a warning to the ledger for each share of a run's own budget that was reached now."""
        for percent in budget.alerts:
            if before < _share(budget, percent) <= after:
                data = _alert(budget, percent)
                logger.warning("run %s of %s: %s", self._run.run_id, self._run.agent, data["why"])
                self._budget_account.audit(LedgerKind.WARNING, f"budget-{budget.name}-{percent}", data)


def _prompt_tokens(request: ModelRequest) -> int:
    texts = [request.system, *(each.content for each in request.messages)]
    texts += [call.arguments for each in request.messages for call in each.tool_calls]
    return sum(map(estimate_tokens, texts)) + len(request.tools) // 4


def unpriced(
    budgets: Iterable[Budget], models: Iterable[str], known: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield each of these models whose price is unknown, with the budget of money that needs it.

    `cheaper` models of budgets are among those that count.
    """
    counting = [each for each in budgets if not each.tools]
    money = next((each.name for each in counting if each.unit is BudgetUnit.MONEY), None)
    if money is not None:
        for model in dict.fromkeys((*models, *(each.cheaper for each in counting if each.cheaper))):
            if not model.startswith(_SCRIPTED) and not known(model):
                yield model, money


class BudgetEvaluator(VisibilityEvaluator):
    """Hides tools whose calls are counted by a budget of the agent or the tenant that is spent."""

    name = "budget"

    def __init__(self, governance: Governance, tools: Iterable[ToolDefinition]) -> None:
        budgets = [each for each in governance.budgets if each.tools and each.scope is not BudgetScope.RUN]
        names = [tool.name for tool in tools]
        self._tools = {budget: [name for name in names if matches(name, budget.tools)] for budget in budgets}
        self._judged = frozenset(name for covered in self._tools.values() for name in covered)

    @override
    def judged(self, facts: VisibilityFacts) -> Collection[str]:
        return self._judged

    @override
    async def hide(self, facts: VisibilityFacts) -> Mapping[str, str]:
        current = [(budget, budget.window(facts.now)) for budget in self._tools]
        windows = {_account(budget, facts.agent, window): (budget, window) for budget, window in current}
        uses = await facts.budget_use(
            [BudgetClaim(key, _NO_LIMIT, 0, each.ends_at) for key, (_, each) in windows.items()]
        )
        return {
            tool: _spent(budget, use.used, window, use.reserved)
            for use, (budget, window) in zip(uses, windows.values(), strict=True)
            if use.used + use.reserved >= budget.limit
            for tool in self._tools[budget]
        }


def _account(budget: Budget, agent: AgentRef, window: BudgetWindow) -> str:
    return budget.account(agent.tenant, agent.agent_id, window)


def amount_used(budget: Budget, usage: Usage, calls: int) -> int:
    """Return what a budget counts of this."""
    match budget.unit:
        case BudgetUnit.TOKENS:
            return usage.prompt_tokens + usage.completion_tokens
        case BudgetUnit.MONEY:
            return round(usage.cost * NANO)
        case BudgetUnit.CALLS:
            return calls


def amount_expected(budget: Budget, prompt: int, reply: int, price: Price | None) -> int:
    """Return what a budget counts of a model call that is to have so many tokens, before it is made. Scripts have no price."""
    match budget.unit:
        case BudgetUnit.TOKENS:
            return prompt + reply
        case BudgetUnit.MONEY:
            cost = _SCRIPT_COSTS if price is None else ceil(price.cost(prompt, reply) * NANO)
            return max(cost, 1) if budget.reserve is None else max(cost, budget.reserve)
        case BudgetUnit.CALLS:
            return 1


def _bounded(request: ModelRequest, budgets: Iterable[Budget]) -> ModelRequest:
    """Return the request whose reply has no more tokens than budgets of tokens and money set aside for it."""
    bounds = [each.reserve or _REPLY for each in budgets if each.unit is BudgetUnit.TOKENS]
    if request.model.max_tokens is None and any(each.unit is BudgetUnit.MONEY for each in budgets):
        bounds.append(_REPLY)
    if not bounds:
        return request
    most = min(bounds) if request.model.max_tokens is None else min(*bounds, request.model.max_tokens)
    return replace(request, model=replace(request.model, max_tokens=most))


def _share(budget: Budget, percent: int) -> int:
    return -(-budget.limit * percent // 100)


def _alert(budget: Budget, percent: int) -> JsonObject:
    why = f"{percent} % of {budget.title} is used"
    return {"what": "budget", "why": why, "budget": budget.name, "percent": percent}


def _spent(budget: Budget, used: int, window: BudgetWindow | None, reserved: int = 0) -> str:
    more = f", {budget.spoken(reserved)} reserved by calls under way" if reserved else ""
    ends_at = window.ends_at if window is not None else None
    renewed = "it is not renewed" if ends_at is None else f"it is renewed at {ends_at.isoformat(timespec='seconds')}"
    return f"{budget.title} is spent: {budget.spoken(used)} used{more}; {renewed}"
