"""Rules, as a run obeys them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from owlclaw_ray.domain.agent import AgentDefinition, AgentRef, AgentState
from owlclaw_ray.domain.governance import CallOutcome, ToolLimit, Visibility
from owlclaw_ray.domain.tool import ToolDefinition, ToolError
from owlclaw_ray.ids import ToolCallId


class RunRules(Protocol):
    """The rules of one run."""

    async def decide(self, tools: Sequence[str]) -> Visibility:
        """Return which of these tools the run may use, and why not the others. Never raises."""
        ...

    def admit(self, tool: ToolDefinition, call_id: ToolCallId) -> ToolError | None:
        """Return why a call must not be made now, or None: then it counts as begun.

        Asked once for each call that is not known to be over, in the order in which they begin.
        """
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
        self, agent: AgentRef, definition: AgentDefinition, state: AgentState, outcomes: Sequence[CallOutcome]
    ) -> RunRules:
        """Return the rules of a run. `outcomes` is the live list of its calls' ends, those of earlier activations included."""
        ...
