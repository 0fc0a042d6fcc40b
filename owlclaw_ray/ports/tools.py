"""Tools, as the run loop calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.ledger import LedgerRecord
from owlclaw_ray.domain.pickling import fast_pickle
from owlclaw_ray.domain.tool import Effect, ToolClass, ToolResult
from owlclaw_ray.domain.trigger import TriggerKind
from owlclaw_ray.ids import RunId, ToolCallId


@fast_pickle
@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """All that a worker needs to execute one call, wherever it runs."""

    call_id: ToolCallId
    tool: str
    """Canonical name."""
    arguments: str
    """JSON text, not yet validated."""
    agent: AgentRef
    run_id: RunId
    trigger: TriggerKind
    effect: Effect
    tool_class: ToolClass
    timeout: float
    """Seconds that the call may take once it runs."""
    idempotency_key: str
    """The same for every attempt at this call: derived from run_id and call_id."""
    active_schedules: int = 100
    """Limit T18, as the definition sets it."""


@fast_pickle
@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What one call gave, and what is to be committed with it."""

    result: ToolResult
    duration_ms: int
    records: tuple[LedgerRecord, ...] = ()
    """Ledger records that the tool itself makes (a decision); the host commits them together with the result."""


class ToolRunner(Protocol):
    """Executes tool calls outside the run loop."""

    async def run(self, invocation: ToolInvocation) -> ToolOutcome:
        """Execute the call and return its outcome; failures of the tool are outcomes too, never exceptions.

        Arguments are validated against the tool's schema before its handler runs (`invalid_arguments`). The call has
        `invocation.timeout` seconds; what does not stop then is killed and the outcome is a `timeout` error. When the
        worker dies, a pure or idempotent call is run again once; a `once` call gives an `uncertain` error. Cancelling
        the awaiting task stops the tool within a second.
        """
        ...


class ToolExecutor(Protocol):
    """The inside of a worker: runs calls in this process, one after another, each within its own deadline."""

    def run_all(self, invocations: Sequence[ToolInvocation]) -> list[ToolOutcome]:
        """Return one outcome a call, in order. Never raises for what a tool does."""
        ...
