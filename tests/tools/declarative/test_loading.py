"""The files of declarative tools, and what is wrong with them."""

import json

import pytest

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.tool import Effect, Permission
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.tools.composition import declared_tools
from owlclaw_ray.tools.declarative.loading import load_tools, load_usable_tools
from owlclaw_ray.tools.declarative.options import DeclarativeOptions
from owlclaw_ray.tools.host import HostTools

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "depth": {"type": "integer", "default": 1},
        "maybe": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["path", "list"],
}
GOOD = {
    "name": "disk.usage",
    "description": "How much is used.",
    "input_schema": SCHEMA,
    "permission": "readonly",
    "tags": ["filesystem"],
    "command_type": "exec",
    "command": "du",
    "args": ["-d", "{{depth}}", "--", "{{path}}"],
    "env_allowlist": ["COLUMNS"],
    "timeout_ms": 5_000,
    "stdout_limit_bytes": 1_000,
    "stderr_limit_bytes": 1_000,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tools").mkdir()
    return tmp_path / "tools"


def options(folder):
    return DeclarativeOptions(folder=str(folder), project=str(folder.parent))


def write(folder, name="usage.json", **changes):
    data = {key: value for key, value in (GOOD | changes).items() if value is not None}
    (folder / name).write_text(json.dumps(data))


def problems_of(folder):
    with pytest.raises(ConfigurationError) as caught:
        load_tools(options(folder), {})
    return [str(problem) for problem in caught.value.problems]


def test_a_file_is_a_tool(folder):
    """tool-registry: a user's JSON files declare tools with these fields."""
    write(folder)
    (definition,) = load_tools(options(folder), {})[0].definitions()
    assert (definition.name, definition.description) == ("disk.usage", "How much is used.")
    assert (definition.permission, definition.effect) == (Permission.READONLY, Effect.PURE)
    assert definition.tags == {"filesystem", "declarative", "readonly"}
    assert definition.timeout == 10.0
    assert definition.input_schema["required"] == ["path", "list"]


def test_a_tool_that_writes_is_never_silently_repeated(folder):
    write(folder, permission="write")
    assert load_tools(options(folder), {})[0].definitions()[0].effect is Effect.ONCE


def test_other_files_are_no_tools(folder):
    (folder / "readme.md").write_text("x")
    (folder / "run.sh").write_text("x")
    assert load_tools(options(folder), {}) == ()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"comand": "x"}, "tools/usage.json: comand: there is no such key (did you mean command?)"),
        ({"command": None}, "tools/usage.json: command: is missing"),
        ({"permission": "admin"}, "tools/usage.json: permission: is 'admin'"),
        ({"command_type": "sh"}, "tools/usage.json: command_type: is 'sh'"),
        ({"timeout_ms": "5"}, "tools/usage.json: timeout_ms: is '5'"),
        ({"timeout_ms": 600_001}, "timeout_ms: is 600001 (tools.max_command_timeout_seconds allows 600000)"),
        ({"stdout_limit_bytes": 0}, "stdout_limit_bytes: is 0"),
        ({"input_schema": {"type": "object", "oneOf": []}}, "tools/usage.json: input_schema: oneOf"),
        ({"input_schema": {"type": "string"}}, "is not 'object'"),
        ({"args": ["{{pth}}"]}, "args[0]: {{pth}} is no property of input_schema; there are: path, depth"),
        ({"args": ["{{list}}"]}, "args[0]: {{list}} is of type array"),
        ({"args": ["{{maybe}}"]}, "args[0]: {{maybe}} may be absent"),
        ({"args": ["{{ path }}"]}, "args[0]: {{ path }} is no property"),
        ({"command": "{{path}}"}, "command: holds a field"),
        ({"command": "./none.sh"}, "tools/none.sh is no program (name a file that may be executed)"),
        ({"working_dir": "/etc"}, "working_dir: leads to /etc, outside of the allowed folders"),
        ({"working_dir": "none"}, "none is no folder"),
        ({"env_allowlist": ["OPENAI_API_KEY"]}, "env_allowlist[0]: 'OPENAI_API_KEY' is a secret"),
        ({"env_allowlist": ["A=B"]}, "env_allowlist[0]: 'A=B' is no name of a variable"),
        (
            {"command_type": "shell"},
            "command_type: is 'shell': no shell reads commands (write a script beside the file",
        ),
    ],
)
def test_a_mistake_is_told_with_file_and_field(folder, changes, told):
    """tool-registry: an unknown field is an error."""
    write(folder, **changes)
    assert told in " ".join(problems_of(folder))


X = "{{path}}"


@pytest.mark.parametrize(
    ("command", "args", "place"),
    [
        ("sh", ["-c", X], 1),
        ("/bin/bash", ["-euc", f"ls {X}"], 1),
        ("sh", ["-c", f"trap {X} EXIT"], 1),
        ("sh", ["-o", X, "-c", "ls"], 1),
        ("sh", [f"-c{X}"], 0),
        ("sh", [X], 0),
        ("busybox", ["sh", "-c", X], 2),
        ("env", ["A=b", "bash", "-c", X], 3),
        ("timeout", ["5", "/usr/bin/zsh", "-c", X], 3),
        ("python3.11", ["-c", f"print({X})"], 1),
        ("perl", ["-e", X], 1),
        ("node", [f"--eval={X}"], 0),
        ("awk", [f"/{X}/"], 0),
        ("sed", ["-n", f"s/a/{X}/p"], 1),
        ("ssh", ["host", "ls", X], 2),
        ("xargs", ["ls", X], 1),
        ("find", [".", "-exec", X, ";"], 2),
    ],
)
def test_no_value_stands_where_a_program_would_run_it(folder, command, args, place):
    write(folder, command=command, args=args)
    told = [each for each in problems_of(folder) if "runs what it reads" in each]
    assert [each.partition(" holds")[0] for each in told] == [f"tools/usage.json: args[{place}]:"]


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("sh", ["-c", 'wc -w < "$1"', "count", X]),
        ("bash", ["-eu", "-c", "ls", "--", X]),
        ("env", ["-i", "python3", "-c", "import sys; print(sys.argv[1])", X]),
        ("awk", ["{print $1}", X]),
        ("git", ["log", "--", X]),
        ("grep", ["-r", "--", X]),
    ],
)
def test_values_are_arguments_of_code_and_of_programs_that_run_none(folder, command, args):
    write(folder, command=command, args=args)
    assert load_tools(options(folder), {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "tools/usage.json:1: is not JSON"),
        ("[]", "tools/usage.json: holds no JSON object"),
        ('{"name": "a.b", "name": "c.d"}', "tools/usage.json: is not JSON: the key 'name' appears twice"),
        ("[" * 100_000, "tools/usage.json: is not JSON"),
        (" " * 300_000, "tools/usage.json: is 300000 bytes long"),
    ],
)
def test_what_is_no_json_object_is_told(folder, text, told):
    (folder / "usage.json").write_text(text)
    assert told in problems_of(folder)[0]


def test_all_files_are_checked_before_anything_is_said(folder):
    write(folder, "a.json", comand="x")
    write(folder, "b.json", permission="x")
    write(folder, "c.json")
    assert [problem.partition(":")[0] for problem in problems_of(folder)] == ["tools/a.json", "tools/b.json"]


def test_a_file_that_breaks_while_the_runtime_is_up_stops_no_other_tool(folder, caplog):
    write(folder, "a.json", comand="x")
    write(folder, "b.json")
    (tool,) = load_usable_tools(options(folder), {})
    assert tool.source == "tools/b.json"
    assert "out of use until its file is mended: tools/a.json: comand: there is no such key" in caplog.text


def test_two_files_with_one_name_are_both_named(folder):
    write(folder, "a.json")
    write(folder, "b.json")
    with pytest.raises(ConfigurationError, match=r"by tools/a\.json and by tools/b\.json"):
        declared_tools(OwlClaw("shop").sources(), HostTools(declarative=options(folder)))


def test_a_name_without_a_dot_is_refused(folder):
    (folder / "a.json").write_text(json.dumps(GOOD | {"name": "usage"}))
    with pytest.raises(ConfigurationError, match=r"tool 'usage': of tools/a\.json has a name without a dot"):
        declared_tools(OwlClaw("shop").sources(), HostTools(declarative=options(folder)))
