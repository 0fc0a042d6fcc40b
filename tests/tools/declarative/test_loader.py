"""The files of declarative tools, and what is wrong with them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray import OwlClaw
from owlclaw_ray.domain.tool import Effect, Permission
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.tools.composition import declared_tools
from owlclaw_ray.tools.declarative.loader import load_tools, load_usable_tools
from owlclaw_ray.tools.declarative.options import DeclarativeOptions
from owlclaw_ray.tools.declarative.tool import code_with_field
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
        ({"tags": "dangerous"}, "tools/usage.json: tags: is 'dangerous'"),
        (
            {"tags": ["x", "Dangerous"]},
            "tags[1]: has 'Dangerous' (a tag is a word in small letters: write 'dangerous')",
        ),
        ({"tags": ["dangerous "]}, "tags[0]: has 'dangerous ' (a tag is a word in small letters: write 'dangerous')"),
        ({"tenants": ["Acme"]}, "tools/usage.json: tenants: has 'Acme', which is no id of a tenant"),
        ({"tenants": []}, "tools/usage.json: tenants: names no tenant"),
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
        ("bash", ["-euo", "pipefail", "-c", X], 3),
        ("bash", ["-O", "extglob", "+o", "posix", "-lc", f"ls {X}"], 5),
        ("bash", ["--rcfile", "rc", X], 2),
        ("python3", ["-W", "ignore", "-c", X], 3),
        ("python3", [f"-c{X}"], 0),
        ("python3", ["-Im", X], 1),
        ("python3", ["-W", X, "work.py"], 1),
        ("perl", ["-I", "lib", "-e", X], 3),
        ("perl", ["-lane", X], 1),
        ("perl", ["-e", "print 1", "-e", X], 3),
        ("perl", ["-pe", "s/a/b/", X], 2),
        ("perl", [f"-M{X}", "-e", "1"], 0),
        ("awk", ["-F", ",", X], 2),
        ("awk", ["-v", "n=1", X], 2),
        ("awk", ["-v", X, "{print n}"], 1),
        ("awk", ["-v", f"{X}=1", "{print n}"], 1),
        ("mysql", [f"--exec={X}"], 0),
        ("gawk", ["--assign=n=1", "-i", X, "{print n}"], 2),
        ("sed", ["-n", "-e", "p", "-e", X], 4),
        ("sed", ["p", "file", "-e", X], 3),
        ("sed", [f"--expr={X}"], 0),
        ("ruby", ["-r", "json", "-e", X], 3),
        ("node", ["-r", "fs", "-p", X], 3),
        ("node", ["--require", X, "work.js"], 1),
        ("deno", ["eval", X], 1),
        ("php", ["-d", "a=1", "-r", X], 3),
        ("lua", ["-e", "x = 1", X], 2),
        ("Rscript", ["--vanilla", "-e", X], 2),
        ("pwsh", ["-NoProfile", "-Command", "ls", X], 3),
        ("java", ["-cp", X, "Work"], 1),
        ("make", ["-j", "2", X], 2),
        ("sqlite3", ["shop.db", X], 1),
        ("sqlite3", ["-separator", ",", "shop.db", ".mode csv", X], 4),
        ("sqlite3", ["--cmd", X, "shop.db"], 1),
        ("psql", ["-d", "shop", "-c", X], 3),
        ("psql", ["shop", f"--command={X}"], 1),
        ("psql", ["-Atc", X], 1),
        ("mysql", ["-u", "owl", "-e", X], 3),
        ("vim", ["-es", "-c", X], 2),
        ("vim", [f"+{X}"], 0),
        ("vim", [X], 0),
        ("gdb", ["-batch", "-ex", X], 2),
        ("find", [".", "-exec", X, ";"], 2),
        ("find", [".", "-name", "a", "-exec", "sh", "-c", X, ";"], 6),
        ("find", [".", f"-{X}", "id", ";"], 1),
        ("tar", ["-xf", "a.tar", f"--to-command={X}"], 2),
        ("tar", ["--checkpoint=1", "--checkpoint-action", X, "-cf", "a.tar", "."], 2),
        ("tar", ["-cI", X, "-f", "a.tar", "."], 1),
        ("tar", ["cfI", "a.tar", X, "."], 2),
        ("tar", [X, "a.tar"], 0),
        ("rsync", ["-ae", X, "a", "b"], 1),
        ("rsync", ["a", "b", f"--rsh={X}"], 2),
        ("scp", ["-o", f"ProxyCommand={X}", "a", "host:b"], 1),
        ("ssh", ["-p", "22", "host", X], 3),
        ("ssh", ["-o", f"ProxyCommand={X}", "host"], 1),
        ("git", ["-C", "repo", "-c", f"alias.x={X}", "x"], 3),
        ("git", ["-c", f"core.pager={X}", "log"], 1),
        ("git", [X], 0),
        ("git", ["clone", "-c", X, "url"], 2),
        ("git", ["fetch", f"--upload-pack={X}", "origin"], 1),
        ("git", ["rebase", "-x", X, "main"], 2),
        ("git", ["config", "alias.x", X], 2),
        ("env", ["-S", f"bash -c {X}"], 1),
        ("env", [f"LD_PRELOAD={X}", "ls"], 0),
        ("env", [f"{X}=1", "ls"], 0),
        ("env", ["-u", "A", X], 2),
        ("env", ["-", "git", "-c", X, "log"], 3),
        ("timeout", ["-k", "1", "5", X], 3),
        ("nice", ["-n", "5", "sudo", "-u", "owl", "python3", "-c", X], 7),
        ("nohup", ["busybox", "sh", "-c", X], 3),
        ("xargs", ["-n", "1", "sh", "-c", X], 4),
        ("xargs", [X], 0),
        ("su", ["owl", "-c", X], 2),
        ("docker", ["exec", "-it", "web", "bash", "-c", X], 5),
        ("docker", ["exec", "db", "psql", "-c", X], 4),
        ("docker", ["exec", "web", "git", "-c", X, "log"], 4),
        ("env", ["-", X], 1),
        ("perl", ["-n", "work.pl", X], 2),
        ("node", [f"--some-option={X}", "work.js"], 0),
        ("find", [".", "-exec", "sh", "-c", "ls", "sh", "{}", "+", "-exec", "sh", "-c", X, ";"], 11),
        ("node", ["-pe", X], 1),
        ("node", ["-p", "-e", X], 2),
        ("node", ["--print", "--eval", X], 2),
        ("sh", ["-", X], 1),
        ("bash", ["-e", "-", X], 2),
        ("bash", ["-O", "extglob", "-", X], 3),
        ("bash", ["-c", "-", X], 2),
        ("env", ["-", "bash", "-", X], 3),
        ("time", ["-p", "sh", "-c", X], 3),
        ("time", ["-o", "file", "sh", "-c", X], 4),
        ("setsid", ["-f", "sh", "-c", X], 3),
        ("setsid", ["-w", "-f", "sh", "-c", X], 4),
        ("stdbuf", ["-o", "L", "sh", "-c", X], 4),
        ("ionice", ["-t", "-c", "3", "sh", "-c", X], 5),
        ("perl", ["-ae", "print 1", X], 2),
        ("perl", ["-F:", "-e", "print 1", X], 3),
        ("psql", ["-o", X], 1),
        ("psql", ["-Ato", X], 1),
        ("psql", [f"--output={X}"], 0),
        ("strace", ["-o", X, "true"], 1),
        ("strace", ["-E", f"PATH={X}", "ls"], 1),
        ("git", ["clone", "-u", X, "repo"], 2),
        ("git", ["clone", f"-qu{X}", "repo"], 1),
        ("git", ["fetch-pack", f"--upload-pack={X}", "repo"], 1),
        ("git", ["send-pack", "--receive-pack", X, "repo"], 2),
        ("git", ["merge-index", X, "-a"], 1),
        ("git", ["difftool", "-t", X], 2),
        ("git", ["-C", X, "status"], 1),
        ("git", [f"--git-dir={X}", "status"], 0),
        ("git", [f"--work-tree={X}", "status"], 0),
        ("git", [f"--exec-path={X}", "status"], 0),
        ("gdb", ["--batch", "--eval", X], 2),
        ("gdb", ["--batch", f"--ev={X}"], 1),
        ("gdb", ["--batch", "--init-eval-c", X], 2),
        ("gdb", ["--batch", "--comm", X], 2),
        ("gdb", ["-batch", "-ex", "run", X], 3),
        ("make", ["-j", X], 1),
        ("make", ["-l", X], 1),
        ("awk", ["-W", "exec", X], 2),
        ("env", [f"MAKEFILES={X}", "make"], 0),
        ("env", [f"CLASSPATH={X}", "java", "Main"], 0),
        ("env", [f"VIMINIT={X}", "vim", "-es"], 0),
        ("env", [f"EXINIT={X}", "vim", "-e"], 0),
        ("python3", ["-m", "timeit", X], 2),
        ("python3", ["-mtimeit", X], 1),
        ("python3", ["-m", "pdb", "-c", X, "work.py"], 3),
        ("java", ["--source", "11", X], 2),
        ("java", ["--class-path", "lib", X], 2),
        ("rbash", ["-c", X], 1),
        ("ksh93", ["-c", X], 1),
        ("bash-static", ["-c", X], 1),
        ("python3-dbg", ["-c", X], 1),
        ("perl5.36-x86_64-linux-gnu", ["-e", X], 1),
        ("split", [f"--filter={X}", "file"], 0),
        ("sort", ["--compress-program", X, "file"], 1),
        ("emacsclient", ["-a", X, "file"], 1),
        ("emacsclient", ["-e", "1", X], 2),
        ("sftp", ["-b", X, "host"], 1),
        ("mongo", ["shop", X], 1),
        ("mongosh", ["shop", X], 1),
        ("R", ["CMD", X], 1),
        ("expect", ["-c", X], 1),
        ("ssh", ["-I", X, "host", "ls"], 1),
        ("ld-linux-x86-64.so.2", [X], 0),
        ("xargs", ["-I", X, "grep", "a"], 1),
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
        ("sh", ["-c", 'wc -w < "$1"', "sh", X]),
        ("bash", ["-euo", "pipefail", "-c", "ls", "bash", X]),
        ("awk", ["{print $1}", X]),
        ("awk", ["-F", X, "-v", f"name={X}", "-f", "count.awk", X]),
        ("sed", ["-e", "p", "-n", X]),
        ("perl", ["-Ilib", "-e", "print $ARGV[0]", X]),
        ("python3", ["-W", "ignore", "-c", "import sys", "-c", X]),
        ("python3", ["-m", "json.tool", X]),
        ("python3", ["work.py", "--name", X]),
        ("node", ["-p", "1", X]),
        ("time", ["-f", X, "date"]),
        ("dc3dd", [X]),
        ("ssh-keygen", ["-f", X]),
        ("sort", ["-k", "1", X]),
        ("ssh", ["-p", X, X, "uptime"]),
        ("find", [".", "-name", X]),
        ("find", [X, "-type", "f", "-exec", "grep", "-e", X, "{}", "+", "-size", X]),
        ("sqlite3", ["-readonly", X, ".tables"]),
        ("vim", ["-es", "--", X]),
        ("tar", ["cf", X, "-C", X, "."]),
        ("rsync", ["-a", X, X]),
        ("git", ["-C", "repo", "log", "--grep", X]),
        ("git", ["commit", "-m", X]),
        ("env", [f"TZ={X}", "date", f"+{X}"]),
        ("timeout", [X, "grep", X, "file"]),
        ("xargs", ["-n", "1", "grep", X]),
        ("jq", [X]),
        ("git", ["log", "--", X]),
        ("grep", ["-r", "--", X]),
    ],
)
def test_values_are_arguments_of_code_and_of_programs_that_run_none(folder, command, args):
    write(folder, command=command, args=args)
    assert load_tools(options(folder), {})


@pytest.mark.parametrize(
    ("command", "args", "field"),
    [
        ("sh", [], "command"),
        ("sh", ["-s"], "command"),
        ("bash", ["-es", "--", "work"], "command"),
        ("bash", ["-"], "command"),
        ("bash", ["/dev/stdin"], "command"),
        ("python3", [], "command"),
        ("python3", ["-I", "-"], "command"),
        ("node", [], "command"),
        ("perl", ["-w"], "command"),
        ("lua", [], "command"),
        ("ssh", ["host"], "command"),
        ("psql", ["-f", "-"], "command"),
        ("awk", ["-f", "-", "file"], "command"),
        ("make", ["-f", "-"], "command"),
        ("env", ["A=b", "timeout", "5", "sh"], "args[3]"),
        ("find", [".", "-exec", "sh", "-s", ";"], "args[2]"),
        ("xargs", ["-0", "sh", "-c"], "command"),
        ("xargs", ["-I", "{}", "sh", "-c", "echo {}"], "command"),
        ("xargs", ["-I{}", "sh", "-c", "echo {}"], "command"),
        ("xargs", ["env"], "command"),
        ("nice", ["xargs", "-n", "1", "bash"], "args[0]"),
    ],
)
def test_no_program_takes_its_code_from_where_the_arguments_are(folder, command, args, field):
    write(folder, command=command, args=args)
    (told,) = problems_of(folder)
    assert told.startswith(f"tools/usage.json: {field}: would run its stdin as code")
    assert "name a script" in told


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("sh", ["work.sh"]),
        ("sh", ["-", "work.sh"]),
        ("bash", ["-euo", "pipefail", "-c", "cat"]),
        ("python3", ["-I", "work.py"]),
        ("python3", ["-m", "work"]),
        ("node", ["-p", "1"]),
        ("perl", ["-ne", "print"]),
        ("lua", ["-e", "print(1)"]),
        ("jq", ["."]),
        ("awk", ["{print}"]),
        ("psql", ["-c", "select 1"]),
        ("ssh", ["host", "uptime"]),
        ("xargs", ["-n", "1", "grep", "a"]),
        ("xargs", ["-I", "{}", "grep", "{}", "file"]),
        ("pgrep", ["node"]),
        ("systemctl", ["status", "ruby"]),
    ],
)
def test_a_script_may_read_the_arguments_from_stdin(folder, command, args):
    write(folder, command=command, args=args)
    assert load_tools(options(folder), {})


INTERPRETED = [
    ("sh", ["-eu", "-c"]),
    ("bash", ["-euo", "pipefail", "-c"]),
    ("python3", ["-I", "-W", "ignore", "-c"]),
    ("perl", ["-w", "-e"]),
    ("node", ["--no-warnings", "-e"]),
    ("awk", ["-F", ","]),
    ("sed", ["-n"]),
    ("git", ["-c"]),
]
STARTERS = [
    [],
    ["env", "A=b", "-u", "C"],
    ["nice", "-n", "5"],
    ["timeout", "-k", "1", "--foreground", "5"],
    ["sudo", "-u", "owl", "--"],
    ["nohup"],
    ["xargs", "-0", "-n", "1"],
    ["find", ".", "-exec"],
    ["docker", "exec", "-i", "web"],
]


@pytest.mark.property
@given(st.lists(st.sampled_from(STARTERS), max_size=3), st.sampled_from(INTERPRETED))
def test_code_is_found_behind_any_programs_that_start_others(starters, interpreted):
    program, options = interpreted
    words = [*(word for starter in starters for word in starter), program, *options, f"a{X}"]
    assert code_with_field(words[0], words[1:]) == len(words) - 2


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
    assert "left out until its file is corrected: tools/a.json: comand: there is no such key" in caplog.text


def test_two_files_with_one_name_are_both_named(folder):
    write(folder, "a.json")
    write(folder, "b.json")
    with pytest.raises(ConfigurationError, match=r"by tools/a\.json and by tools/b\.json"):
        declared_tools(OwlClaw("shop").sources(), HostTools(declarative=options(folder)))


def test_a_name_without_a_dot_is_refused(folder):
    (folder / "a.json").write_text(json.dumps(GOOD | {"name": "usage"}))
    with pytest.raises(ConfigurationError, match=r"tool 'usage': of tools/a\.json has a name without a dot"):
        declared_tools(OwlClaw("shop").sources(), HostTools(declarative=options(folder)))
