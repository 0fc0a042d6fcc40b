"""Conversations with models: requests, messages, replies. The OpenAI form is made from these at the wire."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct, field

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.ids import DEFAULT_TENANT, RequestId, TenantId, ToolCallId


class MessageRole(Enum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(Struct, frozen=True):
    """One message after the system message."""

    role: MessageRole
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message."""
    call_id: ToolCallId | None = None
    """Of a tool's message: the call that it answers."""


class ModelRequest(Struct, frozen=True):
    """One model call."""

    request_id: RequestId
    model: ModelChoice
    system: str
    messages: tuple[Message, ...]
    tools: bytes
    """A JSON array of function-calling schemas in OpenAI form, encoded once for many requests; `[]` for none."""
    timeout: float
    """Seconds for each attempt."""
    agent_id: str
    run_id: str
    trigger: Trigger
    base_dir: str = ""
    """The definition's folder: a scripted model's relative path starts there."""
    tenant: TenantId = DEFAULT_TENANT
    """Whose agent it is."""


class ContextWindow(Struct, frozen=True):
    """How much a model takes, in tokens."""

    tokens: int
    """Of prompt and reply together; of the prompt alone where its provider counts so."""
    reply: int | None = None
    """The longest reply; None if nobody says."""


class Price(Struct, frozen=True):
    """What a model costs, in US dollars for a million tokens."""

    prompt: float
    completion: float
    cached: float | None = None
    """Of a prompt, those that the provider had in its cache; None: as all others."""

    def cost(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
        """Return what so many tokens cost, in dollars."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = max(0, prompt_tokens - cached_tokens)
        return (fresh * self.prompt + cached_tokens * cached + completion_tokens * self.completion) / 1_000_000


class FailedAttempt(Struct, frozen=True):
    """One attempt that gave no reply."""

    model: str
    error: str
    retryable: bool
    after_ms: int = 0
    """How long after the beginning of the first attempt it failed."""


class NextAttempt(Struct, frozen=True):
    """A model is going to be asked because an attempt failed."""

    failed: FailedAttempt
    attempt: int
    """Which one of its model that was, from 1."""
    model: str
    """Who is asked next: the same model, or one that it falls back to."""
    seconds: float = 0.0
    """In how many seconds."""


class ModelReply(Struct, frozen=True):
    """What a model answered."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    model: str
    """Which model of the chain answered."""
    usage: Usage = field(default_factory=Usage)
    duration_ms: int = 0
    scripted: bool = False
    failed_attempts: tuple[FailedAttempt, ...] = ()
    """Attempts before this one, in order."""
    asked_ms: int = 0
    """From the beginning of the first of them until the reply."""


class ModelRoute(Struct, frozen=True):
    """The models of a run."""

    task_type: str
    by: str
    """Who says what type of task it is: `trigger`, or `skill <name>`."""
    models: tuple[str, ...]
