"""Declarative tools at work."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from owlclaw_ray.errors import ToolArgumentsError
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.declarative.loader import load_tools
from owlclaw_ray.tools.declarative.options import DeclarativeOptions
from owlclaw_ray.tools.declarative.tool import filled_arguments
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.sources import ToolSources
from tests.tools.code.conftest import invocation

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "default": 1},
        "flag": {"type": "boolean", "default": True},
        "more": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["text"],
    "additionalProperties": False,
}


class Folder:
    """A tools folder with one tool in it, which is a script."""

    def __init__(self, tmp_path):
        self.path = tmp_path / "tools"
        self.path.mkdir()
        self.environ = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "sk-1", "COLOUR": "red", "SIZE": "9"}

    def run(self, script="", timeout=20.0, arguments=None, traceparent="", **fields):
        (self.path / "script.sh").write_text(f"#!/bin/sh\n{script}\n")
        (self.path / "script.sh").chmod(0o755)
        written = {
            "name": "my.tool",
            "description": "A tool.",
            "input_schema": SCHEMA,
            "permission": "write",
            "command": "./script.sh",
            **fields,
        }
        (self.path / "tool.json").write_text(json.dumps(written))
        tools = load_tools(DeclarativeOptions(str(self.path), str(self.path.parent)), self.environ)
        executor = LocalExecutor(ToolSources(tools), ManualClock())
        call = invocation("my.tool", {"text": "hi"} if arguments is None else arguments, timeout)
        return executor.run_one(replace(call, traceparent=traceparent)).result

    def content(self, *args, **options):
        result = self.run(*args, **options)
        assert result.error is None, result.error
        return result.content

    def error(self, *args, **options):
        error = self.run(*args, **options).error
        assert error is not None
        return error


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_arguments_come_by_stdin_and_the_result_goes_to_stdout(folder):
    """tool-registry: JSON on stdin, a tool result as JSON on stdout."""
    content = folder.content("""printf '{"content": %s, "metadata": {"a": 1}}' "$(cat)" """)
    assert content == {"text": "hi", "count": 1, "flag": True}
    assert folder.run("""echo '{"content": null, "metadata": {"a": 1}}'""").metadata == {"a": 1}


def test_arguments_are_checked_before_anything_is_run(folder):
    """tool-registry: the core checks arguments before a handler runs."""
    for arguments in ({}, {"text": 1}, {"text": "x", "other": 1}):
        error = folder.error("touch ran", arguments=arguments)
        assert error.type == "invalid_arguments"
    assert not (folder.path.parent / "ran").exists()


def test_what_a_program_says_is_wrong_is_the_error(folder):
    script = """echo '{"is_error": true, "error": {"type": "no_stock", "message": "sold out", "retryable": true, "details": [1]}}'"""
    error = folder.error(script)
    assert (error.type, error.message, error.retryable, error.details) == ("no_stock", "sold out", True, [1])
    assert folder.error("""echo '{"is_error": true, "content": "why"}'""").details == "why"


def test_an_exit_code_is_an_error_with_a_summary_of_stderr(folder):
    """tool-registry: an exit code other than 0 is a tool error; a summary of stderr is in it."""
    error = folder.error("echo broken >&2; exit 2")
    assert (error.type, error.message) == ("command_failed", "my.tool ended with exit code 2: broken")


def test_stderr_goes_to_the_log(folder, caplog):
    """tool-registry: stderr is for logs and errors."""
    with caplog.at_level(logging.INFO):
        assert folder.content("""echo careful >&2; echo '{"content": 1}'""") == 1
    assert "my.tool (run run_1) wrote to stderr: careful" in caplog.text


@pytest.mark.parametrize("stdout", ["", "hello", "[]", '{"contents": 1}', '{"content": 1} x', '{"is_error": "yes"}'])
def test_a_stdout_that_is_no_result_is_an_error(folder, stdout):
    """tool-registry: stdout must have the form of a tool result."""
    error = folder.error(f"printf '%s' '{stdout}'")
    assert error.type == "execution_failed"
    assert "its stdout is no result" in error.message
    assert error.details == {"stdout": stdout}


def test_output_has_a_limit(folder):
    """tool-registry: stdout_limit_bytes and stderr_limit_bytes bound what a program may write."""
    error = folder.error("head -c 5000 /dev/zero | tr '\\0' x", stdout_limit_bytes=100)
    assert error.type == "output_too_large"
    assert "wrote 5000 bytes" in error.message


def test_time_has_a_limit(folder):
    """tool-registry: timeout_ms of the definition is the limit, and the call cannot raise it."""
    error = folder.error("echo begun; sleep 1000", timeout_ms=300)
    assert (error.type, error.details["stdout"], error.details["partial"]) == ("timeout", "begun\n", True)


def test_a_program_gets_the_variables_that_its_file_allows(folder):
    """tool-registry: env_allowlist names what a tool gets; secrets are not passed by default."""
    names = folder.content(
        """printf '{"content": "%s"}' "$(env | cut -d= -f1 | tr '\\n' ' ')" """, env_allowlist=["COLOUR"]
    )
    assert set(names.split()) - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "COLOUR"}


def test_a_program_runs_in_the_project_or_in_its_working_dir(folder):
    """tool-registry: the working directory is the project's, or one that the definition declares within the allowed range."""
    script = """printf '{"content": "%s"}' "$PWD" """
    assert folder.content(script) == str(folder.path.parent)
    assert folder.content(script, working_dir="tools") == str(folder.path)


def test_every_argument_is_filled_on_its_own(folder):
    """tool-registry: in exec mode every argument is replaced on its own, and no shell string is put together."""
    script = """printf '{"content": ['; for a in "$@"; do printf '"%s",' "$a"; done; printf '%s]}' $#"""
    content = folder.content(script, args=["{{text}}", "n={{count}}", "{{flag}}"], arguments={"text": "a b; $(id) *"})
    assert content == ["a b; $(id) *", "n=1", "true", 3]


CODE = 'printf \'{"content": "%s|%s"}\' "$1" a"$1"b'


@pytest.mark.parametrize("value", ["$(id)", "`id`", "'; id #", "; id", "${1}", "*", "a b", "!!", "x[$(id)]"])
def test_a_value_is_an_argument_of_a_shells_code_and_no_part_of_it(folder, value):
    """tool-registry: no value is read as code."""
    content = folder.content(command="sh", args=["-c", CODE, "code", "{{text}}"], arguments={"text": value})
    assert content == f"{value}|a{value}b"


@pytest.mark.parametrize("value", ["-rf", "--output=/etc/passwd", "-"])
def test_a_value_is_not_taken_for_an_option(folder, value):
    error = folder.error("touch ran", args=["{{text}}"], arguments={"text": value})
    assert (error.type, "take it for an option" in error.message) == ("invalid_arguments", True)
    assert not (folder.path.parent / "ran").exists()
    echo = """echo '{"content": 1}'"""
    assert folder.content(echo, args=["--", "{{text}}"], arguments={"text": value}) == 1
    assert folder.content(echo, args=["--name={{text}}"], arguments={"text": value}) == 1


def test_a_value_with_a_nul_is_refused(folder):
    assert folder.error(args=["x{{text}}"], arguments={"text": "a\0b"}).type == "invalid_arguments"


def test_a_program_that_cannot_be_run_is_an_error_of_the_tool(folder):
    error = folder.error(command="no-such-program")
    assert (error.type, "cannot be run: No such file" in error.message) == ("execution_failed", True)


ARGS = st.lists(
    st.sampled_from(["{{text}}", "x{{text}}", "{{text}}{{count}}", "--", "-n", "a b", "{{text}} {{text}}"]), max_size=5
)
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    st.sampled_from(
        ["$(id)", "`id`", "'; id #", '"; id #', "\\", "\n id", "{{count}}", "${1}", "*", "a b", "$1", "!!"]
    ),
)


@pytest.mark.property
@given(ARGS, VALUES)
def test_values_become_no_further_arguments_and_are_not_read_as_templates(args, value):
    """tool-registry: values replace fields only, each argument on its own."""
    try:
        filled = filled_arguments("my.tool", "work", args, {"text": value, "count": 7})
    except ToolArgumentsError:
        assert value.startswith("-")
        return
    expected = [value.join(part.replace("{{count}}", "7") for part in arg.split("{{text}}")) for arg in args]
    assert filled == expected


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("grep", ["--", "{{n}}"]),
        ("sh", ["-c", "echo", "sh", "--", "{{n}}"]),
        ("perl", ["-e", "print", "--", "{{n}}"]),
        ("env", ["--", "A=b", "grep", "--", "{{n}}"]),
    ],
)
def test_what_stands_after_the_end_of_its_commands_options_may_begin_with_a_dash(command, args):
    assert filled_arguments("my.tool", command, args, {"n": -5}) == [*args[:-1], "-5"]


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("env", ["--", "grep", "{{n}}"]),
        ("sudo", ["-u", "owl", "--", "perl", "-e", "print", "{{n}}"]),
        ("python3", ["--", "work.py", "{{n}}"]),
        ("sed", ["-e", "--", "{{n}}"]),
        ("find", ["--", "{{n}}"]),
        ("sqlite3", ["--", "{{n}}"]),
    ],
)
def test_the_end_of_other_options_lets_no_value_begin_with_a_dash(command, args):
    with pytest.raises(ToolArgumentsError, match="option"):
        filled_arguments("my.tool", command, args, {"n": -5})


@pytest.mark.parametrize(
    ("arg", "arguments"), [("{{n}}", {"n": -5}), ("{{n}}", {"n": -0.5}), ("{{a}}{{b}}", {"a": "", "b": "-rf"})]
)
def test_no_argument_is_taken_for_an_option_whatever_it_is_made_of(arg, arguments):
    with pytest.raises(ToolArgumentsError, match="option"):
        filled_arguments("my.tool", "work", [arg], arguments)


def test_a_program_cannot_say_that_its_call_was_not_made(folder):
    error = folder.error("""echo '{"error": {"type": "not_executed", "message": "never"}}'""")
    assert (error.type, error.message) == ("execution_failed", "never")


def test_the_program_is_told_the_span_of_its_call(folder):
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    assert folder.content('printf \'{"content": "%s"}\' "$TRACEPARENT"', traceparent=span) == span
