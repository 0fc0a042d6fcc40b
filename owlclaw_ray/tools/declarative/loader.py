"""The tools folder: every file checked as a whole, every problem with its file and field."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from owlclaw_ray.configuration.problems import model_problems
from owlclaw_ray.configuration.yaml_document import dotted
from owlclaw_ray.domain.environment import name_problem
from owlclaw_ray.domain.json import JsonObject, JsonValue
from owlclaw_ray.domain.principal import tenants_problem
from owlclaw_ray.errors import ConfigurationError, Problem
from owlclaw_ray.tools.declarative.options import DeclarativeOptions
from owlclaw_ray.tools.declarative.tool import (
    DeclarativeTool,
    ToolFile,
    code_with_field,
    field_problem,
    fields_of,
    program_of_stdin,
)
from owlclaw_ray.tools.programs import child_environment
from owlclaw_ray.tools.schema import plain_schema
from owlclaw_ray.tools.tags import tag_problems

_MAX_BYTES = 256 * 1024
_NO_SHELL = 'write a script beside the file, and name it: "command": "./script.sh", "args": ["{{field}}"]'
_AS_ARGUMENT = 'have the code read it as an argument: "args": ["-c", "wc -w < \\"$1\\"", "count", "{{file}}"]'
_NAME_A_SCRIPT = 'name a script, which may read them: "command": "python3", "args": ["work.py"]'
_logger = logging.getLogger(__name__)


def load_tools(options: DeclarativeOptions, environ: Mapping[str, str]) -> tuple[DeclarativeTool, ...]:
    """Return the tools of the folder, by file name. Raises ConfigurationError with every problem of every file."""
    problems: list[Problem] = []
    tools: list[DeclarativeTool] = []
    for path in sorted(Path(options.folder).glob("*.json")):
        try:
            tools.append(_load(path, options, environ))
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return tuple(tools)


def load_usable_tools(options: DeclarativeOptions, environ: Mapping[str, str]) -> tuple[DeclarativeTool, ...]:
    """Return the tools whose files can be used, in a process that starts while the runtime is up; the others are logged."""
    tools: list[DeclarativeTool] = []
    for path in sorted(Path(options.folder).glob("*.json")):
        try:
            tools.append(_load(path, options, environ))
        except ConfigurationError as error:
            _logger.error("a declarative tool is left out until its file is corrected: %s", error)  # noqa: TRY400 (no trace)
    return tuple(tools)


def _load(path: Path, options: DeclarativeOptions, environ: Mapping[str, str]) -> DeclarativeTool:
    shown = f"{path.parent.name}/{path.name}"
    data = _read(path, shown)
    if data.get("command_type") == "shell":
        raise ConfigurationError([Problem(f"{shown}: command_type", "is 'shell': no shell reads commands", _NO_SHELL)])
    try:
        written = ToolFile.model_validate(data)
    except ValidationError as error:
        where = lambda parts: f"{shown}: {dotted(tuple(parts))}"  # noqa: E731 (one use, beside it)
        raise ConfigurationError(model_problems(error, ToolFile, where)) from error
    schema = plain_schema(written.input_schema, f"{shown}: input_schema")
    folder = Path(os.path.realpath(Path(options.project) / Path(written.working_dir or ".").expanduser()))
    problems = [
        Problem(f"{shown}: {field}", what, fix) for field, what, fix in _problems(written, schema, folder, options)
    ]
    program = path.parent / written.command if "/" in written.command else None
    if program is not None and not os.access(program, os.X_OK):
        problems.append(Problem(f"{shown}: command", f"{program} is no program", "name a file that may be executed"))
    if problems:
        raise ConfigurationError(problems)
    command = str(program) if program is not None else written.command
    return DeclarativeTool(
        source=shown,
        written=written.model_copy(update={"command": command}),
        schema=schema,
        folder=folder,
        seconds=options.seconds if written.timeout_ms is None else written.timeout_ms / 1_000,
        environment=child_environment(environ, written.env_allowlist),
    )


def _read(path: Path, shown: str) -> JsonObject:
    try:
        content = path.read_bytes()
        if len(content) > _MAX_BYTES:
            raise ConfigurationError([Problem(shown, f"is {len(content)} bytes long", f"it may have {_MAX_BYTES}")])
        data = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_no_key_twice)
    except OSError as error:
        raise ConfigurationError([Problem(shown, f"cannot be read: {error.strerror}")]) from error
    except json.JSONDecodeError as error:
        raise ConfigurationError([Problem(f"{shown}:{error.lineno}", f"is not JSON: {error.msg}")]) from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError([Problem(shown, f"is not JSON: {error}")]) from error
    if not isinstance(data, dict):
        raise ConfigurationError([Problem(shown, "holds no JSON object", "describe one tool in each file")])
    return data


def _no_key_twice(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ValueError(f"the key {twice[0]!r} appears twice")
    return dict(pairs)


def _problems(
    written: ToolFile, schema: JsonObject, folder: Path, options: DeclarativeOptions
) -> Iterator[tuple[str, str, str]]:
    """Yield field, problem and correction."""
    texts = {f"args[{index}]": arg for index, arg in enumerate(written.args)}
    if fields_of(written.command):
        yield "command", "holds a field", "the program is fixed: use fields in args"
    code = code_with_field(written.command, written.args)
    if code is not None:
        yield f"args[{code}]", "holds a field where the program before it runs what it reads", _AS_ARGUMENT
    stdin = program_of_stdin(written.command, written.args)
    if stdin is not None:
        field = f"args[{stdin - 1}]" if stdin else "command"
        yield field, "would run its stdin as code, and that is where the arguments of a call are", _NAME_A_SCRIPT
    for field, text in texts.items():
        yield from ((field, what, "") for name in fields_of(text) if (what := field_problem(name, schema)))
    yield from ((f"tags[{index}]", what, fix) for index, what, fix in tag_problems(written.tags))
    if written.tenants is not None and (what := tenants_problem(written.tenants)):
        yield "tenants", what, ""
    for index, name in enumerate(written.env_allowlist):
        if what := name_problem(name):
            yield f"env_allowlist[{index}]", f"{name!r} {what}", ""
    most = round(options.most_seconds * 1_000)
    if written.timeout_ms is not None and written.timeout_ms > most:
        yield "timeout_ms", f"is {written.timeout_ms}", f"tools.max_command_timeout_seconds allows {most}"
    if not any(folder.is_relative_to(os.path.realpath(each)) for each in (options.project, *options.roots)):
        fix = "name a folder below the project, or one that tools.code.write_roots allows"
        yield "working_dir", f"leads to {folder}, outside of the allowed folders", fix
    elif not folder.is_dir():
        yield "working_dir", f"{folder} is no folder", ""
