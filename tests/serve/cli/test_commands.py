from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from serve.pid_file import PidFile
from tests.definitions.writing import write_definition
from tests.serve.cli.conftest import Run
from tests.serve.double import FINAL_TEXT, MemoryRuntime


def test_a_trigger_says_which_run_it_made_and_that_a_script_answers(owlclaw: Run):
    result = owlclaw("trigger", "assistant")

    assert result.exit_code == 0
    assert result.output.startswith("run_")
    assert "of assistant · scripted model, no real LLM" in result.output
    assert "follow it with: owlclaw tail run_" in result.output


def test_following_a_trigger_prints_its_timeline(owlclaw: Run):
    result = owlclaw("trigger", "assistant", "--focus", "看一下大盘", "--follow")

    lines = [line.strip().partition("s  ")[2] for line in result.output.splitlines()[1:9]]
    assert result.exit_code == 0
    assert [line[:10].strip() for line in lines] == [
        "queued",
        "started",
        "prompt",
        "model",
        "call",
        "call",
        "result",
        "error",
    ]
    assert "focus: 看一下大盘" in lines[0]
    assert "scripted:demo · scripted model, no real LLM · 1 tool offered" in lines[2]
    assert 'query_state(state_name="负载")' in lines[4]
    assert 'query_state (3 ms): {"state":{"load":0.5}}' in lines[6]
    assert "recall (1 ms): invalid_arguments: query: is missing" in lines[7]
    assert "completed 2 turns · 2 tool calls · 50 tokens · 0.01 s" in result.output
    assert result.output.endswith("一切正常: nothing unusual  today\n")


def test_waiting_prints_the_result_only(owlclaw: Run):
    result = owlclaw("trigger", "assistant", "--wait")

    assert result.exit_code == 0
    assert result.output.split("\n", 1)[1] == "completed\n" + FINAL_TEXT.replace("\u2028", " ") + "\n"


def test_waiting_says_which_approvals_a_run_waits_for_apart_from_its_result(owlclaw: Run, runtime: MemoryRuntime):
    runtime.waits_for = ("apr_1", "apr_2")

    told, as_json = owlclaw("trigger", "assistant", "--wait"), owlclaw("trigger", "assistant", "--wait", "--json")

    said = "waiting for approvals: apr_1, apr_2 (decide with: owlclaw approvals allow apr_1)\n"
    assert (told.stderr, as_json.stderr) == (said, said)
    assert json.loads(as_json.stdout)["status"] == "completed"


def test_following_a_run_that_waits_says_once_that_it_goes_on_and_how_to_leave(owlclaw: Run, runtime: MemoryRuntime):
    runtime.waits_for = ("apr_1",)

    told, tailed = owlclaw("trigger", "assistant", "--follow"), owlclaw("trigger", "assistant", "--follow", "--json")

    assert "owlclaw approvals allow apr_1" in told.stdout
    assert told.stderr == "still following; Ctrl-C leaves, the run stays as it is\n"
    assert tailed.stderr == ""


def test_json_output_is_the_run(owlclaw: Run):
    accepted = json.loads(owlclaw("trigger", "assistant", "--json").output)
    waited = json.loads(owlclaw("trigger", "assistant", "--wait", "--json").output)
    shown = json.loads(owlclaw("runs", accepted["run_id"], "--json").output)
    tailed = [json.loads(line) for line in owlclaw("tail", accepted["run_id"], "--json").output.split("\n") if line]

    assert accepted["scripted"] is True
    assert waited["result"]["final_text"] == FINAL_TEXT
    assert shown["events"] == tailed


def test_a_payload_comes_from_the_line_a_file_or_stdin(owlclaw: Run, tmp_path: Path):
    (tmp_path / "order.json").write_text('{"股票": 3}', encoding="utf-8")

    for arguments, stdin in ((['{"股票": 3}'], None), (["@order.json"], None), (["-"], '{"股票": 3}')):
        result = owlclaw("trigger", "assistant", "--wait", "--json", "--payload", *arguments, stdin=stdin)
        assert json.loads(result.output)["trigger"]["payload"] == {"股票": 3}


def test_runs_are_listed_with_their_payloads_only_if_asked_for(owlclaw: Run):
    owlclaw("trigger", "assistant", "--payload", '{"股票": 3}')

    [brief] = json.loads(owlclaw("runs", "--json").output)["runs"]
    [whole] = json.loads(owlclaw("runs", "--json", "--payload").output)["runs"]

    assert "payload" not in brief["trigger"]
    assert whole["trigger"]["payload"] == {"股票": 3}


@pytest.mark.parametrize(
    ("payload", "message"),
    [("hello", "--payload is not JSON"), ("@missing.json", "missing.json cannot be read"), ("-", "stdin is not JSON")],
)
def test_a_payload_that_cannot_be_used_is_wrong_usage(owlclaw: Run, payload: str, message: str):
    result = owlclaw("trigger", "assistant", "--payload", payload)

    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", "").split())


def test_the_same_idempotency_key_gives_the_same_run(owlclaw: Run):
    made = [json.loads(owlclaw("trigger", "assistant", "--idempotency-key", "k", "--json").output) for _ in range(2)]

    assert made[0]["run_id"] == made[1]["run_id"]


def test_a_trigger_says_how_it_comes_to_its_agent(owlclaw: Run):
    first = json.loads(owlclaw("trigger", "patient", "--json").output)["run_id"]

    refused = owlclaw("trigger", "patient", "--busy", "reject")
    urgent = owlclaw("trigger", "patient", "--busy", "interrupt", "--priority", "-5", "--deadline", "60")
    run = json.loads(owlclaw("runs", urgent.output.split()[0], "--json").output)

    assert (refused.exit_code, refused.output) == (1, f"agent 'patient' is busy with run '{first}'\n")
    assert f"queued, and {first} is interrupted; follow it with: owlclaw tail run_" in urgent.output
    assert (run["priority"], run["deadline"] > run["created_at"]) == (-5, True)


def test_a_trigger_says_what_kind_of_work_it_is(owlclaw: Run):
    run_id = json.loads(owlclaw("trigger", "assistant", "--task-type", "交易", "--json").output)["run_id"]
    run = json.loads(owlclaw("runs", run_id, "--json").output)

    assert run["trigger"]["task_type"] == "交易"
    assert "body.task_type" in owlclaw("trigger", "assistant", "--task-type", "x" * 65).output


def test_a_merged_trigger_is_said_to_be_one(owlclaw: Run, runtime: MemoryRuntime):
    runtime.merging_into = json.loads(owlclaw("trigger", "patient", "--json").output)["run_id"]

    assert "merged into this run, which is queued;" in owlclaw("trigger", "patient", "--busy", "coalesce").output


@pytest.mark.parametrize("option", [("--busy", "wait"), ("--priority", "11"), ("--deadline", "soon")])
def test_an_admission_that_makes_no_sense_is_wrong_usage(owlclaw: Run, option: tuple[str, str]):
    assert owlclaw("trigger", "assistant", *option).exit_code == 2


def test_a_refusal_is_one_sentence_and_a_failure(owlclaw: Run):
    unknown, broken = owlclaw("trigger", "asistant"), owlclaw("trigger", "broken")

    assert (unknown.exit_code, broken.exit_code) == (1, 1)
    assert "there is no agent definition for 'asistant'; defined here: assistant, broken, patient" in unknown.output
    assert "agents/broken/SOUL.md: is missing (write who the agent is)" in broken.output


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("tail run_x", "there is no run 'run_x'\n  → list them with: owlclaw runs\n"),
        ("approvals allow apr_x", "there is no approval 'apr_x'\n  → list them with: owlclaw approvals list\n"),
        ("schedules show sch_x", "there is no schedule 'sch_x'\n  → list them with: owlclaw schedules list\n"),
        ("webhooks show dlv_x", "there is no delivery 'dlv_x'\n  → list them with: owlclaw webhooks deliveries\n"),
        ("webhooks show cb_x", "there is no callback 'cb_x'\n  → list them with: owlclaw webhooks callbacks\n"),
    ],
)
def test_an_id_that_there_is_not_is_said_with_the_command_that_lists_them(owlclaw: Run, command: str, message: str):
    refused = owlclaw(*command.split())

    assert (refused.exit_code, refused.output) == (1, message)
    assert owlclaw(*message.rstrip().rpartition("owlclaw ")[2].split()).exit_code == 0


def test_runs_are_filtered_by_definition_trigger_time_and_text(owlclaw: Run):
    run_id = owlclaw("trigger", "assistant", "--focus", "order 17").output.split()[0]
    owlclaw("trigger", "assistant:a", "--focus", "订单")

    def found(*options: str) -> list[str]:
        return [run["run_id"] for run in json.loads(owlclaw("runs", "--json", *options).output)["runs"]]

    everything = found()
    assert len(everything) == 2
    assert found("--text", "ORDER") == [run_id]
    assert found("--definition", "assistant", "--trigger", "api", "--since", "1h") == everything
    assert found("--until", "1h") == found("--definition", "nobody") == found("--trigger", "webhook") == []
    assert found("--before", everything[0]) == [run_id]
    assert found("--open") == []
    assert owlclaw("runs", "--trigger", "phone").exit_code == owlclaw("runs", "--since", "soon").exit_code == 2


def test_runs_of_an_agent_that_there_is_not_are_refused_and_of_one_without_runs_are_none(owlclaw: Run):
    unknown, known = owlclaw("runs", "asistant"), owlclaw("runs", "assistant")

    assert unknown.exit_code == 1
    assert "there is no agent definition for 'asistant'; defined here: assistant, broken, patient" in unknown.output
    assert known.output == "there are no runs\n"


def test_runs_are_listed_and_one_is_shown_with_its_timeline(owlclaw: Run):
    assert owlclaw("runs").output == "there are no runs\n"
    run_id = json.loads(owlclaw("trigger", "assistant", "--wait", "--json").output)["run_id"]

    listed, shown = owlclaw("runs", "assistant", "--status", "completed"), owlclaw("runs", run_id)

    assert run_id in listed.output
    assert "一切正常" in listed.output
    assert "scripted model, no real LLM" in shown.output
    assert "completed 2 turns" in shown.output
    assert owlclaw("runs", "--status", "done").exit_code == 2


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(owlclaw: Run):
    run_id = json.loads(owlclaw("trigger", "patient", "--json").output)["run_id"]

    assert f"running; follow it with: owlclaw tail {run_id}" in owlclaw("runs", run_id).output


def test_agents_and_what_they_have_are_shown(owlclaw: Run):
    owlclaw("trigger", "assistant", "--wait")

    agents = owlclaw("agents").output
    assert "scripted:demo (no real LLM)" in agents
    assert "broken: agents/broken/SOUL.md: is missing" in agents
    assert "completed: 一切正常" in owlclaw("agents", "assistant").output
    assert "机器很闲" in owlclaw("memory", "list", "assistant").output
    assert "remembers nothing yet" in owlclaw("memory", "list", "patient").output
    servers = owlclaw("mcp", "list").output
    assert "mcp.files.read\n  left out: move: its schema has oneOf" in servers
    assert "web: ConnectError: refused" in servers
    assert "14 ended, 0 running" in servers
    assert "负载低" in owlclaw("ledger", "query", "--agent", "assistant").output
    for command in (
        ("agents",),
        ("agents", "assistant"),
        ("memory", "list", "assistant"),
        ("mcp", "list"),
        ("ledger", "query"),
    ):
        assert json.loads(owlclaw(*command, "--json").output)


def test_an_agent_is_shown_with_a_line_for_each_of_its_last_runs_however_much_they_said(
    owlclaw: Run, runtime: MemoryRuntime
):
    long = "completed (api): 第一行\n| a | b |\n\x1b[2J" + "x" * 50_000
    runtime.outcomes = (long, "failed (api): no")
    owlclaw("trigger", "assistant", "--wait")

    lines = owlclaw("agents", "assistant").output.splitlines()
    whole = json.loads(owlclaw("agents", "assistant", "--json").output)

    assert [len(line) <= 110 for line in lines] == [True] * 4
    assert lines[1].startswith("  completed (api): 第一行 | a | b | ")
    assert lines[1].endswith("xxx…")
    assert lines[2] == "  failed (api): no"
    assert lines[3] == "owlclaw runs assistant lists the runs, owlclaw runs RUN_ID shows one in full"
    assert whole["recent_outcomes"][0] == long


def test_when_nothing_listens_the_way_to_start_it_is_said(cli: Run):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        result = cli("agents", "--url", url)

    assert result.exit_code == 1
    remedy = "start it with: owlclaw up, or name a server that runs with --url or OWLCLAW_URL"
    assert result.output == f"nothing is listening at {url}\n  → {remedy}\n"


def test_the_server_of_the_folder_is_found_by_its_pid_file(cli: Run, server: str, tmp_path: Path):
    data_dir = tmp_path / ".owlclaw"
    data_dir.mkdir()
    PidFile(os.getpid(), server, datetime.now(UTC)).write(data_dir)  # noqa: TID251 - compared with a real process

    assert "assistant" in cli("agents").output


class Refusing(BaseHTTPRequestHandler):
    """Has no time for anybody, and counts who came."""

    came: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.came.append(self.path)
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_server_that_runs_for_the_folder_is_asked_again_and_one_that_is_not_there_is_not(cli: Run, tmp_path: Path):
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}"
        (tmp_path / "owlclaw.yaml").write_text(f"http: {{port: {server.server_port}}}")

        assert cli("runs").exit_code == 1
        of_nobody = len(Refusing.came)
        (tmp_path / ".owlclaw").mkdir()
        PidFile(os.getpid(), url, datetime.now(UTC)).write(tmp_path / ".owlclaw")  # noqa: TID251 - as above
        assert cli("runs").exit_code == 1
        of_one_that_runs = len(Refusing.came) - of_nobody
        assert cli("runs", "--url", url).exit_code == 1
        of_one_that_is_named = len(Refusing.came) - of_nobody - of_one_that_runs
        server.shutdown()

    assert (of_nobody, of_one_that_runs, of_one_that_is_named) == (1, 3, 2)


def test_without_a_server_the_settings_say_where_it_would_be(cli: Run, tmp_path: Path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        (tmp_path / "owlclaw.yaml").write_text(f"http:\n  port: {port}\n")
        result = cli("agents")

    assert f"nothing is listening at http://127.0.0.1:{port}\n" in result.output


WANTING = """
webhooks: {sources: {shop: {secret: "${SHOP_SECRET}", agent: assistant}}}
mcp: {servers: {web: {url: "https://example.com/mcp", headers: {Authorization: "Bearer ${SEARCH_TOKEN}"}}}}
tracing: {export: otlp, endpoint: "http://127.0.0.1:4318", headers: {x-key: "${TRACES_KEY}"}}
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("trigger", "assistant", "--wait"),
        ("runs",),
        ("agents",),
        ("top", "--times", "1"),
        ("ledger", "query"),
        ("memory", "list", "assistant"),
        ("schedules", "list"),
        ("approvals", "list"),
        ("mcp", "list"),
        ("webhooks", "sources"),
        ("skill", "list"),
        ("skill", "validate"),
    ],
)
def test_commands_need_no_secret_of_the_server(cli: Run, server: str, tmp_path: Path, arguments: tuple[str, ...]):
    (tmp_path / "owlclaw.yaml").write_text(f"http: {{port: {server.rpartition(':')[2]}}}{WANTING}")
    (tmp_path / ".owlclaw").mkdir()
    write_definition(tmp_path / "agents" / "shop", skills=("restock",))
    PidFile(os.getpid(), server, datetime.now(UTC)).write(tmp_path / ".owlclaw")  # noqa: TID251 - compared with a real process
    result = cli(*arguments)

    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["up", "doctor"])
def test_who_runs_the_server_is_told_which_variable_is_missing_and_where_it_is_named(
    cli: Run, tmp_path: Path, command: str
):
    (tmp_path / "owlclaw.yaml").write_text(WANTING)
    result = cli(command)
    said = " ".join(result.output.split())

    assert result.exit_code == 1
    assert "owlclaw.yaml:2: webhooks.sources.shop.secret: needs the variable SHOP_SECRET, which is not set" in said
    assert (
        "owlclaw.yaml:3: mcp.servers.web.headers.Authorization: needs the variable SEARCH_TOKEN, which is not set"
        in said
    )
    assert "tracing.headers: needs the variable TRACES_KEY, which is not set" in said


def test_a_command_reads_nothing_of_the_settings_but_where_the_server_is(cli: Run, server: str, tmp_path: Path):
    port = server.rpartition(":")[2]
    (tmp_path / "owlclaw.yaml").write_text(f"http:\n  port: {port}\nlimits:\n  turns: -1\n")

    assert "assistant" in cli("agents").output


def test_where_the_server_is_has_to_be_right_and_is_told_with_its_place(cli: Run, tmp_path: Path):
    (tmp_path / "owlclaw.yaml").write_text("data_dir: [a]\nhttp:\n  port: web\n")
    result = cli("agents")

    assert result.exit_code == 1
    assert "owlclaw.yaml:3: http.port: is 'web' (it must be a whole number from 1 to 65535)" in result.output
    assert "owlclaw.yaml:1: data_dir: is ['a'] (it must be a text)" in result.output


def test_wrong_settings_are_all_reported(cli: Run, tmp_path: Path):
    (tmp_path / "owlclaw.yaml").write_text("htttp: {}\nlimits:\n  turns: -1\n")
    result = cli("ledger", "query")

    assert result.exit_code == 1
    assert result.output.startswith("2 problems:\n")
    assert "htttp" in result.output
    assert "turns" in result.output


@pytest.mark.parametrize("arguments", [("trigger",), ("fly",), ("runs", "--limit", "0")])
def test_wrong_usage_exits_with_2(cli: Run, arguments: tuple[str, ...]):
    assert cli(*arguments).exit_code == 2


def test_the_version_is_printed(cli: Run):
    assert cli("--version").output.startswith("owlclaw 0.")


def test_the_command_line_starts_without_anything_heavy():
    heavy = {"ray", "httpx", "pydantic", "fastapi", "litellm", "lancedb", "sqlalchemy"}
    code = f"import sys, serve.cli; serve.cli.entry.build_cli(); print(*({heavy!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == ""
