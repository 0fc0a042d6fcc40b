"""What Ray does not do for a runtime that nobody looks into."""

import os

import psutil
import pytest
from ray._private.state import state  # it has no public name

from actors.environment import ray_environment
from benchmarks.processes import ProcessTree
from tests.actors.conftest import calls
from tests.actors.test_runs_on_ray import DONE


def test_only_a_ray_of_our_own_is_told_to_collect_nothing():
    ours, attached = ray_environment(2, alone=True), ray_environment(2, alone=False)

    assert ours["RAY_task_events_report_interval_ms"] == "0"
    assert not [name for name in attached if "task_events" in name or "metrics" in name]


def test_the_number_of_idle_tool_workers_that_stay_is_the_settings():
    assert [ray_environment(warm, alone=True)["RAY_num_workers_soft_limit"] for warm in (0, 2)] == ["0", "2"]


@pytest.mark.ray
def test_rays_head_keeps_no_record_of_tasks_and_no_process_reads_logs_adds_machines_or_counts_usage(trial):
    agent = trial.define("unseen", calls(("trial.look", {})), DONE)

    run = trial.client.submit(agent, wait=60)
    processes = ProcessTree(psutil.Process(os.getpid())).number_by_name()

    assert run["status"] == "completed"
    assert state._connect_and_get_accessor().get_task_events() == []
    assert processes["gcs_server"] == 1
    assert not {"log_monitor.py", "monitor.py", "dashboard.py"} & processes.keys()
