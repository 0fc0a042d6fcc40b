"""One declarative tool: arguments go to a program's stdin, its stdout is the result."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
from msgspec.structs import replace
from pydantic import ValidationError

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition, ToolResult
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.tools.arguments import Arguments, as_object, decode_arguments
from owlclaw_ray.tools.declarative.file import ToolFile, WrittenResult
from owlclaw_ray.tools.declarative.template import filled_arguments, with_defaults
from owlclaw_ray.tools.failure import ToolFailureError
from owlclaw_ray.tools.process import Program, ProgramEnd, ProgramLimits, run_program
from owlclaw_ray.tools.programs import GRACE_SECONDS, check_end, environment_of, less_grace
from owlclaw_ray.tools.target import CallTarget, target_of

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
            ),
        )

    def run(self, invocation: ToolInvocation) -> ToolResult:
        """See ToolAdapter.run."""
        schema = self._arguments.schema
        (given,) = self._arguments.read(invocation.tool, invocation.arguments).positional
        assert isinstance(given, dict)
        arguments = with_defaults(given, schema)
        environment = environment_of(invocation, self._environment)
        program = Program(self._argv(arguments), self._folder, environment, orjson.dumps(arguments))
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
        self._log(end, invocation)
        check_end(invocation.tool, end, limits)
        return self._result(end, invocation)

    def target(self, invocation: ToolInvocation) -> CallTarget:
        """See TargetsCalls.target: all arguments, in the folder of its program."""
        arguments = decode_arguments(invocation.tool, invocation.arguments)
        self._arguments.read_object(invocation.tool, arguments)
        return replace(target_of(None, arguments), cwd=str(self._folder))

    def _argv(self, arguments: JsonObject) -> Sequence[str]:
        written = self._written
        return [written.command, *filled_arguments(written.name, written.command, written.args, arguments)]

    def _log(self, end: ProgramEnd, invocation: ToolInvocation) -> None:
        said = end.stderr.text().strip()
        if said:
            _logger.info("%s (run %s) wrote to stderr: %s", invocation.tool, invocation.run_id, said[:2_000])

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
