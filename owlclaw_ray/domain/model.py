"""Conversations with models: requests, messages, replies. The OpenAI form is made from these at the wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from owlclaw_ray.domain.agent import ModelChoice
from owlclaw_ray.domain.pickling import fast_pickle
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.ids import RequestId, ToolCallId


class Role(Enum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@fast_pickle
@dataclass(frozen=True, slots=True)
class Message:
    """One message after the system message."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant's message."""
    call_id: ToolCallId | None = None
    """Of a tool's message: the call that it answers."""


@fast_pickle
@dataclass(frozen=True, slots=True)
class ModelRequest:
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


@fast_pickle
@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One attempt that gave no reply."""

    model: str
    error: str
    retryable: bool


@fast_pickle
@dataclass(frozen=True, slots=True)
class ModelReply:
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
