"""From what a server lists to definitions: what fits is taken, what does not is left out and named."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import orjson
from msgspec import Struct

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.models.sanitise import inspect, neutralise, sanitise
from owlclaw_ray.tools.mcp.api import LeftOut
from owlclaw_ray.tools.mcp.options import Address, Annotations, McpServerOptions, ToolRule
from owlclaw_ray.tools.names import tool_name_problems, wire_name
from owlclaw_ray.tools.schema import plain_schema

PREFIX = "mcp."
SERVER_NAME = r"^[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*$"
_WIRE_LENGTH = 64
_DIGEST = 8
_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_NEEDS_ESCAPE = re.compile(r"_(?=x[0-9A-F]{2})")


def canonical_mcp_name(server: str, tool: str) -> str:
    """Return the canonical name of a server's tool.

    What no name may have is spelled `_xHH`, a byte of UTF-8 each, so that no two tools get the same name. A name that is too long
    for model providers is cut and ends in a digest of the whole; the definition's metadata has the server's own name.
    """
    name = f"{PREFIX}{server}.{escaped(tool)}"
    excess = len(wire_name(name)) - _WIRE_LENGTH
    if excess <= 0:
        return name
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    start = len(PREFIX) + len(server) + 1
    kept = escaped(tool)
    while len(wire_name(f"{PREFIX}{server}.{kept}-{digest}")) > _WIRE_LENGTH:
        kept = kept[:-1]
    return f"{name[:start]}{kept.rstrip('.')}-{digest}"


def escaped(tool: str) -> str:
    """Return the name with letters, digits, `_`, `-` and single dots inside it as they are, and everything else as `_xHH`."""
    marked = _NEEDS_ESCAPE.sub("_x5F", tool)
    last = len(marked) - 1
    return "".join(
        each
        if _PLAIN.fullmatch(each) or (each == "." and 0 < index < last and marked[index - 1] != ".")
        else "".join(f"_x{byte:02X}" for byte in each.encode("utf-8", "surrogatepass"))
        for index, each in enumerate(marked)
    )


DESCRIPTION_CHARACTERS = 4_096
_NAME_CHARACTERS = 200
_VALUE_CHARACTERS = 1_000
_BETWEEN_WORDS = re.compile(r"[\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SENT = ("enum", "pattern", "format", "required")
"""What of a schema, beside names of properties, calls are made of or checked by."""
_SHOWN = ("default", "examples")


def prose(text: str) -> str:
    """Return what a server says of itself, for a model."""
    return neutralise(text)[:DESCRIPTION_CHARACTERS]


def injection_in(text: str, most: int = _VALUE_CHARACTERS) -> str | None:
    """Return why a text cannot be passed on as it is; None if it can. Words are told apart however they are written together."""
    if len(text) > most:
        return f"is longer than {most} characters"
    if sanitise(text) != text:
        return "has hidden characters"
    found = inspect(text) or inspect(_BETWEEN_WORDS.sub(" ", _CAMEL.sub(" ", text)))
    return f"holds {found[0].attempt.value}" if found else None


def check_name(name: str, where: str) -> None:
    """Raise ConfigurationError for a name that tries to be more than one."""
    why = injection_in(name, _NAME_CHARACTERS)
    if why is not None:
        raise ConfigurationError([Problem(where, f"{sanitise(name)[:60]!r} {why}", "a server cannot name things so")])


def harmless_schema(schema: JsonObject, where: str) -> JsonObject:
    """Return a plain schema as a model may read it.

    Raises ConfigurationError for names and values that calls are made of, and that try to be more than that.
    """
    harmless: JsonObject = {}
    for key, value in schema.items():
        place = f"{where}.{key}"
        if key == "description":
            harmless[key] = prose(str(value))
        elif key == "properties":
            for name in value:
                check_name(name, f"{where}: the name of a property")
            harmless[key] = {name: harmless_schema(each, f"{place}.{name}") for name, each in value.items()}
        elif key in {"items", "additionalProperties"} and isinstance(value, dict):
            harmless[key] = harmless_schema(value, place)
        elif key in _SHOWN:
            if all(injection_in(text) is None for text in _texts(value)):
                harmless[key] = value
        else:
            for text in _texts(value) if key in _SENT else ():
                why = injection_in(text)
                if why is not None:
                    what = f"{sanitise(text)[:60]!r} {why}"
                    raise ConfigurationError([Problem(place, what, "a model has to read it and send it back as it is")])
            harmless[key] = value
    return harmless


def _texts(value: JsonValue) -> Iterator[str]:
    """Yield all texts of a JSON value, names of objects' members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _texts(each)


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
        raw = str(tool.get("name", ""))
        # The rule of that very name, else the first whose pattern fits.
        own = (each for each in server.rules if each.tools == raw)
        fitting = (each for each in server.rules if fnmatchcase(raw, each.tools))
        rule = next(own, next(fitting, _ANY))
        if not rule.enabled:
            left_out.append(_left_out(raw, f"mcp.servers.{server.name}.tools turns it off"))
            continue
        unusable = _mapping(tool.get("_meta")).get(UNUSABLE)
        if unusable:
            left_out.append(_left_out(raw, str(unusable)))
            continue
        try:
            definition = _definition(server, tool, rule)
        except ConfigurationError as error:
            left_out.append(_left_out(raw, "; ".join(str(problem) for problem in error.problems)))
            continue
        except RecursionError:
            left_out.append(_left_out(raw, "inputSchema: is nested too deeply"))
            continue
        except Exception as error:  # noqa: BLE001 (a server may write anything, and the others of its tools stay)
            left_out.append(_left_out(raw, f"inputSchema: cannot be read: {type(error).__name__}: {error}"))
            continue
        taken = definitions.get(definition.wire_name)
        if taken is not None:
            left_out.append(_left_out(raw, f"it cannot be told from the server's tool {taken.metadata[RAW_NAME]!r}"))
        elif len(definitions) == _MAX_TOOLS:
            left_out.append(_left_out(raw, f"a server may have {_MAX_TOOLS} tools"))
        elif together + (size := len(orjson.dumps(definition.input_schema))) > _MAX_TOTAL_BYTES:
            what = f"the schemas of a server's tools may have {_MAX_TOTAL_BYTES} bytes together"
            left_out.append(_left_out(raw, what))
        else:
            together += size
            definitions[definition.wire_name] = definition
    return ServerTools(tuple(definitions.values()), tuple(left_out))


def _left_out(tool: str, why: str) -> LeftOut:
    """Return it with as much of what the server wrote as people can read."""
    return LeftOut(_beginning(tool, _NAME_CHARACTERS), _beginning(why, _VALUE_CHARACTERS))


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _definition(server: McpServerOptions, tool: JsonObject, rule: ToolRule) -> ToolDefinition:
    raw = str(tool["name"])
    check_name(raw, "name")
    name = canonical_mcp_name(server.name, raw)
    problems = tool_name_problems(name)
    if problems:
        raise ConfigurationError(problems)
    said = _mapping(tool.get("annotations"))
    # Without a word, and without trust in what the server says, a call acts, and acts again.
    trusted = server.annotations is Annotations.TRUST
    reads, idempotent = said.get("readOnlyHint") is True, said.get("idempotentHint") is True
    hinted = Permission.READONLY if trusted and reads else Permission.WRITE
    effect = Effect.IDEMPOTENT if trusted and (reads or idempotent) else Effect.ONCE
    tags = {"mcp", *server.tags, *rule.tags}
    if said.get("destructiveHint") is True and not reads:
        tags.add("dangerous")
    if said.get("openWorldHint") is True or isinstance(server.endpoint, Address):
        tags.add("network")
    written = _mapping(tool.get("inputSchema"))
    if _size(written, _mapping(written.get("$defs")), {}) > _MAX_SCHEMA_PARTS:
        what = f"has more than {_MAX_SCHEMA_PARTS} parts when its references are followed"
        raise ConfigurationError([Problem("inputSchema", what, "tools need smaller schemas")])
    schema = harmless_schema(plain_schema(written, "inputSchema"), "inputSchema")
    size = len(orjson.dumps(schema))
    if size > _MAX_SCHEMA_BYTES:
        raise ConfigurationError([Problem("inputSchema", f"has {size} bytes", f"a tool may have {_MAX_SCHEMA_BYTES}")])
    permission = Permission(rule.permission) if rule.permission else hinted
    return ToolDefinition(
        name=name,
        description=prose(str(tool.get("description") or tool.get("title") or raw)),
        input_schema=schema,
        permission=permission,
        effect=Effect(rule.effect) if rule.effect else effect,
        tool_class=ToolClass.ALONE,
        tags=frozenset({*tags, permission.value}),
        timeout=rule.timeout or server.timeout,
        metadata={SERVER: server.name, RAW_NAME: raw},
        tenants=server.tenants,
    )


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
