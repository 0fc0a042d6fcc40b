"""Who gets a tool slot, and what becomes of one whose run is cancelled, on real Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psutil
import pytest
import ray

from actors.nodes import Node, check_nodes
from actors.remote import ROOT, find
from actors.runtime import ray_runtime
from actors.tool_task import slot_resources
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.tool import ToolClass
from owlclaw_ray.domain.trigger import Trigger, TriggerKind
from owlclaw_ray.errors import ConfigurationError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.telemetry.metrics.exposition import read
from serve.numbers import Numbers
from tests.actors.conftest import calls
from tests.actors.test_runs_on_ray import DONE, finish, wait_for
from tests.conftest import SLOTS

pytestmark = pytest.mark.ray


def hog(trial, name, gate, **options):
    """Define an agent that asks for six calls at once, which last until the gate opens."""
    return trial.define(name, calls(*[("trial.wait", {"gate": gate})] * 6), DONE, **options)


def wait_for_effects(trial, run_id, number):
    while len(trial.effects(run_id)) < number:
        trial.client.run(run_id)


@pytest.mark.parametrize("isolation", ["shared", "dedicated"])
def test_an_agent_with_many_slow_calls_leaves_slots_to_others(trial, isolation):
    gate = f"greedy-gate-{isolation}"
    greedy = trial.client.submit(hog(trial, f"greedy-{isolation}", gate, isolation=isolation))["run_id"]
    modest = trial.define(f"modest-{isolation}", calls(("trial.look", {})), DONE, isolation=isolation)
    wait_for_effects(trial, greedy, SLOTS.alone // 2)

    run = trial.client.submit(modest, wait=60)
    begun = len(trial.effects(greedy))
    [node] = trial.client.nodes()["nodes"]
    numbers = Numbers(read(trial.client.metrics()))
    trial.open_gate(gate)

    assert run["status"] == "completed"
    assert begun == SLOTS.alone // 2
    assert node["report"]["load"]["waiting_calls"] == dict.fromkeys(slot_resources(SLOTS), 0) | {
        "tool_slots": 6 - begun
    }
    assert numbers.by("owlclaw_node_waiting_calls", ("slots",))["tool_slots",] == 6 - begun
    assert finish(trial, greedy)["status"] == "completed"
    assert len(trial.effects(greedy)) == 6


def waiting_for_slots(trial):
    """Return how many calls of handlers wait at the node's root."""

    def ask(root):  # a local function: Ray sends it by value, and the root need not import the tests
        return root._desk.waiting(ToolClass.ALONE)

    return ray.get(find(ROOT, trial.plan.namespace).__ray_call__.remote(ask))


@pytest.fixture
def acme(trial) -> Iterator[TenantId]:
    """A second tenant. As long as parts know of one, they keep places for others than the default one: in the end they are made anew."""
    yield TenantId("acme")
    for part in ("RootActor", "DirectoryActor", "ModelGatewayActor"):
        trial.kill(part)
    assert (
        trial.client.submit(trial.define("after-acme", calls(("trial.look", {})), DONE), wait=90)["status"]
        == "completed"
    )


async def test_an_agent_of_another_tenant_is_next_although_those_of_other_actors_have_all_slots_and_wait_for_more(
    trial, acme
):
    def waiting(name, number):
        asked = calls(*[("trial.wait", {"gate": f"gate-{name}"})] * number)
        return trial.client.submit(trial.define(name, asked, DONE, isolation="dedicated"))["run_id"]

    try:
        holders = [waiting(name, SLOTS.alone // 2) for name in ("crowd-a", "crowd-b")]
        for run_id in holders:
            wait_for_effects(trial, run_id, SLOTS.alone // 2)
        flood = [waiting(name, 6) for name in ("crowd-c", "crowd-d")]
        while waiting_for_slots(trial) < 2 * 6:
            trial.client.run(flood[0])
        runtime = ray_runtime(trial.plan)
        trial.define("quiet", calls(("trial.look", {})), DONE, isolation="dedicated")
        quiet = await runtime.submit(AgentRef.parse("quiet", acme), Trigger(TriggerKind.API))
        while waiting_for_slots(trial) < 2 * 6 + 1:
            trial.client.run(flood[0])

        trial.open_gate("gate-crowd-a")
        async with asyncio.timeout(60):
            while not (run := await runtime.run(acme, quiet.run_id)).status.final:
                await asyncio.sleep(0)
    finally:
        for name in ("crowd-a", "crowd-b", "crowd-c", "crowd-d"):
            trial.open_gate(f"gate-{name}")

    assert run.status.value == "completed"
    assert len(trial.effects(quiet.run_id)) == 1
    assert {finish(trial, run_id)["status"] for run_id in (*holders, *flood)} == {"completed"}


def test_quick_calls_do_not_wait_for_slow_ones(trial):
    gate = "slow-gate"
    slow = [trial.client.submit(hog(trial, f"slow-{number}", gate))["run_id"] for number in range(2)]
    quick = trial.define("quick", calls(("log_decision", {"reasoning": "because"})), DONE)
    for run_id in slow:
        wait_for_effects(trial, run_id, SLOTS.alone // 2)

    run = trial.client.submit(quick, wait=60)
    held = sum(len(trial.effects(run_id)) for run_id in slow)
    trial.open_gate(gate)

    assert run["status"] == "completed"
    assert held == SLOTS.alone
    assert {finish(trial, run_id)["status"] for run_id in slow} == {"completed"}


PUMP = "The pump fails at nine."
KNOWS = {"text": "{{ result.recall.memories | map(attribute='content') | join('; ') }}"}


def preload_warnings(trial, run_id):
    return [each for each in trial.client.ledger(run=run_id) if each["data"].get("what") == "preloading memories"]


def test_memories_and_states_wait_for_no_handler(trial):
    gate = "crowded-gate"
    slow = [trial.client.submit(hog(trial, f"crowd-{number}", gate))["run_id"] for number in range(2)]
    for run_id in slow:
        wait_for_effects(trial, run_id, SLOTS.alone // 2)
    asked = calls(("remember", {"content": "The tap drips.", "tags": []}), ("query_state", {"state_name": "machine"}))
    agent = trial.define("mindful", asked, calls(("recall", {"query": "pump"})), KNOWS)

    trial.client.remember(agent, PUMP)
    run = trial.client.submit(agent, {"question": "when does the pump fail"}, wait=60)
    held = sum(len(trial.effects(run_id)) for run_id in slow)
    trial.open_gate(gate)

    assert run["status"] == "completed"
    assert PUMP in run["result"]["final_text"]
    assert preload_warnings(trial, run["run_id"]) == []
    assert held == SLOTS.alone
    assert {finish(trial, run_id)["status"] for run_id in slow} == {"completed"}


def test_memories_wait_for_no_state_provider(trial):
    ask = calls(("query_state", {"state_name": "slow"}))
    slow = [trial.client.submit(trial.define(f"asker-{number}", ask, DONE))["run_id"] for number in range(SLOTS.state)]
    while len(list(trial.folder.glob("asked-*"))) < SLOTS.state:
        trial.client.run(slow[0])
    agent = trial.define("unmoved", calls(("recall", {"query": "pump"})), KNOWS)

    trial.client.remember(agent, PUMP)
    run = trial.client.submit(agent, {"question": "when does the pump fail"}, wait=60)
    waiting = {trial.client.run(run_id)["status"] for run_id in slow}
    trial.open_gate("state-gate")

    assert (run["status"], run["result"]["final_text"], waiting) == ("completed", PUMP, {"running"})
    assert {finish(trial, run_id)["status"] for run_id in slow} == {"completed"}


def test_a_call_that_is_cancelled_while_it_waits_for_a_slot_never_runs(trial):
    gate = "full-gate"
    holders = [trial.client.submit(hog(trial, f"holder-{number}", gate))["run_id"] for number in range(2)]
    for run_id in holders:
        wait_for_effects(trial, run_id, SLOTS.alone // 2)
    late = trial.define("late", calls(("trial.act", {"what": "late"})), DONE)
    late_id = trial.client.submit(late)["run_id"]
    wait_for(trial.client.events(late_id), "tool_started")

    trial.client.cancel(late_id)
    cancelled = finish(trial, late_id)
    trial.open_gate(gate)
    others = [finish(trial, run_id)["status"] for run_id in holders]
    after = trial.define("after", calls(("trial.look", {})), DONE)

    assert trial.client.submit(after, wait=60)["status"] == "completed"
    assert (cancelled["status"], others) == ("cancelled", ["completed", "completed"])
    assert trial.effects(late_id) == []


def test_cancelling_a_run_kills_what_runs_and_forgets_what_waits(trial):
    run_id = trial.client.submit(hog(trial, "forgotten", "gate-that-stays-shut"))["run_id"]
    wait_for_effects(trial, run_id, SLOTS.alone // 2)
    workers = [int(effect[-1]) for effect in trial.effects(run_id)]

    trial.client.cancel(run_id)
    run = finish(trial, run_id)
    wait_for_ends(workers)
    after = trial.define("after-all", calls(("trial.look", {})), DONE)

    assert trial.client.submit(after, wait=60)["status"] == "completed"
    assert run["status"] == "cancelled"
    assert len(trial.effects(run_id)) == SLOTS.alone // 2


def test_a_tool_that_catches_every_interruption_is_killed_too(trial):
    agent = trial.define("stubborn", calls(("trial.stubborn", {})), DONE)
    run_id = trial.client.submit(agent)["run_id"]
    wait_for_effects(trial, run_id, 1)
    worker = int(trial.effects(run_id)[0][-1])

    trial.client.cancel(run_id)

    assert finish(trial, run_id)["status"] == "cancelled"
    wait_for_ends([worker])


def wait_for_ends(pids):
    """Return when these processes are gone; each would run for an hour, or for ever."""
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


def test_a_node_without_the_resources_of_tool_tasks_is_refused_with_the_command_that_gives_them(monkeypatch):
    nodes = [Node("1", "alpha", frozenset({"CPU", *slot_resources(SLOTS)}))]
    monkeypatch.setattr("actors.nodes.living_nodes", lambda: tuple(nodes))
    assert check_nodes("postgresql://") == 1

    nodes.append(Node("2", "beta", frozenset({"CPU", "tool_slots", "memory_slots"})))
    with pytest.raises(ConfigurationError) as caught:
        check_nodes("postgresql://")

    [problem] = caught.value.problems
    assert "beta does not offer quick_slots, state_slots" in problem.what
    offer = '{"tool_slots": 8, "quick_slots": 2, "memory_slots": 4, "state_slots": 4}'
    assert problem.fix.startswith(f"start it with: owlclaw node …, or ray start --resources='{offer}'")
