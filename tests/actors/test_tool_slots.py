"""Who gets a tool slot, and what becomes of one whose run is cancelled, on real Ray."""

from __future__ import annotations

import psutil
import pytest

from actors.nodes import Node, check_nodes
from owlclaw_ray.errors import ConfigurationError
from tests.actors.conftest import calls
from tests.actors.test_runs_on_ray import DONE, finish, wait_for
from tests.conftest import TOOL_SLOTS

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
    wait_for_effects(trial, greedy, TOOL_SLOTS // 2)

    run = trial.client.submit(modest, wait=60)
    begun = len(trial.effects(greedy))
    trial.open_gate(gate)

    assert run["status"] == "completed"
    assert begun == TOOL_SLOTS // 2
    assert finish(trial, greedy)["status"] == "completed"
    assert len(trial.effects(greedy)) == 6


def test_quick_calls_do_not_wait_for_slow_ones(trial):
    gate = "slow-gate"
    slow = [trial.client.submit(hog(trial, f"slow-{number}", gate))["run_id"] for number in range(2)]
    quick = trial.define("quick", calls(("log_decision", {"reasoning": "because"})), DONE)
    for run_id in slow:
        wait_for_effects(trial, run_id, TOOL_SLOTS // 2)

    run = trial.client.submit(quick, wait=60)
    held = sum(len(trial.effects(run_id)) for run_id in slow)
    trial.open_gate(gate)

    assert run["status"] == "completed"
    assert held == TOOL_SLOTS
    assert {finish(trial, run_id)["status"] for run_id in slow} == {"completed"}


def test_a_call_that_is_cancelled_while_it_waits_for_a_slot_never_runs(trial):
    gate = "full-gate"
    holders = [trial.client.submit(hog(trial, f"holder-{number}", gate))["run_id"] for number in range(2)]
    for run_id in holders:
        wait_for_effects(trial, run_id, TOOL_SLOTS // 2)
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
    wait_for_effects(trial, run_id, TOOL_SLOTS // 2)
    workers = [int(effect[-1]) for effect in trial.effects(run_id)]

    trial.client.cancel(run_id)
    run = finish(trial, run_id)
    wait_for_ends(workers)
    after = trial.define("after-all", calls(("trial.look", {})), DONE)

    assert trial.client.submit(after, wait=60)["status"] == "completed"
    assert run["status"] == "cancelled"
    assert len(trial.effects(run_id)) == TOOL_SLOTS // 2


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
    nodes = [Node("1", "alpha", frozenset({"CPU", "tool_slots", "quick_slots"}))]
    monkeypatch.setattr("actors.nodes.living_nodes", lambda: tuple(nodes))
    assert check_nodes("postgresql://") == 1

    nodes.append(Node("2", "beta", frozenset({"CPU", "tool_slots"})))
    with pytest.raises(ConfigurationError) as caught:
        check_nodes("postgresql://")

    [problem] = caught.value.problems
    assert "beta does not offer quick_slots" in problem.what
    assert problem.fix.startswith("""start it with: ray start --resources='{"tool_slots": 8, "quick_slots": 2}'""")
