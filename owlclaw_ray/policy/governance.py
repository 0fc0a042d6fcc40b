"""Rules, as a run obeys them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentDefinition, AgentState
from owlclaw_ray.domain.governance import CallOutcome, ToolLimit, Visibility
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.ledger import LedgerKind
from owlclaw_ray.domain.model import ModelRequest
from owlclaw_ray.domain.run import Run, Usage
from owlclaw_ray.domain.tool import ToolDefinition, ToolError
from owlclaw_ray.ids import ReservationId, ToolCallId
from owlclaw_ray.store.commands import BudgetCharge, BudgetClaim, BudgetReserved, BudgetSpent


class BudgetAccount(Protocol):
    """Where a run's use of budgets is written down."""

    async def reserve(
        self, reservation_id: ReservationId, claims: tuple[BudgetClaim, ...]
    ) -> BudgetReserved | BudgetSpent:
        """Commit a reservation; see ReserveBudget. Raises StaleEpochError."""
        ...

    def settle(self, reservation_id: ReservationId, charges: tuple[BudgetCharge, ...]) -> None:
        """Settle a reservation together with the facts that the run commits next; see SettleBudget."""
        ...

    def audit(self, kind: LedgerKind, key: str, data: JsonObject) -> None:
        """Add a ledger record; `key` tells it from others of its kind in this run."""
        ...


class RunRules(Protocol):
    """The rules of one run."""

    async def decide(self, tools: Sequence[str]) -> Visibility:
        """Return which of these tools the run may use, and why not the others. Never raises."""
        ...

    def forbids(self, tool: ToolDefinition) -> ToolError | None:
        """Return which rule keeps the run from calling a tool at this moment, or None: the tool was visible when the run began.

        Asked for each call right before it is executed, so that it costs next to nothing. What depends on other calls `admit` says.
        """
        ...

    def renew(self, definition: AgentDefinition) -> None:
        """Go by this version of the definition in `forbids` from now on: the run has waited within its activation."""
        ...

    async def admit(self, tool: ToolDefinition, call_id: ToolCallId) -> ToolError | None:
        """Return why a call must not be made now, or None: then it counts as begun.

        Asked once for each call that is not known to be over, in the order in which they begin. Raises StaleEpochError.
        """
        ...

    def ended(self, tool: ToolDefinition, call_id: ToolCallId) -> None:
        """Learn that a call which was admitted, here or by an activation before this one, is over, its end recorded."""
        ...

    def withdrawn(self, call_id: ToolCallId) -> None:
        """Learn that a call which was admitted here is not made, or not yet: before it is, it is to be admitted again."""
        ...

    async def before_model(self, request: ModelRequest, used: Usage, calls: int) -> ModelRequest:
        """Return the request as it may be made, given what the run's model calls used so far.

        Raises BudgetExhaustedError, and StaleEpochError.
        """
        ...

    def after_model(self, reply: Usage, used: Usage, calls: int) -> None:
        """Learn what a reply used; `used` and `calls` are what the run used with it, calls for vectors included."""
        ...

    def before_embedding(self, call_id: ToolCallId, text: str, used: Usage, calls: int) -> str:
        """Return why a tool call must not have a provider make a vector of a text, given what the run's calls used so far.

        Empty if it may, as far as the run's own budgets go: those of agent and tenant are reserved of where it is asked for.
        """
        ...

    def after_embedding(self, call_id: ToolCallId, spent: Usage, made: int, used: Usage, calls: int) -> None:
        """Learn what that tool call, which is over, spent on how many calls for vectors; `used` and `calls` are all with them."""
        ...

    def limit_of(self, tool: str) -> ToolLimit | None:
        """Return what is configured for the tool, if anything is."""
        ...

    def kept(self, state: AgentState) -> AgentState:
        """Return the agent's state with what the run's calls taught."""
        ...


class Governor(Protocol):
    """Knows the rules of every definition."""

    def rules(
        self,
        run: Run,
        definition: AgentDefinition,
        state: AgentState,
        outcomes: Sequence[CallOutcome],
        budget_account: BudgetAccount,
    ) -> RunRules:
        """Return the rules of a run. `outcomes` is the live list of its calls' ends, those of earlier activations included."""
        ...
