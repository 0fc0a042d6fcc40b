"""The whole path on real Ray and real Serve, over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import httpx
import psutil
import pytest

from actors.cluster import NAMESPACE
from actors.keeper_client import KeeperClient
from actors.remote import DIRECTORY, GATEWAY, KEEPER, SCHEDULER, NamedActor
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.heartbeat import Heartbeat
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runs.heartbeat import heartbeat_schedule_id
from owlclaw_ray.store.commands import CreateSchedule
from tests.actors.conftest import calls

pytestmark = pytest.mark.ray

DONE = {"text": "done"}


def wait_for(events, kind, **data):
    """Read events until one of that kind, with these data, came."""
    for event in events:
        if event["kind"] == kind and all(event["data"].get(key) == value for key, value in data.items()):
            return event
    raise AssertionError(f"the run ended without {kind} {data}")


def finish(trial, run_id):
    """Follow the run to its end and return it."""
    for _ in trial.client.events(run_id):
        pass
    return trial.client.run(run_id, events=True)


def test_a_trigger_over_http_runs_an_agent_to_its_outcome(trial):
    agent = trial.define(
        "whole",
        calls(("query_state", {"state_name": "machine"}), ("trial.look", {})),
        calls(("trial.act", {"what": "report"}), ("log_decision", {"reasoning": "because"})),
        DONE,
    )

    run = trial.client.submit(agent, {"price": 7}, wait=60)

    assert run["status"] == "completed"
    assert run["result"]["scripted"] is True
    assert sorted(run["result"]["tools_called"]) == ["log_decision", "query_state", "trial.act", "trial.look"]
    assert [effect[1] for effect in trial.effects(run["run_id"])] == ["look", "report"]


def test_a_tool_that_sleeps_for_ever_is_stopped_and_the_run_goes_on(trial):
    agent = trial.define("hanging", calls(("trial.hang", {})), {"text": "{{ last.content }}"})

    run = finish(trial, trial.client.submit(agent)["run_id"])

    finished = next(event for event in run["events"] if event["kind"] == "tool_finished")
    assert run["status"] == "completed"
    assert finished["data"]["error"]["type"] == "timeout"


def test_what_a_call_returned_earlier_in_the_run_is_read_again_from_its_journal(trial):
    decide = calls(("log_decision", {"reasoning": "because", "decision_type": "other"}))
    agent = trial.define("rereading", decide, calls(("internal.read_result", {})), {"text": "{{ last.content }}"})

    run = finish(trial, trial.client.submit(agent)["run_id"])

    assert run["status"] == "completed"
    assert '"tool":"log_decision"' in run["result"]["final_text"].replace(" ", "")


def test_cancelling_a_run_kills_its_tool(trial):
    agent = trial.define("cancelled", calls(("trial.patient", {})), DONE)
    run_id = trial.client.submit(agent)["run_id"]
    wait_for(trial.client.events(run_id), "tool_started")
    while not trial.effects(run_id):
        trial.client.run(run_id)
    worker = int(trial.effects(run_id)[0][-1])

    trial.client.cancel(run_id)
    run = finish(trial, run_id)

    assert run["status"] == "cancelled"
    psutil.wait_procs([psutil.Process(worker)] if psutil.pid_exists(worker) else [], timeout=10)
    assert not psutil.pid_exists(worker)


def test_killing_the_agents_process_in_the_middle_of_a_run_repeats_no_recorded_call(trial):
    agent = trial.define(
        "killed",
        calls(("trial.act", {"what": "first"})),
        {"tool_calls": [{"name": "trial.look", "arguments": {}}], "latency": 3},
        DONE,
    )
    run_id = trial.client.submit(agent)["run_id"]
    wait_for(trial.client.events(run_id), "tool_finished")

    trial.kill("AgentActor")
    run = finish(trial, run_id)

    assert run["status"] == "completed"
    assert [effect[1] for effect in trial.effects(run_id)] == ["first", "look"]
    assert "run_resumed" in [event["kind"] for event in run["events"]]


def test_an_agents_process_that_hangs_is_ended_and_its_run_goes_on_elsewhere(trial):
    agent = trial.define(
        "hung",
        calls(("trial.act", {"what": "first"})),
        {"tool_calls": [{"name": "trial.look", "arguments": {}}], "latency": 3},
        DONE,
    )
    run_id = trial.client.submit(agent)["run_id"]
    wait_for(trial.client.events(run_id), "tool_finished")
    stuck = trial.processes("AgentActor")

    for process in stuck:
        process.suspend()
    run = finish(trial, run_id)

    assert run["status"] == "completed"
    assert [effect[1] for effect in trial.effects(run_id)] == ["first", "look"]
    assert psutil.wait_procs(stuck, timeout=60)[1] == []


def test_a_keeper_that_hangs_is_replaced(trial):
    agent = trial.define("patient-writer", DONE)
    [stuck] = trial.processes("KeeperActor")

    stuck.suspend()
    run = trial.client.submit(agent, wait=90)

    assert run["status"] == "completed"
    assert psutil.wait_procs([stuck], timeout=60)[1] == []


def test_a_once_call_that_a_crash_interrupts_is_reported_as_uncertain_and_not_repeated(trial):
    agent = trial.define("uncertain", calls(("trial.patient", {})), {"text": "{{ last.is_error }}"})
    run_id = trial.client.submit(agent)["run_id"]
    wait_for(trial.client.events(run_id), "tool_started")
    while not trial.effects(run_id):
        trial.client.run(run_id)

    trial.kill("AgentActor")
    run = finish(trial, run_id)

    finished = next(event for event in run["events"] if event["kind"] == "tool_finished")
    assert run["status"] == "completed"
    assert finished["data"]["error"]["type"] == "uncertain"
    assert len(trial.effects(run_id)) == 1


@pytest.mark.parametrize("part", ["KeeperActor", "DirectoryActor", "ModelGatewayActor", "SchedulerActor", "RootActor"])
def test_killing_a_part_of_the_runtime_loses_no_run(trial, part):
    agent = trial.define(
        f"survives-{part.lower()}",
        {"tool_calls": [{"name": "trial.look", "arguments": {}}], "latency": 1},
        {"text": "done", "latency": 1},
    )
    accepted = [trial.client.submit(agent, number) for number in range(3)]

    trial.kill(part)
    accepted += [trial.client.submit(agent, number) for number in range(3, 5)]
    runs = [finish(trial, each["run_id"]) for each in accepted]

    assert {run["status"] for run in runs} == {"completed"}


def test_killing_tool_workers_repeats_only_calls_that_may_be_repeated(trial):
    agent = trial.define("worker", calls(("trial.patient", {})), {"text": "{{ last.is_error }}"})
    run_id = trial.client.submit(agent)["run_id"]
    while not trial.effects(run_id):
        trial.client.run(run_id)

    os.kill(int(trial.effects(run_id)[0][-1]), signal.SIGKILL)
    run = finish(trial, run_id)

    finished = next(event for event in run["events"] if event["kind"] == "tool_finished")
    assert finished["data"]["error"]["type"] == "uncertain"
    assert len(trial.effects(run_id)) == 1


def test_a_heartbeat_asks_the_sources_in_a_tool_worker_and_wakes_the_agent_for_what_is_new_alone(trial):
    agent = trial.define("beating", DONE, heartbeat={"every_seconds": 3_600})

    quiet = beat(trial, agent, 0)
    (trial.folder / f"stock-{agent}").write_text("tea is low")
    woken, again = beat(trial, agent, 1), beat(trial, agent, 2)

    assert [run["result"]["status"] for run in (quiet, woken, again)] == ["skipped", "completed", "skipped"]
    assert [run["result"]["error"]["type"] for run in (quiet, again)] == ["no_events", "unchanged"]
    assert (quiet["result"]["turns"], woken["result"]["turns"]) == (0, 1)


def beat(trial, agent, number):
    """Have a heartbeat of the agent fall due now, and return its run."""
    ref, heartbeat, now = AgentRef.parse(agent), Heartbeat(every_seconds=3_600), SystemClock().now()
    schedule = Schedule(
        heartbeat_schedule_id(ref, heartbeat, 100 + number),
        ref,
        ScheduleKind.HEARTBEAT,
        heartbeat.focus,
        now,
        now,
        interval_seconds=heartbeat.every_seconds,
    )
    asyncio.run(KeeperClient(NAMESPACE).apply([CreateSchedule(schedule, 1_000)]))
    found = []
    while not found:
        runs = trial.client.runs(agent=agent)["runs"]
        found = [run for run in runs if run["trigger"]["source"] == schedule.schedule_id]
    return finish(trial, found[0]["run_id"])


def test_a_body_that_is_too_large_gets_its_problem_through_the_proxy_too(trial):
    agent = trial.define("modest", DONE)

    response = httpx.post(f"{trial.url}/v1/agents/{agent}/triggers", content="x" * (1024 * 1024 + 1), timeout=30)

    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert "1048576" in response.text


def test_every_part_is_ready_and_everything_listens_on_loopback_only(trial):
    health = trial.client.health()

    exposed = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended meanwhile
            name, connections = process.name(), process.net_connections(kind="tcp")
            listening = [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]
            exposed += [(name, at) for at in listening if at.ip.removeprefix("::ffff:") != "127.0.0.1"]
    assert health["ready"], health
    assert exposed == []
    for name in (KEEPER, GATEWAY, SCHEDULER):
        assert NamedActor(name, trial.plan.namespace).call_now(lambda part: part.ready())
    assert NamedActor(DIRECTORY, trial.plan.namespace).call_now(lambda directory: directory.hosts())
