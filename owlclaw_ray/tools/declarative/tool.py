"""One declarative tool: arguments go to a program's stdin, its stdout is the result."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import orjson
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition, ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.tools.adapter import CallTarget, target_of
from owlclaw_ray.tools.arguments import Arguments, as_object, decode_arguments
from owlclaw_ray.tools.declarative.commands import WordRole, roles
from owlclaw_ray.tools.declarative.options import OUTPUT_BYTES
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.process import Program, ProgramEnd, ProgramLimits, run_program
from owlclaw_ray.tools.programs import GRACE_SECONDS, check_end, environment_of, less_grace

_NonEmpty = Annotated[str, Field(min_length=1)]
_Bytes = Annotated[int, Field(ge=1, le=10 * 1024 * 1024)]


class ToolFile(BaseModel):
    """What a file may say."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: _NonEmpty
    """Canonical, with a dot."""
    description: _NonEmpty
    input_schema: JsonObject
    permission: Literal["readonly", "write"]
    tags: list[_NonEmpty] = []
    tenants: list[str] | None = None
    """Whose agents have it; none: those of all tenants."""
    command_type: Literal["exec"] = "exec"
    command: _NonEmpty
    """The program; with a slash in it, from the file's folder on. No shell reads it."""
    args: list[str] = []
    """May hold `{{field}}`."""
    working_dir: _NonEmpty | None = None
    env_allowlist: list[str] = []
    timeout_ms: Annotated[int, Field(ge=1)] | None = None
    stdout_limit_bytes: _Bytes = OUTPUT_BYTES
    stderr_limit_bytes: _Bytes = OUTPUT_BYTES


class WrittenError(BaseModel):
    """An error, as a program writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] = "execution_failed"
    message: str
    retryable: bool = False
    details: object = None


class WrittenResult(BaseModel):
    """A result, as a program writes it to its stdout."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tool_call_id: str | None = None
    """Not needed: the result belongs to the call that the program was started for."""
    content: object = None
    is_error: bool = False
    error: WrittenError | None = None
    metadata: JsonObject = {}


_FIELD = re.compile(r"\{\{([^{}]*)\}\}")
_SCALARS = frozenset({"string", "integer", "number", "boolean"})


def fields_of(text: str) -> tuple[str, ...]:
    """Return the fields that a text names, in order."""
    return tuple(found[1] for found in _FIELD.finditer(text))


def field_problem(name: str, schema: JsonObject) -> str:
    """Return why a field cannot be used in a command, or nothing."""
    properties = schema.get("properties", {})
    if name not in properties:
        return f"{{{{{name}}}}} is no property of input_schema; there are: {', '.join(properties) or 'none'}"
    node = properties[name]
    if node.get("type") not in _SCALARS:
        return f"{{{{{name}}}}} is of type {node.get('type')}: only {', '.join(sorted(_SCALARS))} can be put into a command"
    if name not in schema.get("required", ()) and "default" not in node:
        return f"{{{{{name}}}}} may be absent: make it required, or give it a default"
    return ""


def code_with_field(command: str, args: Sequence[str]) -> int | None:
    """Return the place of the first argument that a program runs, or that says what it runs, and that holds a field; None if
    there is none.
    """
    told = zip(args, roles([command, *args])[1:], strict=True)
    return next((place for place, (arg, role) in enumerate(told) if role is WordRole.CODE and fields_of(arg)), None)


def program_of_stdin(command: str, args: Sequence[str]) -> int | None:
    """Return the place, from the command on, of the first program that would run what comes on its stdin; None if there is none."""
    return next((place for place, role in enumerate(roles([command, *args])) if role is WordRole.STDIN), None)


def filled_arguments(tool: str, command: str, args: Sequence[str], arguments: JsonObject) -> list[str]:
    """Return the argument list. Raises ToolArgumentsError for a value that the program would take for an option."""
    filled: list[str] = []
    for arg, role in zip(args, roles([command, *args])[1:], strict=True):
        first = _FIELD.match(arg)
        text = _FIELD.sub(lambda found: _text(tool, found[1], arguments[found[1]]), arg)
        if first is not None and role is not WordRole.FREE and text.startswith("-"):
            what = f"{first[1]}: begins with '-', and the program would take it for an option"
            raise ToolArgumentsError(tool, [what])
        filled.append(text)
    return filled


def _text(tool: str, name: str, value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        raise ToolArgumentsError(tool, [f"{name}: holds a NUL character, which no program can be given"])
    return text


_SHOWN_CHARACTERS = 500
_logger = logging.getLogger(__name__)


class DeclarativeTool:
    """Implements ToolAdapter and TargetsCalls for the one tool of a file."""

    def __init__(
        self,
        *,
        source: str,
        written: ToolFile,
        schema: JsonObject,
        folder: Path,
        seconds: float,
        environment: Mapping[str, str],
    ) -> None:
        self.source = source
        self._written, self._folder, self._seconds, self._environment = written, folder, seconds, environment
        self._arguments = Arguments(schema, as_object)

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """See ToolSource.definitions."""
        written = self._written
        writes = written.permission == "write"
        return (
            ToolDefinition(
                name=written.name,
                description=written.description,
                input_schema=self._arguments.schema,
                permission=Permission(written.permission),
                effect=Effect.ONCE if writes else Effect.PURE,
                tool_class=ToolClass.ALONE,
                tags=frozenset({*written.tags, "declarative", written.permission}),
                timeout=self._seconds + GRACE_SECONDS,
                metadata={"file": self.source, "command": written.command, "working_dir": str(self._folder)},
                tenants=frozenset(map(TenantId, written.tenants or ())),
            ),
        )

    def run(self, invocation: ToolInvocation) -> ToolResult:
        """See ToolAdapter.run."""
        (given,) = self._arguments.read(invocation.tool, invocation.arguments).positional
        assert isinstance(given, dict)
        properties = self._arguments.schema.get("properties", {})
        arguments = {name: node["default"] for name, node in properties.items() if "default" in node} | given
        environment = environment_of(invocation, self._environment)
        written = self._written
        argv = [written.command, *filled_arguments(written.name, written.command, written.args, arguments)]
        program = Program(argv, self._folder, environment, orjson.dumps(arguments))
        limits = ProgramLimits(
            min(self._seconds, less_grace(invocation.timeout)),
            self._written.stdout_limit_bytes,
            self._written.stderr_limit_bytes,
        )
        try:
            end = run_program(program, limits)
        except OSError as error:
            what = f"the program of {invocation.tool} cannot be run: {error.strerror}"
            raise ToolFailureError("execution_failed", what) from error
        said = end.stderr.text().strip()
        if said:
            _logger.info("%s (run %s) wrote to stderr: %s", invocation.tool, invocation.run_id, said[:2_000])
        check_end(invocation.tool, end, limits)
        return self._result(end, invocation)

    def target(self, invocation: ToolInvocation) -> CallTarget:
        """See TargetsCalls.target: all arguments, in the folder of its program."""
        arguments = decode_arguments(invocation.tool, invocation.arguments)
        self._arguments.read_object(invocation.tool, arguments)
        return replace(target_of(None, arguments), cwd=str(self._folder))

    def _result(self, end: ProgramEnd, invocation: ToolInvocation) -> ToolResult:
        output = end.stdout.whole()
        if output is None:
            what = f"{invocation.tool} wrote {end.stdout.total} bytes; stdout_limit_bytes is {self._written.stdout_limit_bytes}"
            raise ToolFailureError("output_too_large", what, details={"stdout": end.stdout.text()})
        try:
            result = WrittenResult.model_validate(orjson.loads(output))
        except (orjson.JSONDecodeError, ValidationError) as error:
            what = f"{invocation.tool} ran, but its stdout is no result: {_first_problem(error)}"
            shown = end.stdout.text()[:_SHOWN_CHARACTERS]
            raise ToolFailureError("execution_failed", what, details={"stdout": shown}) from error
        if result.error is not None:
            said = result.error
            raise ToolFailureError(said.type, said.message, retryable=said.retryable, details=said.details)
        if result.is_error:
            raise ToolFailureError("execution_failed", f"{invocation.tool} failed", details=result.content)
        return ToolResult(invocation.call_id, result.content, metadata=result.metadata)


def _first_problem(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"it is not JSON ({error})"
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
