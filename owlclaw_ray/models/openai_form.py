"""Conversations in OpenAI's form, which litellm takes for every provider."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache

import orjson

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.model import MessageRole, ModelRequest
from owlclaw_ray.domain.tool import ToolCall
from owlclaw_ray.ids import ToolCallId, derived_id

_NAME_CHARACTERS = 64
_ACCEPTED_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_-]{{0,{_NAME_CHARACTERS - 1}}}")
_REFUSED_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


def messages(request: ModelRequest) -> list[JsonObject]:
    """Return the system message (if there is a text for it) and the conversation."""
    forms: list[JsonObject] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        form: JsonObject = {"role": message.role.value, "content": message.content}
        if message.tool_calls:
            form["content"] = message.content or None
            form["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": _accepted_name(call.name), "arguments": _accepted_arguments(call.arguments)},
                }
                for call in message.tool_calls
            ]
        if message.role is MessageRole.TOOL:
            form["tool_call_id"] = message.call_id
        forms.append(form)
    return forms


@lru_cache(maxsize=64)
def decode_tools(encoded: bytes) -> list[JsonObject]:
    """Return the schemas behind a request's `tools`. The list is shared between calls: it must not be changed."""
    schemas: list[JsonObject] = orjson.loads(encoded)
    return schemas


def unique_calls(request: ModelRequest, calls: Iterable[tuple[str | None, str, str]]) -> tuple[ToolCall, ...]:
    """Return the calls (id, name, arguments) with ids that no other call of the conversation has.

    A provider's id is kept; a missing one, or one that was used before (some servers count from zero in each reply),
    is replaced by one derived from the request and the call's position.
    """
    taken = {call.call_id for message in request.messages for call in message.tool_calls}
    unique: list[ToolCall] = []
    for index, (given, name, arguments) in enumerate(calls):
        call_id = ToolCallId(given or "")
        if not call_id or call_id in taken:
            call_id = ToolCallId(derived_id("call", request.run_id, request.request_id, str(index)))
        taken.add(call_id)
        unique.append(ToolCall(call_id, name, arguments))
    return tuple(unique)


def _accepted_name(name: str) -> str:
    """Return the name of a past call in a form that every provider takes back: they refuse requests that repeat a bad one."""
    if _ACCEPTED_NAME.fullmatch(name):
        return name
    return f"_{_REFUSED_CHARACTER.sub('_', name)}"[:_NAME_CHARACTERS]


def _accepted_arguments(arguments: str) -> str:
    """Return the arguments of a past call as a JSON object, which Anthropic and Gemini need: what is none is wrapped in one."""
    if not arguments.strip():
        return "{}"
    try:
        whole = isinstance(orjson.loads(arguments), dict)
    except ValueError:
        whole = False
    return arguments if whole else json.dumps({"malformed_arguments": arguments})
