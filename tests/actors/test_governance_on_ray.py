"""Rules of what agents may do, on real Ray and real Serve."""

from __future__ import annotations

import pytest

from tests.actors.conftest import calls
from tests.actors.test_runs_on_ray import DONE, finish, wait_for

pytestmark = pytest.mark.ray


def test_a_budget_holds_when_the_agents_process_dies_between_reserving_and_settling(trial):
    agent = trial.define(
        "thrifty",
        calls(("trial.act", {"what": "once"})),
        {"text": "done", "latency": 3},
        governance={
            "budgets": [{"name": "calls", "unit": "calls", "limit": 3}],
            "hours": [{"tools": ["trial.look"], "from": "00:00", "to": "00:01", "days": ["mon"]}],
            "confirmed": ["trial.*"],
        },
    )
    run_id = trial.client.submit(agent)["run_id"]
    wait_for(trial.client.events(run_id), "tool_finished")

    trial.kill("AgentActor")
    first = finish(trial, run_id)
    second = trial.client.submit(agent, wait=60)

    assert (first["status"], first["result"]["turns"]) == ("completed", 2)
    assert (second["status"], second["result"]["turns"]) == ("terminated", 1)
    assert second["result"]["error"]["type"] == "budget_exhausted"
    assert "3 calls used; it is not renewed" in second["result"]["error"]["message"]
    prompt = next(event for event in trial.client.run(run_id, events=True)["events"] if event["kind"] == "prompt_built")
    records = trial.client.ledger(agent, run=run_id)
    [seen] = [each["data"] for each in records if each["kind"] == "visibility"]
    assert seen["tools"] == prompt["data"]["tools"]
    assert seen["visible"] == len(prompt["data"]["visible"])
    warnings = [
        each["data"]["percent"]
        for each in trial.client.ledger(agent)
        if each["kind"] == "warning" and "percent" in each["data"]
    ]
    assert warnings == [50, 80]


def test_a_capability_that_fails_again_and_again_is_hidden_from_the_next_run(trial):
    agent = trial.define(
        "breaking",
        calls(("trial.raises", {})),
        calls(("trial.raises", {})),
        DONE,
        governance={"breaker": {"failures": 2, "open_seconds": 600}},
    )

    first = trial.client.submit(agent, wait=60)
    second = trial.client.submit(agent, wait=60)

    def errors(run):
        events = trial.client.run(run["run_id"], events=True)["events"]
        return [event["data"]["error"]["type"] for event in events if event["kind"] == "tool_finished"]

    assert errors(first) == ["execution_failed"] * 2
    assert errors(second) == ["tool_not_available"] * 2
    records = trial.client.ledger(agent, run=second["run_id"])
    [seen] = [each["data"] for each in records if each["kind"] == "visibility"]
    assert [(each["by"], each["tools"]) for each in seen["hidden"]] == [("breaker", ["trial.raises"])]
