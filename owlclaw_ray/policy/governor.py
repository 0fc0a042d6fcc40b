"""The rules that a run obeys beside permissions: what it may see, and whether a call may begin now (budgets, rates, breakers)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentDefinition, AgentState
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.governance import CallOutcome, ToolLimit, Visibility
from owlclaw_ray.domain.quota import Quotas
from owlclaw_ray.domain.run import Run
from owlclaw_ray.domain.tool import ToolDefinition, ToolError
from owlclaw_ray.ids import ReservationId, TenantId, ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.prices import Prices
from owlclaw_ray.policy.breakers import BreakerEvaluator, Breakers
from owlclaw_ray.policy.budgets import NOT_STARTED_ERRORS, BudgetAccount, BudgetEvaluator, RunBudgets
from owlclaw_ray.policy.evaluators import (
    STATIC_EVALUATORS,
    HoursEvaluator,
    StaticEvaluator,
    SubAgentEvaluator,
    VersionEvaluator,
)
from owlclaw_ray.policy.rate_limits import RateLimiter, RateLimitEvaluator
from owlclaw_ray.policy.visibility import EvaluatorSet, VisibilityFacts
from owlclaw_ray.store.commands import BudgetClaim, BudgetReserved

_KNOWN_DEFINITIONS = 1_000


class DefinitionGovernor:
    """Knows the rules of every definition. The runtime's own tools (`unbroken`) have no breakers. Without `prices` no model has one."""

    def __init__(
        self,
        tools: Sequence[ToolDefinition],
        clock: Clock,
        unbroken: frozenset[str] = frozenset(),
        prices: Prices | None = None,
        quotas: Callable[[TenantId], Awaitable[Quotas]] | None = None,
    ) -> None:
        """`quotas` says those of a tenant; without it none has any."""
        self.clock, self.prices, self.quotas = clock, prices, quotas
        self._unbroken = unbroken
        self.know(tools)

    def know(self, tools: Sequence[ToolDefinition]) -> None:
        """Judge these tools from now on."""
        self._tools = tuple(tools)
        self.breaking = frozenset(tool.name for tool in tools) - self._unbroken
        """The tools that have breakers, where the definition has them."""
        self._evaluator_sets: dict[tuple[str, str], EvaluatorSet] = {}

    def rules(
        self,
        run: Run,
        definition: AgentDefinition,
        state: AgentState,
        outcomes: Sequence[CallOutcome],
        budget_account: BudgetAccount,
    ) -> GovernedRun:
        """Return the rules of a run. `outcomes` is the live list of its calls' ends, those of earlier activations included."""
        return GovernedRun(self, run, definition, state, outcomes=outcomes, budget_account=budget_account)

    def evaluators(self, definition: AgentDefinition) -> EvaluatorSet:
        """Return the evaluators of this version of the definition, made once."""
        key = definition.name, definition.version
        found = self._evaluator_sets.get(key)
        if found is None:
            if len(self._evaluator_sets) >= _KNOWN_DEFINITIONS:
                self._evaluator_sets.clear()
            rules, tools = definition.governance, self._tools
            found = self._evaluator_sets[key] = EvaluatorSet(
                [
                    *(StaticEvaluator(name, reason, definition, tools) for name, reason in STATIC_EVALUATORS.items()),
                    SubAgentEvaluator(tools),
                    VersionEvaluator(rules, tools),
                    HoursEvaluator(rules, tools),
                    RateLimitEvaluator(rules, tools),
                    BudgetEvaluator(rules, tools),
                    *((BreakerEvaluator(),) if rules.breaker.failures else ()),
                ],
                self.clock,
            )
        return found


class GovernedRun:
    """The rules of one run. `budgets` decides about model calls, and must be given what they and tool calls used."""

    def __init__(
        self,
        governor: DefinitionGovernor,
        run: Run,
        definition: AgentDefinition,
        state: AgentState,
        *,
        outcomes: Sequence[CallOutcome],
        budget_account: BudgetAccount,
    ) -> None:
        self._governor, self._run, self._definition, self._state = governor, run, definition, state
        self._budget_account = budget_account
        rules = definition.governance
        self.budgets = RunBudgets(
            rules.budgets, run, outcomes, budget_account, governor.clock, prices=governor.prices, quotas=governor.quotas
        )
        self._breakers = Breakers(rules.breaker, state.breakers)
        self._paces = RateLimiter(rules, state.paces)
        self._outcomes, self._seen = outcomes, 0
        self._admitted: set[ToolCallId] = set()

    async def decide(self, tools: Sequence[str]) -> Visibility:
        """Return which of these tools the run may use, and why not the others. Never raises."""
        return await self._governor.evaluators(self._definition).decide(tools, self._facts())

    def forbids(self, tool: ToolDefinition) -> ToolError | None:
        """Return which rule keeps the run from calling a tool at this moment, or None: the tool was visible when the run began.

        Asked for each call right before it is executed, so that it costs next to nothing. What depends on other calls `admit` says.
        """
        refused = self._governor.evaluators(self._definition).refusal(tool.name, self._facts())
        if refused is None:
            return None
        rule, why = refused
        message = f"{tool.name} must not be called now: {why} (rule: {rule})"
        return ToolError("tool_not_available", message, details={"rule": rule, "reason": why})

    def renew(self, definition: AgentDefinition) -> None:
        """Use this version of the definition in `forbids` from now on: the run has waited within its activation."""
        self._definition = definition

    async def admit(self, tool: ToolDefinition, call_id: ToolCallId) -> ToolError | None:
        """Return why a call must not be made now, or None: then it counts as begun.

        To be called once for each call that is not known to be over, in the order in which they begin. `budgets` must be given its
        end, or that it is not made after all. Raises StaleEpochError.
        """
        self._learn()
        now = self._governor.clock.now().timestamp()
        refused = self._paces.admit(tool.name, now)
        if refused is None and self._breaks(tool.name):
            refused = self._breakers.admit(tool.name, call_id, now)
        if refused is not None:
            return refused
        self._admitted.add(call_id)
        self._paces.note(tool.name, now)
        return await self.budgets.before_call(tool, call_id)

    def limit_of(self, tool: str) -> ToolLimit | None:
        """Return what is configured for the tool, if anything is."""
        return self._definition.governance.limit_of(tool)

    def kept(self, state: AgentState) -> AgentState:
        """Return the agent's state with the breakers and rates that the run's calls changed."""
        self._learn()
        breakers, paces = self._breakers.kept(), self._paces.kept(self._governor.clock.now().timestamp())
        if breakers == state.breakers and paces == state.paces:
            return state
        return replace(state, breakers=breakers, paces=paces)

    def _breaks(self, tool: str) -> bool:
        return self._definition.governance.breaker.failures > 0 and tool in self._governor.breaking

    def _facts(self) -> VisibilityFacts:
        run = self._run
        return VisibilityFacts(
            run.agent, self._governor.clock.now(), self._state, self._budget_use, run.trigger.lineage
        )

    async def _budget_use(self, claims: Sequence[BudgetClaim]) -> Sequence[BudgetUse]:
        answer = await self._budget_account.reserve(ReservationId(derived_id("resv", self._run.run_id)), tuple(claims))
        return answer.uses if isinstance(answer, BudgetReserved) else (answer.use,)

    def _learn(self) -> None:
        """Take in the ends of calls that came since the last time; calls of earlier activations count as begun when they ended."""
        for outcome in self._outcomes[self._seen :]:
            if self._breaks(outcome.tool):
                self._breakers.note(outcome)
            if outcome.call_id not in self._admitted and outcome.error not in NOT_STARTED_ERRORS:
                self._paces.note(outcome.tool, outcome.at)
        self._seen = len(self._outcomes)
