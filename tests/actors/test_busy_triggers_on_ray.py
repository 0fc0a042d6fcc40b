"""Triggers that meet a busy agent, on real Ray and over HTTP."""

from __future__ import annotations

import pytest

from owlclaw_ray.errors import AgentBusyError
from tests.actors.conftest import calls

pytestmark = pytest.mark.ray


def test_a_busy_agent_refuses_merges_and_is_interrupted(trial):
    agent = trial.define("busy", calls(("trial.patient", {})), {"text": "{{ trigger.payload }}"})
    begun = trial.client.submit(agent, "begun")["run_id"]
    while not trial.effects(begun):
        trial.client.run(begun)

    with pytest.raises(AgentBusyError) as refused:
        trial.client.submit(agent, busy="reject")
    merged = [trial.client.submit(agent, number, busy="coalesce") for number in range(3)]
    skipped = trial.client.submit(agent, busy="enqueue", priority=-1, deadline=0.001)
    urgent = trial.client.submit(agent, "urgent", busy="interrupt", priority=1)
    ended = list(trial.client.events(begun))
    (trial.folder / "gate").touch()
    for each in (merged[0], skipped, urgent):
        for _ in trial.client.events(each["run_id"]):
            pass
    runs = [trial.client.run(each) for each in (begun, urgent["run_id"], merged[0]["run_id"], skipped["run_id"])]
    (trial.folder / "gate").unlink()

    assert refused.value.run_id == urgent["interrupted"] == begun
    assert {each["run_id"] for each in merged} == {merged[0]["run_id"]}
    assert [run["status"] for run in runs] == ["cancelled", "completed", "completed", "skipped"]
    assert [run["result"]["final_text"] for run in runs] == ["", "urgent", "2", ""]
    assert [run["result"]["error"] and run["result"]["error"]["type"] for run in runs] == [
        "interrupted",
        None,
        None,
        "deadline_passed",
    ]
    assert ended[-1]["data"]["error"]["message"] == f"the trigger of run {urgent['run_id']} interrupted it"
    began = [run["started_at"] for run in runs]
    assert began == sorted(began)


def test_the_runtime_is_ready_while_the_store_takes_commits(trial):
    assert trial.client.health() == {
        "status": "ready",
        "ready": True,
        "parts": dict.fromkeys(["keeper", "directory", "gateway", "scheduler"], "ok"),
        "standby": False,
        "holder": "",
    }
