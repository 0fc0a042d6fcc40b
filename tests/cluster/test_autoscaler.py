"""Ray's own autoscaler, over SSH: it starts a machine when agents wait for places, and ends it when the runtime has stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from owlclaw_ray.testing.postgres import find_binaries
from tests.cluster.hosts import HEAD, PORT, WORKER, Runtime, SshHost, launch_file, two_ssh_hosts, until

pytestmark = [pytest.mark.ray, pytest.mark.postgres, pytest.mark.long]

CLUSTER_FILE = Path(__file__).parents[2] / "cluster.yaml"
APP = {
    "owlclaw.yaml": yaml.safe_dump(
        {
            "actors": {"max": 1, "max_nodes": 2, "heartbeat_seconds": 0.5, "idle_seconds": 1},
            "limits": {"model_timeout": 3_600, "run_timeout": 3_600},
            "memory": {"embedder": "none"},
            "ray": {"num_cpus": 1},
            "tools": {"slots": 2},
        }
    ),
    "agents/slow/SOUL.md": "You are calm.\n",
    "agents/slow/IDENTITY.md": "# Slow\n\n## My Capabilities\n- think for an hour\n",
    "agents/slow/script.yaml": yaml.safe_dump({"rules": [{"turns": [{"text": "done", "latency": 3_000.0}]}]}),
    "agents/slow/agent.yaml": yaml.safe_dump({"model": "scripted:script.yaml", "isolation": "dedicated"}),
    "agents/quick/SOUL.md": "You are calm.\n",
    "agents/quick/IDENTITY.md": "# Quick\n\n## My Capabilities\n- answer\n",
    "agents/quick/script.yaml": yaml.safe_dump({"rules": [{"turns": [{"text": "done"}]}]}),
    "agents/quick/agent.yaml": yaml.safe_dump({"model": "scripted:script.yaml", "isolation": "dedicated"}),
}


@pytest.fixture
def hosts() -> Iterator[tuple[SshHost, SshHost]]:
    if find_binaries() is None:
        pytest.skip("needs PostgreSQL's server binaries")
    with two_ssh_hosts(APP, APP) as made:
        yield made


@pytest.fixture
def runtime(hosts: tuple[SshHost, SshHost]) -> Runtime:
    """A runtime on a cluster of one machine, whose autoscaler may start another one."""
    head, _ = hosts
    file = launch_file(head, CLUSTER_FILE, min_workers=0, max_workers=1, idle_timeout_minutes=0.1)
    begun = head.run(str(head.home / "venv/bin/ray"), "up", "--yes", "--no-config-cache", str(file))
    assert begun.returncode == 0, begun.stdout + begun.stderr
    assert [len(each.rays()) for each in hosts] == [1, 0]
    own = {"OWLCLAW_STORE_URL": head.start_database(), "OWLCLAW_RAY__ADDRESS": f"{HEAD}:{PORT}"}
    head.start("up", "bash", "-c", "cd /srv/owlclaw && exec ~/venv/bin/owlclaw up", **own)
    until(lambda: "ready in" in head.log("up"), lambda: head.log("up"))
    return Runtime(head)


def logs(head: SshHost) -> str:
    """Return what the runtime said, and the ends of what the autoscaler and the Directory did."""
    ends = "tail -n 60 monitor.log; grep -h 'asked for\\|withdrew' worker-*.err | tail -n 20"
    return head.log("up") + head.run("bash", "-c", f"cd /tmp/ray/session_latest/logs && {{ {ends}; }}").stdout


@pytest.mark.timeout(1_200)
def test_ray_s_autoscaler_starts_a_machine_for_agents_that_wait_for_places_and_ends_it_behind_the_runtime(
    hosts, runtime
):
    head, worker = hosts

    runs = [runtime.trigger(f"slow:{name}") for name in "ab"]

    until(lambda: runtime.running() == {HEAD: 1, WORKER: 1}, lambda: f"{runtime.running()}\n{logs(head)}")
    assert len(worker.rays()) == 1

    for run in runs:
        runtime.ask("POST", f"/v1/runs/{run}/cancel")
    after = [runtime.trigger(f"quick:{name}") for name in "abc"]
    until(lambda: [runtime.status(each) for each in (*runs, *after)] == ["cancelled"] * 2 + ["completed"] * 3)

    down = head.run("bash", "-c", "cd /srv/owlclaw && ~/venv/bin/owlclaw down")
    assert down.returncode == 0, down.stdout + down.stderr
    until(lambda: not worker.rays(), lambda: logs(head))
    assert len(head.rays()) == 1
