"""CodeTools: the six tools behind one adapter."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import Effect, Permission, ToolClass, ToolDefinition
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import ApprovalNeededError
from owlclaw_ray.tools.adapter import CallTarget
from owlclaw_ray.tools.arguments import Arguments
from owlclaw_ray.tools.code import arguments as models
from owlclaw_ray.tools.code.edits import edit_file, write_file
from owlclaw_ray.tools.code.list_dir import list_dir
from owlclaw_ray.tools.code.matchers import Matcher, PythonMatcher, Ripgrep
from owlclaw_ray.tools.code.options import CodeOptions
from owlclaw_ray.tools.code.path_policy import Access, PathPolicy
from owlclaw_ray.tools.code.read_file import read_file
from owlclaw_ray.tools.code.run_command import Commands
from owlclaw_ray.tools.code.search import search
from owlclaw_ray.tools.large_output import INLINE_LIMIT
from owlclaw_ray.tools.process import ProgramLimits
from owlclaw_ray.tools.programs import GRACE_SECONDS, child_environment, environment_of, less_grace
from owlclaw_ray.tools.signature import arguments_of_model

_READ_RESULT_BYTES = 64 * 1024


class _CodeTool(Struct, frozen=True):
    definition: ToolDefinition
    arguments: Arguments
    perform: Callable[[Any, PathPolicy, ToolInvocation], JsonObject]


class CodeTools:
    """Works on the files of one project. Implements ToolAdapter and TargetsCalls."""

    source: ClassVar[str] = "the code tools"
    own_errors: ClassVar[frozenset[str]] = frozenset({"denied"})

    def __init__(self, options: CodeOptions, environ: Mapping[str, str]) -> None:
        self._options = options
        self._environment = child_environment(environ, options.env)
        self.policy = PathPolicy.of(options, self._environment)
        self._ripgrep = shutil.which("rg", path=self._environment["PATH"])
        own = (replace(each, definition=replace(each.definition, tenants=options.tenants)) for each in self._made())
        self._tools = {each.definition.name: each for each in own}

    def definitions(self) -> tuple[ToolDefinition, ...]:
        """See ToolSource.definitions."""
        return tuple(each.definition for each in self._tools.values())

    def run(self, invocation: ToolInvocation) -> JsonObject:
        """See ToolAdapter.run."""
        tool = self._tools[invocation.tool]
        (arguments,) = tool.arguments.read(invocation.tool, invocation.arguments).positional
        if invocation.stage.approved:
            # By now a link may lead to something else than what was approved.
            scope = self.target(invocation).scope
            if invocation.approved_target not in {"", scope}:
                raise ApprovalNeededError(scope, f"what was approved is {invocation.approved_target}")
            return tool.perform(arguments, self.policy.with_consent(), invocation)
        try:
            return tool.perform(arguments, self.policy, invocation)
        except ApprovalNeededError as error:
            raise ApprovalNeededError(self.target(invocation).scope, error.reason) from error

    def target(self, invocation: ToolInvocation) -> CallTarget:
        """See TargetsCalls.target: the file or folder that the path leads to, or a program and the folder that it runs in."""
        tool = self._tools[invocation.tool]
        arguments: Any
        (arguments,) = tool.arguments.read(invocation.tool, invocation.arguments).positional
        policy = self.policy.with_consent()
        if isinstance(arguments, models.RunCommand):
            cwd = str(policy.permitted(arguments.cwd, Access.WRITE))
            return CallTarget(f"{arguments.argv[0]} in {cwd}", cwd)
        writes = tool.definition.permission is Permission.WRITE
        return CallTarget(str(policy.permitted(arguments.path, Access.WRITE if writes else Access.READ)))

    def _made(self) -> tuple[_CodeTool, ...]:
        most = self._options.file_bytes
        return (
            _tool(
                "read_file",
                "Read a text file by lines. Goes on at next_start_line when the result is truncated.",
                models.ReadFile,
                lambda arguments, policy, _: read_file(arguments, policy),
                metadata={INLINE_LIMIT: _READ_RESULT_BYTES},
            ),
            _tool(
                "list_dir",
                "List a folder.",
                models.ListDir,
                lambda arguments, policy, _: list_dir(arguments, policy),
            ),
            _tool(
                "search",
                "Find lines in text files. Returns path, line number and text of each.",
                models.Search,
                lambda arguments, policy, invocation: search(arguments, policy, self._matcher(invocation), most),
            ),
            _tool(
                "write_file",
                "Write a whole new file. To change a part of one that exists, use code.edit_file.",
                models.WriteFile,
                lambda arguments, policy, _: write_file(arguments, policy, most),
                writes=True,
            ),
            _tool(
                "edit_file",
                "Change a text file: give either edits (exact old text and its replacement) or unified_diff. "
                "All of it is applied, or nothing.",
                models.EditFile,
                lambda arguments, policy, _: edit_file(arguments, policy, most),
                writes=True,
            ),
            _tool(
                "run_command",
                "Run a program without a shell, and wait for its end. Returns exit code, stdout and stderr.",
                models.RunCommand,
                lambda arguments, policy, invocation: self._commands(invocation).run(arguments, policy),
                writes=True,
                tags=frozenset({"dangerous"}),
                timeout=self._options.command_seconds + GRACE_SECONDS,
            ),
        )

    def _matcher(self, invocation: ToolInvocation) -> Matcher:
        if self._ripgrep is None:
            return PythonMatcher()
        return Ripgrep(self._ripgrep, self._environment, less_grace(invocation.timeout))

    def _commands(self, invocation: ToolInvocation) -> Commands:
        most = self._options.output_bytes
        seconds = min(self._options.command_seconds, less_grace(invocation.timeout))
        return Commands(environment_of(invocation, self._environment), ProgramLimits(seconds, most, most))


def _tool(
    name: str,
    description: str,
    model: type[BaseModel],
    perform: Callable[[Any, PathPolicy, ToolInvocation], JsonObject],
    *,
    writes: bool = False,
    tags: frozenset[str] = frozenset(),
    timeout: float | None = None,
    metadata: JsonObject | None = None,
) -> _CodeTool:
    canonical = f"code.{name}"
    arguments = arguments_of_model(model, canonical)
    definition = ToolDefinition(
        name=canonical,
        description=description,
        input_schema=arguments.schema,
        permission=Permission.WRITE if writes else Permission.READONLY,
        effect=Effect.ONCE if writes else Effect.PURE,
        tool_class=ToolClass.ALONE,
        tags=frozenset({"code", "filesystem", "write" if writes else "readonly"}) | tags,
        timeout=timeout,
        metadata=metadata or {},
    )
    return _CodeTool(definition, arguments, perform)
