"""MCP servers in a real runtime: one process a node, whichever worker calls, and none without the pool."""

from __future__ import annotations

import time

import psutil
import pytest

from serve.processes import command_line, descendants
from tests.actors.conftest import calls
from tests.tools.mcp.conftest import PLAIN

pytestmark = pytest.mark.ray

DONE = {"text": "done"}
SERVER = PLAIN[-1]


def servers():
    """Return the processes of the trial's MCP server."""
    return [each for each in descendants() if SERVER in command_line(each)]


def finished(trial, agent):
    run = trial.client.run(trial.client.submit(agent, wait=60)["run_id"], events=True)
    return run, [each["data"] for each in run["events"] if each["kind"] == "tool_finished"]


def listed(trial):
    (view,) = trial.client.mcp_servers()
    return view


def test_all_agents_and_workers_share_one_server_process_of_the_node(trial):
    """tool-registry: MCP tools come from the servers of the configuration."""
    text = [calls(*[("mcp.plain.echo", {"text": f"{number}"}) for number in range(4)]), DONE]
    one, other = trial.define("asker", *text), trial.define("asker2", *text)

    for agent in (one, other):
        run, results = finished(trial, agent)
        assert run["status"] == "completed"
        assert sorted(result["content"] for result in results) == ["0", "1", "2", "3"]

    assert len(servers()) == 1
    assert (listed(trial)["state"], listed(trial)["starts"]) == ("up", 1)
    assert [each["tool"] for each in listed(trial)["left_out"]] == ["either"]


def test_a_cancelled_run_ends_its_call(trial):
    """tool-registry: aborting a tool ends it; no process goes on in the background."""
    agent = trial.define("hanger", calls(("mcp.plain.hang", {})), DONE, limits={"tool_timeout": 300})
    run_id = trial.client.submit(agent)["run_id"]
    while listed(trial)["running"] == 0:
        time.sleep(0.02)

    trial.client.cancel(run_id)
    while listed(trial)["running"] > 0:
        time.sleep(0.02)

    for _ in trial.client.events(run_id):
        pass
    assert trial.client.run(run_id)["status"] == "cancelled"
    (hung,) = servers()
    hung.kill()


def test_followers_hear_how_far_a_call_is_that_takes_long(trial):
    answered(trial, trial.define("first", calls(("mcp.plain.echo", {"text": "it is back"})), DONE))
    agent = trial.define("patient", calls(("mcp.plain.hang", {})), DONE, limits={"tool_timeout": 300})
    run_id = trial.client.submit(agent)["run_id"]

    call = first_with_progress(trial.client.events(run_id))

    assert call.pop("seconds") >= 3
    assert call.pop("call_id")
    assert call == {"tool": "mcp.plain.hang", "progress": 1, "total": 2, "message": "hanging"}
    trial.client.cancel(run_id)
    for _ in trial.client.events(run_id):
        pass
    (hung,) = servers()
    hung.kill()


def first_with_progress(events):
    """Return the first call that an entry names as running and says how far it is; time passes in other entries, too."""
    seen = []
    for event in events:
        seen.append(event)
        for call in event["data"].get("running", []):
            if "progress" in call:
                return call
    raise AssertionError(seen)


def test_a_server_that_is_killed_and_a_pool_that_is_killed_come_back(trial):
    echo = trial.define("survivor", calls(("mcp.plain.echo", {"text": "hello"})), DONE)
    _, (died,) = finished(trial, trial.define("breaker", calls(("mcp.plain.die", {})), DONE))
    assert died["error"]["type"] == "server_unavailable"
    assert died["error"]["retryable"] is True
    _, results = answered(trial, echo)
    assert results[0]["content"] == "hello"

    (server,) = servers()
    trial.kill("McpPoolActor")
    psutil.wait_procs([server], timeout=30)
    assert not server.is_running()
    _, results = answered(trial, echo)

    assert results[0]["content"] == "hello"
    assert len(servers()) == 1


def answered(trial, agent):
    """Run the agent until its server is there again."""
    while True:
        run, results = finished(trial, agent)
        if "error" not in results[0] or results[0]["error"]["type"] not in {"server_unavailable", "tool_not_available"}:
            return run, results
