from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
import yaml

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"
SECRET = "swordfish-4711"


@pytest.fixture
def started(installation):
    """A folder whose MCP server has a secret, and notes every start of itself."""
    path, log = installation.folder / "owlclaw.yaml", installation.folder / "starts"
    server = {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVER), str(log)],
        "env": {"KEY": "${SHELF_TOKEN}"},
        "annotations": "trust",
    }
    settings = yaml.safe_load(path.read_text()) | {"mcp": {"servers": {"shelf": server}}}
    path.write_text(yaml.safe_dump(settings))
    turns = [{"tool_calls": [{"name": "mcp.shelf.secret"}, {"name": "mcp.shelf.grow"}]}, {"text": "done"}]
    installation.define("clerk", {"turns": turns})
    agent = installation.folder / "agents/clerk/agent.yaml"
    agent.write_text("model: scripted:script.yaml\npermissions: {allow: [mcp.shelf.*]}\n")
    return log


def test_a_server_gets_its_secret_and_nobody_else_sees_it_and_it_ends_though_everything_is_killed(
    installation, started, monkeypatch
):
    monkeypatch.setenv("SHELF_TOKEN", SECRET)
    installation.up()
    with installation.client() as client:
        run = client.run(client.submit("clerk", wait=60)["run_id"], events=True)
    shown = installation.owlclaw("mcp", "list")
    (pid,) = map(int, started.read_text().split())
    server = psutil.Process(pid)
    given = server.environ()
    data = installation.folder / ".owlclaw"
    written = [path for folder in (data, (data / "logs").resolve()) for path in folder.rglob("*") if path.is_file()]

    assert run["status"] == "completed"
    finished = [event["data"] for event in run["events"] if event["kind"] == "tool_finished"]
    assert '"KEY": "[secret]"' in finished[0]["content"]
    assert "  mcp.shelf.secret\n" in shown
    assert given["KEY"] == SECRET
    assert "SHELF_TOKEN" not in given
    assert len(written) > 5
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    installation.kill_everything()
    assert not server.is_running()


def test_a_secret_that_is_not_set_stops_the_start_with_its_place(installation, started):
    with pytest.raises(
        AssertionError, match=r"owlclaw.yaml:\d+: mcp.servers.shelf.env.KEY: needs the variable SHELF_TOKEN"
    ):
        installation.up()
