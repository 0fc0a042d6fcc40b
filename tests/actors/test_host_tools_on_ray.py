"""Code tools in real tool workers."""

from __future__ import annotations

import time

import httpx
import psutil
import pytest

from tests.actors.conftest import calls

pytestmark = pytest.mark.ray

DONE = {"text": "done"}
FREELY = {"allow": ["code.*", "tag:dangerous"]}


def test_files_are_written_and_read_and_large_output_is_an_artifact(trial):
    agent = trial.define(
        "coder",
        calls(("code.write_file", {"path": "notes.txt", "content": "one\n"})),
        calls(("code.run_command", {"argv": ["sh", "-c", "cat notes.txt; yes | head -c 30000"]})),
        calls(("code.read_file", {"path": "notes.txt"}), ("code.read_file", {"path": "../data/owlclaw.db"})),
        DONE,
        permissions=FREELY,
    )

    run = trial.client.run(trial.client.submit(agent, wait=60)["run_id"], events=True)

    _, command, *reads = [each["data"] for each in run["events"] if each["kind"] == "tool_finished"]
    read, denied = sorted(reads, key=lambda data: "error" in data)
    assert run["status"] == "completed"
    assert read["content"]["content"] == "one\n"
    assert denied["error"]["details"]["concerns"] == ["outside", "own_files"]
    artifact = f"{trial.url}/v1/agents/{agent}/artifacts/{command['content']['artifact_ref']['artifact_id']}"
    assert httpx.get(artifact).json()["stdout"] == "one\n" + "y\n" * 15_000
    assert httpx.get(artifact.replace(agent, f"{agent}:other")).status_code == 404


def test_cancelling_a_run_kills_its_command_and_what_that_started(trial):
    """tool-registry: aborting a tool ends it; no process goes on in the background."""
    script = "sleep 3600 & echo $$ $! > pids.new; mv pids.new pids; wait"
    agent = trial.define(
        "runaway", calls(("code.run_command", {"argv": ["sh", "-c", script]})), DONE, permissions=FREELY
    )
    run_id = trial.client.submit(agent)["run_id"]
    pids = trial.folder / "work" / "pids"
    while not pids.exists():
        time.sleep(0.02)
    processes = [psutil.Process(int(pid)) for pid in pids.read_text().split()]

    trial.client.cancel(run_id)
    _, alive = psutil.wait_procs(processes, timeout=10)

    assert alive == []
    for _ in trial.client.events(run_id):
        pass
    assert trial.client.run(run_id)["status"] == "cancelled"
    assert all(not psutil.pid_exists(process.pid) for process in processes)


def test_a_person_allows_one_command_and_denies_another(trial):
    """tool-registry: writes, dangerous and network tools and sensitive reads ask."""
    commands = (("code.run_command", {"argv": ["touch", name]}) for name in ("allowed", "denied"))
    agent = trial.define("asking", calls(next(commands)), calls(next(commands)), DONE)
    run_id = trial.client.submit(agent)["run_id"]

    for decision in ("allow_once", "deny"):
        while not (asked := trial.client.approvals()):
            time.sleep(0.02)
        [approval] = asked
        trial.client.decide(approval["approval_id"], decision, reason="it is so")
    for _ in trial.client.events(run_id):
        pass
    run = trial.client.run(run_id, events=True)

    work = trial.folder / "work"
    results = [each["data"] for each in run["events"] if each["kind"] == "tool_finished"]
    assert approval["cwd"] == str(work)
    assert approval["target"] == f"touch in {work}"
    assert [("error" in result) for result in results] == [False, True]
    assert ((work / "allowed").exists(), (work / "denied").exists()) == (True, False)
