"""code.run_command."""

import pytest
from msgspec.structs import replace

from owlclaw_ray.domain.tool import Permission
from owlclaw_ray.testing.clock import ManualClock
from owlclaw_ray.tools.executor import LocalExecutor
from owlclaw_ray.tools.programs import GRACE_SECONDS
from owlclaw_ray.tools.sources import ToolSources
from tests.tools.code.conftest import invocation


def test_a_program_is_run_in_the_project(project):
    """tool-registry: run_command runs in the project by default, or in a cwd within the allowed roots."""
    (project.folder / "deep").mkdir()
    assert project.call("run_command", argv=["pwd"])["stdout"] == f"{project.folder}\n"
    assert project.call("run_command", argv=["pwd"], cwd="deep")["stdout"] == f"{project.folder}/deep\n"
    assert project.error("run_command", argv=["pwd"], cwd="..").type == "denied"
    assert project.error("run_command", argv=["pwd"], cwd="none").type == "not_a_directory"


def test_no_shell_reads_the_arguments(project):
    """tool-registry: a command is a list of arguments; there is no general shell string."""
    arguments = ["$(touch owned)", "; touch owned", "`touch owned`", "*", "&&", "touch owned", "\n"]
    found = project.call("run_command", argv=["printf", "%s|", *arguments])
    assert found == {"exit_code": 0, "stdout": "".join(f"{each}|" for each in arguments), "stderr": ""}
    assert list(project.folder.iterdir()) == []
    assert project.error("run_command", argv="ls -l").type == "invalid_arguments"


def test_the_model_passes_no_environment(project):
    """tool-registry: the model cannot pass env; it comes from configuration only."""
    assert project.error("run_command", argv=["env"], env={"A": "b"}).type == "invalid_arguments"


def test_a_command_is_told_the_span_of_its_call(project):
    span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    call = replace(invocation("code.run_command", {"argv": ["printenv", "TRACEPARENT"]}), traceparent=span)

    outcome = LocalExecutor(ToolSources([project.tools]), ManualClock()).run_one(call)

    assert outcome.result.content["stdout"] == f"{span}\n"


def test_a_command_gets_what_is_allowed_of_the_environment(project):
    """tool-registry: PATH, HOME, TMPDIR and what the configuration allows; secrets are not passed by default."""
    project.environ |= {"OPENAI_API_KEY": "sk-1", "DATABASE_PASSWORD": "p", "COLOUR": "red", "LANG": "C", "RAY_X": "1"}
    project.allow(env=("COLOUR", "OPENAI_API_KEY", "RAY_X"))
    lines = project.call("run_command", argv=["env"])["stdout"].splitlines()
    names = {line.partition("=")[0] for line in lines} - {"PWD", "SHLVL", "_"}
    assert names == {"PATH", "HOME", "LANG", "COLOUR"}


def test_a_failing_command_is_an_error_with_what_it_wrote(project):
    """tool-registry: for an exit code other than 0 a summary of stderr is in the error result."""
    error = project.error("run_command", argv=["sh", "-c", "echo out; echo broken >&2; exit 4"])
    assert (error.type, error.message) == ("command_failed", "sh ended with exit code 4: broken")
    assert error.details == {"exit_code": 4, "stdout": "out\n", "stderr": "broken\n"}


def test_a_command_that_takes_too_long_is_killed_and_its_output_is_told(project):
    """tool-registry: a command has a time limit of 120 s by default and 600 s at most; partial output is kept and marked."""
    project.allow(command_seconds=0.3)
    error = project.error("run_command", argv=["sh", "-c", "echo begun; sleep 1000"])
    assert error.type == "timeout"
    assert error.details == {"exit_code": None, "stdout": "begun\n", "stderr": "", "partial": True}


def test_the_limit_of_the_call_counts_too(project):
    assert project.error("run_command", timeout=0.6, argv=["sleep", "1000"]).details["partial"] is True


def test_large_output_is_cut(project):
    """tool-registry: stdout and stderr that are too large are cut."""
    project.allow(output_bytes=100)
    found = project.call("run_command", argv=["sh", "-c", "yes | head -c 5000"])
    assert (found["stdout_bytes"], found["truncated"], found["stderr"]) == (5_000, True, "")
    assert "…[4900 bytes left out]…" in found["stdout"]


@pytest.mark.parametrize(
    ("argv", "type_"),
    [
        ([], "invalid_arguments"),
        ([""], "invalid_arguments"),
        (["a\0"], "invalid_arguments"),
        (["no-such-x"], "command_not_found"),
    ],
)
def test_what_cannot_be_run_is_an_error_of_the_tool(project, argv, type_):
    assert project.error("run_command", argv=argv).type == type_


def test_an_argument_list_that_is_too_long_is_an_error_of_the_tool(project):
    assert project.error("run_command", argv=["echo", "x" * 3_000_000]).type == "execution_failed"


def test_commands_write_and_are_dangerous_and_the_others_are_what_they_are(project):
    """tool-registry: run_command is write and dangerous; read_file, list_dir and search are readonly; the rest writes."""
    definitions = {each.name: each for each in project.tools.definitions()}
    assert list(definitions) == [
        *("code.read_file", "code.list_dir", "code.search", "code.write_file", "code.edit_file", "code.run_command"),
    ]
    assert [each.name for each in definitions.values() if each.permission is Permission.WRITE] == [
        *("code.write_file", "code.edit_file", "code.run_command"),
    ]
    assert [each.name for each in definitions.values() if "dangerous" in each.tags] == ["code.run_command"]
    assert definitions["code.run_command"].timeout == 120 + GRACE_SECONDS
