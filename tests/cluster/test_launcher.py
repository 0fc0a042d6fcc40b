"""Ray's cluster launcher with cluster.yaml, over SSH, on two machines that are namespaces: of the network, of processes, and of files."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.hosts import HEAD, PORT, SECONDS, WORKER, SshHost, launch_file, two_ssh_hosts

pytestmark = [pytest.mark.ray, pytest.mark.long]

CLUSTER_FILE = Path(__file__).parents[2] / "cluster.yaml"
SLOTS = {HEAD: 3, WORKER: 7}
ASK = f"import json, ray; ray.init(address='{HEAD}:{PORT}', log_to_driver=False); print(json.dumps(ray.nodes()))"


def settings(address: str) -> dict[str, str]:
    own = {"tools": {"slots": SLOTS[address]}, "ray": {"num_cpus": 1}}
    return {"owlclaw.yaml": yaml.safe_dump(own)}


@pytest.fixture
def hosts() -> Iterator[tuple[SshHost, SshHost]]:
    with two_ssh_hosts(settings(HEAD), settings(WORKER)) as made:
        yield made


@pytest.mark.timeout(600)
def test_ray_up_makes_a_cluster_with_the_slots_of_each_machine_and_ray_down_ends_it(hosts):
    head, worker = hosts
    file = launch_file(head, CLUSTER_FILE)
    ray = str(head.home / "venv/bin/ray")

    begun = head.run(ray, "up", "--yes", "--no-config-cache", str(file))
    assert begun.returncode == 0, begun.stdout + begun.stderr
    end, found = time.monotonic() + SECONDS, {}
    while found.keys() != SLOTS.keys() and time.monotonic() < end:
        asked = head.run(sys.executable, "-c", ASK)
        assert asked.returncode == 0, asked.stderr
        alive = [each for each in json.loads(asked.stdout) if each["Alive"]]
        found = {each["NodeManagerAddress"]: each["Resources"]["tool_slots"] for each in alive}
    assert found == SLOTS, begun.stdout + worker.log("sshd")
    assert [len(each.rays()) for each in hosts] == [1, 1]

    ended = head.run(ray, "down", "--yes", str(file))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    end = time.monotonic() + SECONDS
    while any(each.rays() for each in hosts) and time.monotonic() < end:
        time.sleep(0.5)
    assert [each.rays() for each in hosts] == [[], []]
