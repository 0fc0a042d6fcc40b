"""From what a server lists to definitions: what fits is taken, what does not is left out and named."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from fnmatch import fnmatchcase

import orjson
from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.tools.mcp.api import LeftOut
from owlclaw_ray.tools.mcp.foreign_schema import check_name, harmless_schema, prose
from owlclaw_ray.tools.mcp.names import canonical_mcp_name
from owlclaw_ray.tools.mcp.options import Address, Annotations, McpServerOptions, ToolRule
from owlclaw_ray.tools.names import tool_name_problems
from owlclaw_ray.tools.schema import plain_schema

RAW_NAME, SERVER = "raw_name", "server"
"""Keys of a definition's metadata: how the server calls the tool, and the server."""
UNUSABLE = "owlclaw/unusable"
"""The key of a listed tool's `_meta` that says why it cannot be used, whatever else is said of it."""
_MAX_TOOLS = 500
_MAX_SCHEMA_PARTS = 10_000
_MAX_SCHEMA_BYTES = 64 * 1024
_MAX_TOTAL_BYTES = 1024 * 1024
"""Of the schemas of one server: every run that sees its tools has them in its prompt."""
_ANY = ToolRule("*")
_logger = logging.getLogger(__name__)


class ServerTools(Struct, frozen=True):
    """What agents can be given of a server."""

    definitions: tuple[ToolDefinition, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def warn(self, server: str) -> None:
        """Log what is left out."""
        for each in self.left_out:
            _logger.warning("the tool %r of the MCP server %s is left out: %s", each.tool, server, each.why)


def offering_of(server: McpServerOptions, listed: Sequence[JsonObject]) -> ServerTools:
    """Return the definitions of the tools that a server lists, in the form of the protocol, and what cannot be used of them."""
    definitions: dict[str, ToolDefinition] = {}
    left_out: list[LeftOut] = []
    together = 0
    for tool in listed:
        raw, rule = str(tool.get("name", "")), _rule(server, str(tool.get("name", "")))
        if not rule.enabled:
            left_out.append(LeftOut(raw, f"mcp.servers.{server.name}.tools turns it off"))
            continue
        unusable = _mapping(tool.get("_meta")).get(UNUSABLE)
        if unusable:
            left_out.append(LeftOut(raw, str(unusable)))
            continue
        try:
            definition = _definition(server, tool, rule)
        except ConfigurationError as error:
            left_out.append(LeftOut(raw, "; ".join(str(problem) for problem in error.problems)))
            continue
        except RecursionError:
            left_out.append(LeftOut(raw, "inputSchema: is nested too deeply"))
            continue
        except Exception as error:  # noqa: BLE001 (a server may write anything, and the others of its tools stay)
            left_out.append(LeftOut(raw, f"inputSchema: cannot be read: {type(error).__name__}: {error}"))
            continue
        taken = definitions.get(definition.wire_name)
        if taken is not None:
            left_out.append(LeftOut(raw, f"it cannot be told from the server's tool {taken.metadata[RAW_NAME]!r}"))
        elif len(definitions) == _MAX_TOOLS:
            left_out.append(LeftOut(raw, f"a server may have {_MAX_TOOLS} tools"))
        elif together + (size := _bytes_of(definition.input_schema)) > _MAX_TOTAL_BYTES:
            what = f"the schemas of a server's tools may have {_MAX_TOTAL_BYTES} bytes together"
            left_out.append(LeftOut(raw, what))
        else:
            together += size
            definitions[definition.wire_name] = definition
    return ServerTools(tuple(definitions.values()), tuple(left_out))


def _rule(server: McpServerOptions, raw: str) -> ToolRule:
    """Return the rule of that very name, else the first whose pattern fits."""
    own = (rule for rule in server.rules if rule.tools == raw)
    fitting = (rule for rule in server.rules if fnmatchcase(raw, rule.tools))
    return next(own, next(fitting, _ANY))


def _definition(server: McpServerOptions, tool: JsonObject, rule: ToolRule) -> ToolDefinition:
    raw = str(tool["name"])
    name = canonical_mcp_name(server.name, raw)
    problems = tool_name_problems(name)
    if problems:
        raise ConfigurationError(problems)
    hints = _Hints(tool.get("annotations"), server.annotations)
    check_name(raw, "name")
    written = _mapping(tool.get("inputSchema"))
    if _size(written, _mapping(written.get("$defs")), {}) > _MAX_SCHEMA_PARTS:
        what = f"has more than {_MAX_SCHEMA_PARTS} parts when its references are followed"
        raise ConfigurationError([Problem("inputSchema", what, "tools need smaller schemas")])
    schema = harmless_schema(plain_schema(written, "inputSchema"), "inputSchema")
    size = _bytes_of(schema)
    if size > _MAX_SCHEMA_BYTES:
        raise ConfigurationError([Problem("inputSchema", f"has {size} bytes", f"a tool may have {_MAX_SCHEMA_BYTES}")])
    permission = Permission(rule.permission) if rule.permission else hints.permission
    network = {"network"} if isinstance(server.endpoint, Address) else set[str]()
    return ToolDefinition(
        name=name,
        description=prose(str(tool.get("description") or tool.get("title") or raw)),
        input_schema=schema,
        permission=permission,
        effect=Effect(rule.effect) if rule.effect else hints.effect,
        tool_class=ToolClass.ALONE,
        tags=frozenset({"mcp", permission.value, *server.tags, *rule.tags, *hints.tags, *network}),
        timeout=rule.timeout or server.timeout,
        metadata={SERVER: server.name, RAW_NAME: raw},
    )


class _Hints:
    """What a server says of a tool, as far as it is believed: without a word, and without trust, a call acts, and acts again."""

    def __init__(self, written: JsonValue, annotations: Annotations) -> None:
        said = _mapping(written)
        self._trusted = annotations is Annotations.TRUST
        self._reads, self._idempotent = said.get("readOnlyHint") is True, said.get("idempotentHint") is True
        self._destroys = said.get("destructiveHint") is True and not self._reads
        self._open = said.get("openWorldHint") is True

    @property
    def permission(self) -> Permission:
        return Permission.READONLY if self._trusted and self._reads else Permission.WRITE

    @property
    def effect(self) -> Effect:
        return Effect.IDEMPOTENT if self._trusted and (self._reads or self._idempotent) else Effect.ONCE

    @property
    def tags(self) -> frozenset[str]:
        said = {"dangerous": self._destroys, "network": self._open}
        return frozenset(tag for tag, holds in said.items() if holds)


def _bytes_of(schema: JsonObject) -> int:
    return len(orjson.dumps(schema))


def _size(node: JsonValue, definitions: JsonObject, sizes: dict[str, int]) -> int:
    """Return how many values a schema has when each reference stands for what it refers to; one to itself counts as one."""
    if isinstance(node, list):
        return 1 + sum(_size(each, definitions, sizes) for each in node)
    if not isinstance(node, dict):
        return 1
    total = 1 + sum(_size(value, definitions, sizes) for key, value in node.items() if key != "$defs")
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        if name not in sizes:
            sizes[name] = 1
            sizes[name] = _size(definitions[name], definitions, sizes)
        total += sizes[name]
    return total


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}
