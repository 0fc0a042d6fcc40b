"""The rules of every definition, made once for each version of one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from owlclaw_ray.domain.agent import AgentDefinition, AgentState
from owlclaw_ray.domain.budget import BudgetUse
from owlclaw_ray.domain.governance import CallOutcome, Governance, ToolLimit, Visibility
from owlclaw_ray.domain.model import ModelRequest
from owlclaw_ray.domain.run import Run, Usage
from owlclaw_ray.domain.tool import ToolDefinition, ToolError
from owlclaw_ray.ids import ReservationId, ToolCallId, derived_id
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.models.prices import Prices
from owlclaw_ray.policy.breakers import BreakerEvaluator, Breakers
from owlclaw_ray.policy.budgets import NOT_STARTED_ERRORS, BudgetEvaluator, RunBudgets
from owlclaw_ray.policy.evaluators import VisibilityFacts
from owlclaw_ray.policy.governance import BudgetAccount
from owlclaw_ray.policy.hours import HoursEvaluator
from owlclaw_ray.policy.rate_limits import RateLimiter, RateLimitEvaluator
from owlclaw_ray.policy.static_visibility import STATIC_EVALUATORS, StaticEvaluator
from owlclaw_ray.policy.sub_agent_visibility import SubAgentEvaluator
from owlclaw_ray.policy.versions import VersionEvaluator
from owlclaw_ray.policy.visibility import EvaluatorSet
from owlclaw_ray.store.commands import BudgetClaim, BudgetReserved

_KNOWN_DEFINITIONS = 1_000


class DefinitionGovernor:
    """Implements Governor. `unbroken` tools, which are the runtime's own, have no breakers. Without `prices` no model has one."""

    def __init__(
        self,
        tools: Sequence[ToolDefinition],
        clock: Clock,
        unbroken: frozenset[str] = frozenset(),
        prices: Prices | None = None,
    ) -> None:
        self.clock, self.prices = clock, prices
        self._unbroken = unbroken
        self.know(tools)

    def know(self, tools: Sequence[ToolDefinition]) -> None:
        """Judge these tools from now on."""
        self._tools = tuple(tools)
        self._breaking = frozenset(tool.name for tool in tools) - self._unbroken
        self._evaluator_sets: dict[tuple[str, str], EvaluatorSet] = {}

    def rules(
        self,
        run: Run,
        definition: AgentDefinition,
        state: AgentState,
        outcomes: Sequence[CallOutcome],
        budget_account: BudgetAccount,
    ) -> GovernedRun:
        """See Governor.rules."""
        return GovernedRun(self, run, definition, state, outcomes=outcomes, budget_account=budget_account)

    def breaks(self, tool: str, governance: Governance) -> bool:
        """Return whether the tool has a breaker."""
        return governance.breaker.failures > 0 and tool in self._breaking

    def panel(self, definition: AgentDefinition) -> EvaluatorSet:
        """Return the evaluators of this version of the definition."""
        key = definition.name, definition.version
        found = self._evaluator_sets.get(key)
        if found is None:
            if len(self._evaluator_sets) >= _KNOWN_DEFINITIONS:
                self._evaluator_sets.clear()
            found = self._evaluator_sets[key] = self._build_evaluators(definition)
        return found

    def _build_evaluators(self, definition: AgentDefinition) -> EvaluatorSet:
        rules = definition.governance
        standing = (
            StaticEvaluator(name, reason, definition, self._tools) for name, reason in STATIC_EVALUATORS.items()
        )
        breaker = (BreakerEvaluator(),) if rules.breaker.failures else ()
        kinds = (VersionEvaluator, HoursEvaluator, RateLimitEvaluator, BudgetEvaluator)
        return EvaluatorSet(
            [*standing, SubAgentEvaluator(self._tools), *(kind(rules, self._tools) for kind in kinds), *breaker],
            self.clock,
        )


class GovernedRun:
    """Implements RunRules."""

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
        self._governor, self._run, self._definition, self._state, self._budget_account = (
            governor,
            run,
            definition,
            state,
            budget_account,
        )
        budgets = definition.governance.budgets
        self._budgets = RunBudgets(budgets, run, outcomes, budget_account, governor.clock, prices=governor.prices)
        self._breakers = Breakers(definition.governance.breaker, state.breakers)
        self._paces = RateLimiter(definition.governance, state.paces)
        self._outcomes, self._seen = outcomes, 0
        self._admitted: set[ToolCallId] = set()

    async def decide(self, tools: Sequence[str]) -> Visibility:
        """See RunRules.decide."""
        return await self._governor.panel(self._definition).decide(tools, self._facts())

    def forbids(self, tool: ToolDefinition) -> ToolError | None:
        """See RunRules.forbids."""
        refused = self._governor.panel(self._definition).refusal(tool.name, self._facts())
        if refused is None:
            return None
        rule, why = refused
        message = f"{tool.name} must not be called now: {why} (rule: {rule})"
        return ToolError("tool_not_available", message, details={"rule": rule, "reason": why})

    def renew(self, definition: AgentDefinition) -> None:
        """See RunRules.renew."""
        self._definition = definition

    def _facts(self) -> VisibilityFacts:
        run = self._run
        return VisibilityFacts(
            run.agent, self._governor.clock.now(), self._state, self._budget_use, run.trigger.lineage
        )

    async def admit(self, tool: ToolDefinition, call_id: ToolCallId) -> ToolError | None:
        """See RunRules.admit."""
        return self._admit(tool, call_id) or await self._budgets.before_call(tool, call_id)

    def ended(self, tool: ToolDefinition, call_id: ToolCallId) -> None:
        """See RunRules.ended."""
        self._budgets.after_call(tool, call_id)

    def withdrawn(self, call_id: ToolCallId) -> None:
        """See RunRules.withdrawn."""
        self._budgets.give_back(call_id)

    async def before_model(self, request: ModelRequest, used: Usage, calls: int) -> ModelRequest:
        """See RunRules.before_model."""
        return await self._budgets.before_model(request, used, calls)

    def after_model(self, reply: Usage, used: Usage, calls: int) -> None:
        """See RunRules.after_model."""
        self._budgets.after_model(reply, used, calls)

    def before_embedding(self, call_id: ToolCallId, text: str, used: Usage, calls: int) -> str:
        """See RunRules.before_embedding."""
        return self._budgets.before_embedding(call_id, text, used, calls)

    def after_embedding(self, call_id: ToolCallId, spent: Usage, made: int, used: Usage, calls: int) -> None:
        """See RunRules.after_embedding."""
        self._budgets.after_embedding(call_id, spent, made, used, calls)

    async def _budget_use(self, claims: Sequence[BudgetClaim]) -> Sequence[BudgetUse]:
        answer = await self._budget_account.reserve(ReservationId(derived_id("resv", self._run.run_id)), tuple(claims))
        return answer.uses if isinstance(answer, BudgetReserved) else (answer.use,)

    def _admit(self, tool: ToolDefinition, call_id: ToolCallId) -> ToolError | None:
        self._learn()
        now = self._governor.clock.now().timestamp()
        refused = self._paces.admit(tool.name, now)
        if refused is None and self._governor.breaks(tool.name, self._definition.governance):
            refused = self._breakers.admit(tool.name, call_id, now)
        if refused is None:
            self._admitted.add(call_id)
            self._paces.note(tool.name, now)
        return refused

    def limit_of(self, tool: str) -> ToolLimit | None:
        """See RunRules.limit_of."""
        return self._definition.governance.limit_of(tool)

    def kept(self, state: AgentState) -> AgentState:
        """See RunRules.kept."""
        self._learn()
        now = self._governor.clock.now().timestamp()
        breakers, paces = self._breakers.kept(), self._paces.kept(now)
        if breakers == state.breakers and paces == state.paces:
            return state
        return replace(state, breakers=breakers, paces=paces)

    def _learn(self) -> None:
        """Take in the ends of calls that came since the last time; calls of earlier activations count as begun when they ended."""
        for outcome in self._outcomes[self._seen :]:
            if self._governor.breaks(outcome.tool, self._definition.governance):
                self._breakers.note(outcome)
            if outcome.call_id not in self._admitted and outcome.error not in NOT_STARTED_ERRORS:
                self._paces.note(outcome.tool, outcome.at)
        self._seen = len(self._outcomes)
