"""ResultTools: an agent reads again what its calls returned earlier in the same run (R2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import orjson
from pydantic import Field

from owlclaw_ray.domain.journal import EntryKind
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import READ_RESULT, Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.store.api import QueryFunction
from owlclaw_ray.store.queries import JournalOfRun
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.internal.parts import PART_BYTES, Part
from owlclaw_ray.tools.large_output import INLINE_LIMIT
from owlclaw_ray.tools.signature import arguments_of_model

_LISTED = 200


class ReadResult(Part):
    """Arguments of internal.read_result."""

    call_id: Annotated[
        str, Field(max_length=200, description="The call. Leave it out to list the calls of this run.")
    ] = ""


class ResultTools:
    """Implements ToolAdapter. Reads the journal of the calling run; those of others do not exist for it."""

    source: ClassVar[str] = "the result tools"

    def __init__(self, read: QueryFunction) -> None:
        """`read` asks the store."""
        self._read = read

    @staticmethod
    def definitions() -> tuple[ToolDefinition, ...]:
        """See ToolSource.definitions."""
        return (
            ToolDefinition(
                READ_RESULT,
                "Read what a call returned earlier in this run, where it was cut or is not shown any more. Goes on at next_offset.",
                arguments_of_model(ReadResult, READ_RESULT).schema,
                Permission.READONLY,
                Effect.PURE,
                ToolClass.QUICK,
                tags=frozenset({"internal", "readonly"}),
                metadata={INLINE_LIMIT: PART_BYTES},
            ),
        )

    def run(self, invocation: ToolInvocation) -> JsonObject:
        """See ToolAdapter.run."""
        (asked,) = arguments_of_model(ReadResult, READ_RESULT).read(READ_RESULT, invocation.arguments).positional
        assert isinstance(asked, ReadResult)
        if not asked.call_id:
            calls = [
                {"call_id": data["call_id"], "tool": data["tool"], "characters": len(_text(data))}
                for data in self._finished(invocation)
            ]
            return {"calls": calls[-_LISTED:], "left_out": max(0, len(calls) - _LISTED)}
        found = next((data for data in self._finished(invocation) if data["call_id"] == asked.call_id), None)
        if found is None:
            what = f"no call {asked.call_id!r} of this run has a result; without a call_id the calls are listed"
            raise ToolFailureError("not_found", what)
        return {"call_id": asked.call_id, "tool": found["tool"], **asked.of(_text(found))}

    def _finished(self, invocation: ToolInvocation) -> Iterator[JsonObject]:
        for entry in self._read(JournalOfRun(invocation.agent.tenant, invocation.run_id)):
            if entry.kind is EntryKind.TOOL_FINISHED:
                yield entry.data


def _text(data: JsonObject) -> str:
    """Return what the model was given, or would have been, before it was cut."""
    value: JsonValue = {"error": data["error"]} if "error" in data else data.get("content")
    return value if isinstance(value, str) else orjson.dumps(value).decode()
