"""Calls of MCP tools, from inside a tool worker."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from owlclaw_ray.domain.artifact import BINARY, ENDINGS, Artifact
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import Effect, ToolDefinition, ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import ArtifactTooLargeError, RetryableError, RuntimeUnavailableError
from owlclaw_ray.ids import ArtifactId, TenantId, derived_id
from owlclaw_ray.tools.arguments import Arguments, as_object
from owlclaw_ray.tools.artifact_home import ArtifactHome
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.mcp.api import McpCall, McpProblem, McpServerAccess, McpTrouble
from owlclaw_ray.tools.mcp.server_tools import PREFIX, RAW_NAME, SERVER

_MESSAGE_CHARACTERS = 1_500

Keep: TypeAlias = Callable[[int, str, bytes], JsonObject | None]
"""Stores block number N, of that media type: its reference, or None if it cannot be stored."""


def content_of(tool: str, answer: JsonObject, keep: Keep) -> JsonValue:
    """Return the content of a result in the form of the protocol: a lone text as text, structured content as it is, and
    everything else as a list of blocks with a `type`. Bytes become references, or are described where they cannot be stored.

    Raises ToolFailureError for results that say that they are errors: the server's words are the message.
    """
    blocks = [_block(index, each, keep) for index, each in enumerate(answer.get("content") or ())]
    structured = answer.get("structuredContent")
    if answer.get("isError"):
        said = "\n".join(block["text"] for block in blocks if block["type"] == "text").strip()
        others = [block for block in blocks if block["type"] != "text"]
        details = structured if structured is not None else (others or None)
        if len(said) > _MESSAGE_CHARACTERS:
            said = f"{said[:_MESSAGE_CHARACTERS]}…"
        raise ToolFailureError("execution_failed", said or f"{tool} failed and did not say why", details=details)
    if structured is not None:
        others = [block for block in blocks if block["type"] != "text"]
        return {"structured": structured, "content": others} if others else structured
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks or None


def _block(index: int, block: JsonObject, keep: Keep) -> JsonObject:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": str(block.get("text", ""))}
        case "image" | "audio" as kind:
            return {"type": kind, **_bytes(index, block.get("mimeType"), block.get("data"), keep)}
        case "resource":
            resource = block.get("resource") or {}
            about: JsonObject = {"type": "resource", "uri": str(resource.get("uri", ""))}
            if "blob" in resource:
                return about | _bytes(index, resource.get("mimeType"), resource["blob"], keep)
            return about | {
                "media_type": resource.get("mimeType") or "text/plain",
                "text": str(resource.get("text", "")),
            }
        case "resource_link":
            known = ("uri", "name", "title", "description", "mimeType", "size")
            return {"type": "resource_link", **{key: block[key] for key in known if block.get(key) is not None}}
        case kind:
            return {"type": str(kind), "note": "this kind of content is not known here"}


def _bytes(index: int, media_type: JsonValue, data: JsonValue, keep: Keep) -> JsonObject:
    about: JsonObject = {"media_type": str(media_type or "application/octet-stream")}
    try:
        content = base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        return about | {"note": "it is not valid base64"}
    about["size_bytes"] = len(content)
    reference = keep(index, about["media_type"], content)
    return about | ({"note": "its bytes are not kept"} if reference is None else {"artifact_ref": reference})


UNAVAILABLE = "server_unavailable"
_FRESH_SECONDS = 1.0
_GRACE_SECONDS = 1.0
"""What a call may take longer than the server: to tell how it ended."""
_TYPES = {
    McpTrouble.NO_SECRET: "secret_missing",
    McpTrouble.NOT_SENT: UNAVAILABLE,
    McpTrouble.LOST: UNAVAILABLE,
    McpTrouble.LATE: "timeout",
    McpTrouble.REFUSED: "execution_failed",
    McpTrouble.UNKNOWN_TOOL: "tool_not_available",
    McpTrouble.BAD_ARGUMENTS: "invalid_arguments",
}
_TRANSIENT = frozenset({McpTrouble.NOT_SENT, McpTrouble.LOST, McpTrouble.LATE})


class _KnownTools(Struct):
    """What the worker knows of the servers' tools."""

    version: str = ""
    asked: float = float("-inf")
    definitions: dict[str, ToolDefinition] = field(default_factory=dict)
    arguments: dict[str, Arguments] = field(default_factory=dict)


class McpTools:
    """Implements DynamicTools for the servers of this node: their tools may be others at any time."""

    source = "the MCP servers"
    own_errors = frozenset({"uncertain", "tool_not_available"})

    def __init__(
        self, servers: McpServerAccess, artifacts: ArtifactHome | None, monotonic: Callable[[], float]
    ) -> None:
        self._servers, self._artifacts, self._monotonic = servers, artifacts, monotonic
        self._known = _KnownTools()

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """See ToolSource.definitions; those of this moment."""
        return tuple(self._fresh().definitions.values())

    def owns(self, tool: str) -> bool:
        """See DynamicTools.owns."""
        return tool.startswith(PREFIX)

    def find(self, tool: str) -> ToolDefinition | None:
        """See DynamicTools.find."""
        return self._fresh().definitions.get(tool) if self.owns(tool) else None

    def run(self, invocation: ToolInvocation) -> ToolResult:
        """See ToolAdapter.run."""
        definition = self.find(invocation.tool)
        if definition is None:
            raise self.missing(invocation.tool, invocation.agent.tenant)
        arguments = self._read(definition, invocation.arguments)
        call = McpCall(
            server=definition.metadata[SERVER],
            tool=definition.metadata[RAW_NAME],
            arguments=arguments,
            seconds=max(invocation.timeout - _GRACE_SECONDS, invocation.timeout / 2),
            caller=os.getpid(),
            traceparent=invocation.traceparent,
            key=invocation.idempotency_key,
            tenant=invocation.agent.tenant,
        )
        try:
            answer = self._servers.call(call)
        except RuntimeUnavailableError as error:
            answer = McpProblem(McpTrouble.LOST, f"the pool of MCP servers went away: {error}")
        if isinstance(answer, McpProblem):
            # A call that may have acted, and acts again when repeated, is uncertain and not to be retried.
            trouble = answer.trouble
            acted = trouble in {McpTrouble.LOST, McpTrouble.LATE} and invocation.effect is Effect.ONCE
            message = answer.message
            if acted:
                message += " It may or may not have acted: check before you repeat it."
            type_ = "uncertain" if acted and trouble is McpTrouble.LOST else _TYPES[trouble]
            retryable = trouble in _TRANSIENT and not acted
            raise ToolFailureError(type_, message, retryable=retryable, details=answer.details)
        content = content_of(invocation.tool, answer, lambda *block: self._keep(invocation, *block))
        return ToolResult(invocation.call_id, content, metadata={SERVER: call.server})

    def missing(self, tool: str, tenant: TenantId) -> ToolFailureError:
        """See DynamicTools.missing."""
        server = tool.removeprefix(PREFIX).partition(".")[0]
        if any(each.metadata[SERVER] == server and each.is_for(tenant) for each in self._known.definitions.values()):
            return ToolFailureError("tool_not_available", f"the MCP server {server} does not offer {tool} any more")
        what = f"the MCP server {server} is not there: it is down, or was just started. Try again later."
        return ToolFailureError(UNAVAILABLE, what, retryable=True)

    def _read(self, definition: ToolDefinition, text: str) -> JsonObject:
        arguments = self._known.arguments.get(definition.name)
        if arguments is None:
            arguments = self._known.arguments[definition.name] = Arguments(definition.input_schema, as_object)
        (given,) = arguments.read(definition.name, text).positional
        assert isinstance(given, dict)
        return given

    def _fresh(self) -> _KnownTools:
        now = self._monotonic()
        if now - self._known.asked < _FRESH_SECONDS:
            return self._known
        try:
            catalog = self._servers.catalog(self._known.version)
        except RuntimeUnavailableError:
            return self._known
        self._known.asked = now
        if catalog is not None:
            definitions = {each.name: each for tools in catalog.tools.values() for each in tools}
            kept = {
                name: each
                for name, each in self._known.definitions.items()
                if each.metadata[SERVER] not in catalog.tools
            }
            self._known = _KnownTools(catalog.version, now, kept | definitions)
        return self._known

    def _keep(self, invocation: ToolInvocation, index: int, media_type: str, content: bytes) -> JsonObject | None:
        if self._artifacts is None or len(content) > self._artifacts.most_bytes:
            return None
        artifact_id = ArtifactId(derived_id("art", invocation.idempotency_key, "block", str(index)))
        kind = media_type if media_type in ENDINGS else BINARY
        try:
            self._artifacts.put(invocation.agent, Artifact(artifact_id, kind, content))
        except (OSError, RetryableError, ArtifactTooLargeError):
            return None
        return {"artifact_id": artifact_id, "size_bytes": len(content)}
