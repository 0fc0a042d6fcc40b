"""Runs: one execution from trigger to outcome."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from msgspec import Struct, field

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.quota import KeyQuota
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.ids import RunId


class RunStatus(Enum):
    """Where a run stands (R8)."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    """For an approval, or for the ends of runs that it started."""
    COMPLETED = "completed"
    """The model stopped by itself."""
    FAILED = "failed"
    """No model of the chain answered, or the agent's definition cannot be used."""
    TIMEOUT = "timeout"
    """The run's own time limit passed, or its deadline."""
    TERMINATED = "terminated"
    """Over the limit of tool calls or turns, or of a budget."""
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """There was nothing to do, or its deadline passed before it began."""

    @property
    def final(self) -> bool:
        """Whether the run is over."""
        return self not in {RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING}


class Usage(Struct, frozen=True):
    """Tokens and money (US dollars) of model calls."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost + other.cost,
        )


class RunError(Struct, frozen=True):
    """Why a run did not complete."""

    type: str
    message: str
    retryable: bool = False


class RunResult(Struct, frozen=True):
    """How a run ended (R8)."""

    status: RunStatus
    turns: int = 0
    tool_calls: int = 0
    final_text: str = ""
    tools_called: tuple[str, ...] = ()
    """Canonical names in the order in which the calls ended, repeats included."""
    duration_ms: int = 0
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    """The model that gave the last reply."""
    scripted: bool = False
    """Whether any reply came from a script and not from a model."""
    error: RunError | None = None


class Run(Struct, frozen=True):
    """A run as the store knows it."""

    run_id: RunId
    seq: int
    """Order of acceptance in the store; runs of one agent and one priority execute in this order."""
    agent: AgentRef
    trigger: Trigger
    status: RunStatus
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested: bool = False
    result: RunResult | None = None
    priority: int = 0
    deadline: datetime | None = None
    interrupted_by: RunId | None = None
    """The run for whose sake this one's end was asked for (BusyPolicy.INTERRUPT)."""
    awaits: tuple[RunId, ...] = ()
    """The runs of other agents whose ends it waits for."""
    key_quotas: tuple[KeyQuota, ...] = ()
    """The quotas of the keys that it counts for. Those who execute runs alone are told."""
    waits_for: str = ""
    """The quota of its tenant, or of a key, for which it waits to be executed, if it does. Those who execute runs do not ask."""
