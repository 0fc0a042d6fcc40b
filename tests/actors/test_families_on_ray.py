"""Agents that start others, in processes that die."""

from __future__ import annotations

import pytest

from tests.actors.conftest import calls
from tests.actors.test_runs_on_ray import finish

pytestmark = pytest.mark.ray

DONE = {"text": "done"}


def dispatch(worker, gate):
    arguments = {
        "agent_definition_id": "family-clerk",
        "worker": worker,
        "assignment": gate,
        "allowed_tools": ["trial.*"],
    }
    return "agent.dispatch_worker", arguments


def children_of(trial, run_id):
    found = [trial.client.runs(agent=f"family-clerk:{agent}") for agent in ("lead.a", "lead.b", "lead.c")]
    return [run for page in found for run in page["runs"] if run["trigger"]["source"] == run_id]


def test_killing_every_agents_process_while_a_run_waits_for_others_starts_none_of_them_twice(trial):
    """A parent dispatches three workers at once; kill -9 in mid-wait; each assignment is one run, and the parent ends."""
    trial.define(
        "family-clerk",
        calls(("trial.wait", {"gate": "family-gate"})),
        calls(("trial.act", {"what": "filed"})),
        {"text": "{{ last.content }}"},
    )
    lead = trial.define("lead", calls(*(dispatch(worker, "go") for worker in "abc")), {"text": "all done"})
    run_id = trial.client.submit(lead)["run_id"]
    while len(children_of(trial, run_id)) < 3:
        trial.client.run(run_id)
    children = [run["run_id"] for run in children_of(trial, run_id)]
    while not all(map(trial.effects, children)) or trial.client.run(run_id)["status"] != "waiting":
        trial.client.run(run_id)

    trial.kill("AgentActor")
    trial.open_gate("family-gate")
    run = finish(trial, run_id)

    assert run["status"] == "completed"
    assert run["result"]["turns"] == 2
    answers = [event["data"]["content"] for event in run["events"] if event["kind"] == "tool_finished"]
    assert {each["run_id"] for each in answers} == set(children)
    assert {each["answer"] for each in answers} == {"did filed"}
    assert sorted(each["run_id"] for each in children_of(trial, run_id)) == sorted(children)
    acted = [[effect for effect in trial.effects(child) if effect[1] == "filed"] for child in children]
    assert [len(each) for each in acted] == [1, 1, 1]


def test_cancelling_a_run_ends_those_that_it_started(trial):
    trial.define("family-clerk", calls(("trial.wait", {"gate": "never"})), DONE)
    lead = trial.define("lead", calls(dispatch("a", "go"), dispatch("b", "go")), DONE)
    run_id = trial.client.submit(lead)["run_id"]
    while len(children_of(trial, run_id)) < 2 or trial.client.run(run_id)["status"] != "waiting":
        trial.client.run(run_id)

    trial.client.cancel(run_id)
    run = finish(trial, run_id)
    children = [finish(trial, each["run_id"]) for each in children_of(trial, run_id)]

    assert run["status"] == "cancelled"
    assert [each["status"] for each in children] == ["cancelled", "cancelled"]
