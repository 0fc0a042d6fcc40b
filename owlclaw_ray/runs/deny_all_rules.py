"""The rules of a run that is ended without being executed."""

from __future__ import annotations

from collections.abc import Sequence

from owlclaw_ray.domain.agent import AgentDefinition, AgentState
from owlclaw_ray.domain.governance import ToolLimit, Visibility
from owlclaw_ray.domain.model import ModelRequest
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import ToolDefinition, ToolError
from owlclaw_ray.errors import BudgetExhaustedError
from owlclaw_ray.ids import ToolCallId


class DenyAllRules:
    """Implements RunRules."""

    async def decide(self, tools: Sequence[str]) -> Visibility:
        """Show no tool."""
        del tools
        return Visibility(())

    def forbids(self, tool: ToolDefinition) -> ToolError | None:
        """Leave it to `admit`."""
        del tool
        return None

    def renew(self, definition: AgentDefinition) -> None:
        """Learn nothing."""

    async def admit(self, tool: ToolDefinition, call_id: ToolCallId) -> ToolError | None:
        """Refuse every call."""
        return ToolError("not_executed", f"call {call_id} of {tool.name} is not executed: the run ends")

    def ended(self, tool: ToolDefinition, call_id: ToolCallId) -> None:
        """Learn nothing."""

    def withdrawn(self, call_id: ToolCallId) -> None:
        """Learn nothing."""

    async def before_model(self, request: ModelRequest, used: Usage, calls: int) -> ModelRequest:
        """Refuse every model call."""
        del used, calls
        raise BudgetExhaustedError(f"the model call {request.request_id} is not made: the run ends")

    def after_model(self, reply: Usage, used: Usage, calls: int) -> None:
        """Learn nothing."""

    def before_embedding(self, call_id: ToolCallId, text: str, used: Usage, calls: int) -> str:
        """Refuse every vector."""
        del call_id, text, used, calls
        return "the run ends"

    def after_embedding(self, call_id: ToolCallId, spent: Usage, made: int, used: Usage, calls: int) -> None:
        """Learn nothing."""

    def limit_of(self, tool: str) -> ToolLimit | None:
        """Know of no limit."""
        del tool
        return None

    def kept(self, state: AgentState) -> AgentState:
        """Return the state as it is."""
        return state
