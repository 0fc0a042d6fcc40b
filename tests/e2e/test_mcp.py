"""An MCP server with a secret, and what it and a program that a tool starts can read of the runtime's processes."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
import yaml

from tests.e2e.conftest import Installation

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"
SECRET = "swordfish-4711"
SECRETS = {
    "OPENAI_API_KEY": "sk-owl-0123456789abcdef0123",
    "STRIPE_KEY": "stripe-owl-24601",
    "GITHUB_PAT": "pat-owl-24602",
    "TRIAL_SETTING": "owl-setting-24603",
    "HOOK": "owl-hook-24604",
    "SHELF_TOKEN": SECRET,
}
HANDLER = """
import os


@app.handler("look", permission="readonly")
def look() -> str:
    return os.environ["TRIAL_SETTING"]
"""
PROBE = "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n' | grep owl- | sort -u; echo looked"


def with_server(installation: Installation) -> Path:
    """Give the folder an MCP server that has a secret and notes every start of itself; return where it notes them."""
    path, log = installation.folder / "owlclaw.yaml", installation.folder / "starts"
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVER), str(log)],
        "env": {"KEY": "${SHELF_TOKEN}"},
        "annotations": "trust",
    }
    folder = str(installation.folder)
    settings = yaml.safe_load(path.read_text()) | {
        "mcp": {"servers": {"shelf": server}},
        "tools": {"code": {"enabled": True, "project": folder, "write_roots": [folder]}},
        "webhooks": {"sources": {"bank": {"agent": "clerk", "secret": "${HOOK}"}}},
    }
    path.write_text(yaml.safe_dump(settings))
    return log


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The runtime, and where its server notes its starts."""
    installation = Installation(tmp_path_factory.mktemp("shelf"))
    log = with_server(installation)
    with (installation.folder / "trial_app.py").open("a") as app:
        app.write(HANDLER)
    command = {"name": "code.run_command", "arguments": {"argv": ["sh", "-c", PROBE], "cwd": "."}}
    probing = [{"tool_calls": [{"name": "mcp.shelf.grow"}, {"name": "trial.look"}]}, {"tool_calls": [command]}]
    asking = [{"tool_calls": [{"name": "mcp.shelf.secret"}, {"name": "mcp.shelf.grow"}]}]
    for name, turns in (("prober", probing), ("clerk", asking)):
        installation.define(name, {"turns": [*turns, {"text": "done"}]})
        (installation.folder / "agents" / name / "agent.yaml").write_text(
            "model: scripted:script.yaml\n"
            "permissions: {allow: ['mcp.shelf.*', code.run_command, trial.look]}\n"
            "tools: {allow: ['*']}\n"
        )
    with pytest.MonkeyPatch.context() as environment:
        for name, value in SECRETS.items():
            environment.setenv(name, value)
        installation.up()
        yield installation, log
        if installation.process.poll() is None:
            installation.interrupt()


def finished_calls(installation, agent):
    with installation.client() as client:
        run = client.run(client.submit(agent, wait=60)["run_id"], events=True)
    assert run["status"] == "completed"
    return [event["data"] for event in run["events"] if event["kind"] == "tool_finished"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_a_command_reads_no_key_from_the_environment_of_any_process(running):
    installation, _ = running

    finished = finished_calls(installation, "prober")

    assert [each.get("error") for each in finished] == [None] * 3, finished
    assert SECRETS["TRIAL_SETTING"] in str(finished[1]["content"]), "handlers have the whole environment"
    assert finished[2]["content"]["stdout"] == "looked\n"


def test_a_server_gets_its_secret_and_nobody_else_sees_it_and_it_ends_though_everything_is_killed(running):
    installation, log = running

    finished = finished_calls(installation, "clerk")
    shown = installation.owlclaw("mcp", "list")
    (pid,) = map(int, log.read_text().split())
    server = psutil.Process(pid)
    given = server.environ()
    data = installation.folder / ".owlclaw"
    written = [path for folder in (data, (data / "logs").resolve()) for path in folder.rglob("*") if path.is_file()]

    assert '"KEY": "[secret]"' in finished[0]["content"]
    assert "  mcp.shelf.secret\n" in shown
    assert given["KEY"] == SECRET
    assert "SHELF_TOKEN" not in given
    assert len(written) > 5
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    installation.kill_everything()
    assert not server.is_running()


def test_a_secret_that_is_not_set_stops_the_start_with_its_place(installation, monkeypatch):
    with_server(installation)
    installation.define("clerk", {"turns": [{"text": "done"}]})
    monkeypatch.setenv("HOOK", SECRETS["HOOK"])
    monkeypatch.delenv("SHELF_TOKEN", raising=False)

    with pytest.raises(
        AssertionError, match=r"owlclaw.yaml:\d+: mcp.servers.shelf.env.KEY: needs the variable SHELF_TOKEN"
    ):
        installation.up()
