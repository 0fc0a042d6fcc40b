"""What a script is asked, and what it answers: also the interface of scripts written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import orjson
from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.model import Message, MessageRole, ModelRequest
from owlclaw_ray.domain.run import Usage
from owlclaw_ray.domain.trigger import Trigger
from owlclaw_ray.models.sanitise import data_in


class ScriptedResult(Struct, frozen=True):
    """The result of one tool call of this run."""

    name: str
    """The tool's canonical name, with dots."""
    call_id: str
    content: JsonValue
    """The result; of a failed call the error: type, message, retryable, details."""
    is_error: bool


@dataclass(frozen=True)
class ScriptedRequest:
    """One question to the model."""

    request: ModelRequest
    attempt: int = 1
    """1, and one more for each error that this turn of the run has already answered with."""

    @cached_property
    def turn(self) -> int:
        """How many replies the run has had: 0 for its first model call."""
        return sum(message.role is MessageRole.ASSISTANT for message in self.request.messages)

    @property
    def trigger(self) -> Trigger:
        """Why the run started: kind, focus, payload."""
        return self.request.trigger

    @property
    def agent_id(self) -> str:
        """Whose run it is."""
        return self.request.agent_id

    @property
    def run_id(self) -> str:
        """Which run it is."""
        return self.request.run_id

    @property
    def system(self) -> str:
        """The system prompt."""
        return self.request.system

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far, the first user message included."""
        return self.request.messages

    @cached_property
    def tools(self) -> list[JsonObject]:
        """The function-calling schemas of the tools that the run may call."""
        schemas: list[JsonObject] = orjson.loads(self.request.tools)
        return schemas

    @cached_property
    def results(self) -> tuple[ScriptedResult, ...]:
        """The tool results of the run so far, oldest first."""
        names: dict[str, str] = {}
        results: list[ScriptedResult] = []
        for message in self.request.messages:
            names.update((call.call_id, call.name.replace("__", ".")) for call in message.tool_calls)
            if message.role is MessageRole.TOOL and message.call_id is not None:
                content, is_error = _content(message.content)
                results.append(ScriptedResult(names.get(message.call_id, ""), message.call_id, content, is_error))
        return tuple(results)


class ScriptedCall(Struct, frozen=True):
    """A tool call. A text as `arguments` goes to the runtime as it is, so that it can be malformed."""

    name: str
    arguments: JsonObject | str = {}


class ScriptedError(Struct, frozen=True):
    """A provider's failure, acted out."""

    message: str = "the script says so"
    retryable: bool = True
    """Whether it is an outage (tried again, then the fallback chain) or a refusal (the fallback chain at once)."""
    retry_after: float | None = None


class ScriptedReply(Struct, frozen=True):
    """What the model answers, `latency` seconds after it was asked. With an `error` it answers nothing else."""

    text: str = ""
    tool_calls: Sequence[ScriptedCall] = ()
    latency: float = 0.0
    usage: Usage = Usage()
    error: ScriptedError | None = None


class Script(Protocol):
    """A loaded script."""

    async def reply(self, request: ScriptedRequest) -> ScriptedReply:
        """Return the answer, the same for the same request. Raises ScriptError when the script has none."""
        ...


class ScriptError(Exception):
    """The script cannot answer this request; says where in which file, and why."""


def _content(text: str) -> tuple[JsonValue, bool]:
    try:
        content = orjson.loads(data_in(text))
    except orjson.JSONDecodeError:
        return text, False
    if isinstance(content, dict) and isinstance(content.get("error"), dict) and len(content) == 1:
        return content["error"], True
    return content, False
