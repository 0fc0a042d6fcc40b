"""What a program that a tool starts can read of the runtime's processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc"),
]
SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"
SECRETS = {
    "OPENAI_API_KEY": "sk-owl-0123456789abcdef0123",
    "STRIPE_KEY": "stripe-owl-24601",
    "GITHUB_PAT": "pat-owl-24602",
    "TRIAL_SETTING": "owl-setting-24603",
    "HOOK": "owl-hook-24604",
}
HANDLER = """
import os


@app.handler("look", permission="readonly")
def look() -> str:
    return os.environ["TRIAL_SETTING"]
"""
PROBE = "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n' | grep owl- | sort -u; echo looked"


def test_a_command_reads_no_key_from_the_environment_of_any_process(installation, monkeypatch):
    path = installation.folder / "owlclaw.yaml"
    server = {"command": sys.executable, "args": ["-I", "-S", str(SERVER)], "annotations": "trust"}
    settings = yaml.safe_load(path.read_text()) | {
        "mcp": {"servers": {"shelf": server}},
        "tools": {
            "code": {"enabled": True, "project": str(installation.folder), "write_roots": [str(installation.folder)]}
        },
        "webhooks": {"sources": {"bank": {"agent": "clerk", "secret": "${HOOK}"}}},
    }
    path.write_text(yaml.safe_dump(settings))
    with (installation.folder / "trial_app.py").open("a") as app:
        app.write(HANDLER)
    command = {"name": "code.run_command", "arguments": {"argv": ["sh", "-c", PROBE], "cwd": "."}}
    turns = [{"tool_calls": [{"name": "mcp.shelf.grow"}, {"name": "trial.look"}]}, {"tool_calls": [command]}]
    installation.define("clerk", {"turns": [*turns, {"text": "done"}]})
    agent = installation.folder / "agents/clerk/agent.yaml"
    agent.write_text(
        "model: scripted:script.yaml\n"
        "permissions: {allow: ['mcp.shelf.*', code.run_command, trial.look]}\n"
        "tools: {allow: ['*']}\n"
    )
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)

    installation.up()
    with installation.client() as client:
        run = client.run(client.submit("clerk", wait=60)["run_id"], events=True)

    finished = [event["data"] for event in run["events"] if event["kind"] == "tool_finished"]
    assert [each.get("error") for each in finished] == [None] * 3, finished
    assert SECRETS["TRIAL_SETTING"] in str(finished[1]["content"]), "handlers have the whole environment"
    assert finished[2]["content"]["stdout"] == "looked\n"
    assert installation.interrupt() == 0
