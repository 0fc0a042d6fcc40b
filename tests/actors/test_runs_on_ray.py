"""The whole path on real Ray and real Serve, over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import httpx
import psutil
import pytest

from actors.cluster import NAMESPACE
from actors.keeper_client import KeeperClient
from actors.remote import DIRECTORY, GATEWAY, KEEPER, SCHEDULER, NamedActor
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.heartbeat import Heartbeat
from owlclaw_ray.domain.schedule import Schedule, ScheduleKind
from owlclaw_ray.errors import IdempotencyConflictError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.runs.heartbeat import heartbeat_schedule_id
from owlclaw_ray.store.api import CreateSchedule
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


def test_fifty_triggers_at_once_for_one_agent_run_serially_and_in_order(trial):
    agent = trial.define("serial", calls(("log_decision", {"reasoning": "{{ trigger.payload }}"})), DONE)
    with ThreadPoolExecutor(10) as pool:
        accepted = list(pool.map(lambda number: trial.client.submit(agent, number), range(50)))

    runs = [finish(trial, each["run_id"]) for each in accepted]

    in_order = sorted(runs, key=lambda run: run["seq"])
    assert {run["status"] for run in runs} == {"completed"}
    assert all(a["finished_at"] <= b["started_at"] for a, b in pairwise(in_order))


def test_twenty_agents_run_at_once(trial):
    agent = trial.define("crowd", {"text": "done", "latency": 1.5}, isolation="shared")
    accepted = [trial.client.submit(f"{agent}:{number}") for number in range(20)]

    runs = [finish(trial, each["run_id"]) for each in accepted]

    starts, ends = [run["started_at"] for run in runs], [run["finished_at"] for run in runs]
    assert {run["status"] for run in runs} == {"completed"}
    assert max(starts) < min(ends)


def test_the_same_idempotency_key_twice_is_one_run(trial):
    agent = trial.define("idempotent", DONE)

    first = trial.client.submit(agent, 1, idempotency_key="the-same")
    again = trial.client.submit(agent, 1, idempotency_key="the-same")
    with pytest.raises(IdempotencyConflictError):
        trial.client.submit(agent, 2, idempotency_key="the-same")

    assert again["run_id"] == first["run_id"]


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


def test_a_handler_that_raises_is_information_for_the_model(trial):
    agent = trial.define("raising", calls(("trial.raises", {})), DONE)

    run = finish(trial, trial.client.submit(agent)["run_id"])

    finished = next(event for event in run["events"] if event["kind"] == "tool_finished")
    assert run["status"] == "completed"
    assert "the printer is on fire" in finished["data"]["error"]["message"]


@pytest.mark.parametrize("tool", ["trial.half", "trial.deep"])
def test_a_handler_whose_failure_is_hard_to_tell_is_a_failure_and_not_a_dead_worker(trial, tool):
    agent = trial.define(tool.replace(".", "-"), calls((tool, {})), DONE)

    run = finish(trial, trial.client.submit(agent)["run_id"])

    finished = next(event for event in run["events"] if event["kind"] == "tool_finished")
    assert run["status"] == "completed"
    assert finished["data"]["error"]["type"] == "execution_failed"


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


def test_a_schedule_fires_and_its_run_has_the_focus(trial):
    agent = trial.define("scheduling", calls(("schedule_once", {"delay_seconds": 1, "focus": "look again"})), DONE)
    trial.client.submit(agent, wait=30)
    [schedule] = trial.client.schedules(agent)

    scheduled = []
    while not scheduled:
        scheduled = [run for run in trial.client.runs(agent=agent)["runs"] if run["trigger"]["kind"] == "schedule_once"]
    run = finish(trial, scheduled[0]["run_id"])

    assert schedule["focus"] == "look again"
    assert run["trigger"]["focus"] == "look again"


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


def test_what_an_agent_remembers_it_recalls(trial):
    agent = trial.define(
        "remembering",
        calls(("remember", {"content": "磁盘在周五会满", "tags": ["disk"]})),
        calls(("recall", {"query": "磁盘什么时候满"})),
        {"text": "{{ result.recall.memories[0].content }}"},
    )

    run = trial.client.submit(agent, wait=60)

    assert run["result"]["final_text"] == "磁盘在周五会满"
    assert [memory["content"] for memory in trial.client.memories(agent)] == ["磁盘在周五会满"]


@pytest.mark.parametrize(
    ("request_line", "body", "status", "says"),
    [
        ("POST /v1/agents/nobody/triggers", "{}", 404, "nobody"),
        ("POST /v1/agents/broken/triggers", "{}", 409, "SOUL.md"),
        ("POST /v1/agents/whole/triggers", "{not json", 400, "JSON"),
        ("POST /v1/agents/whole/triggers", "x" * (1024 * 1024 + 1), 413, "1048576"),
        ("GET /v1/runs/run_none", None, 404, "run_none"),
    ],
)
def test_a_wrong_request_gets_a_problem_that_says_what_is_wrong(trial, request_line, body, status, says):
    trial.define("whole", DONE)
    (trial.folder / "agents" / "broken").mkdir(exist_ok=True)

    method, path = request_line.split()
    response = httpx.request(method, trial.url + path, content=body, timeout=30)

    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert says in response.text


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
    for name in (KEEPER, DIRECTORY, GATEWAY, SCHEDULER):
        assert NamedActor(name, trial.plan.namespace).ask_now("ready" if name != DIRECTORY else "hosts") is not None
