"""Two clusters with one PostgreSQL database, each an `owlclaw up` of its own: one runs the agents, the other stands by and takes over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from serve.processes import descendants, title_of
from tests.e2e.conftest import Installation

pytestmark = [pytest.mark.ray, pytest.mark.postgres]

SLOW = [
    {"text": "thinking", "tool_calls": [{"name": "log_decision", "arguments": {"reasoning": "so"}}], "latency": 3.0}
]
RULES = {"turns": [*(SLOW * 3), {"text": "done"}]}
MUCH_LONGER_THAN_A_LEASE_LASTS = {"turns": [{"text": "done", "latency": 40.0}]}
GRACE = 60


@pytest.fixture
def clusters(postgres_url: str, tmp_path: Path) -> Iterator[list[Installation]]:
    made = []
    for name in ("east", "west"):
        (tmp_path / name).mkdir()
        installation = Installation(tmp_path / name)
        installation.define("slow", RULES)
        installation.define("slower", MUCH_LONGER_THAN_A_LEASE_LASTS)
        settings = yaml.safe_load((installation.folder / "owlclaw.yaml").read_text())
        settings |= {"store_url": postgres_url, "shutdown": {"grace_seconds": GRACE}}
        (installation.folder / "owlclaw.yaml").write_text(yaml.safe_dump(settings))
        made.append(installation)
    yield made
    for installation in made:
        if installation.process is not None and installation.process.poll() is None:
            installation.interrupt()


def kill(installation: Installation) -> None:
    """Kill the whole cluster at once, as a loss of power does."""
    family = [installation.process, *descendants(installation.process.pid)]
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs([each for each in family if isinstance(each, psutil.Process)], timeout=30)
    installation.process.communicate()


def runs_of(installation: Installation, ids: list[str]) -> list[dict]:
    with installation.client() as client:
        return [client.run(run_id, events=True) for run_id in ids]


def wait_until_over(installation: Installation, ids: list[str]) -> list[dict]:
    while True:
        runs = runs_of(installation, ids)
        if all(run["status"] not in {"queued", "running", "waiting"} for run in runs):
            return runs
        time.sleep(0.2)


def hosts_of(installation: Installation) -> int:
    """Return how many hosts a cluster has, also on standby."""
    return sum(title_of(each).startswith("ray::AgentActor") for each in installation.family())


def model_calls_of(installation: Installation) -> int:
    """Return how many model calls the cluster has under way."""
    with installation.client() as client:
        samples = [line for line in client.metrics().splitlines() if line.startswith("owlclaw_provider_calls{")]
    return sum(int(float(line.split()[-1])) for line in samples if 'state="running"' in line)


def kinds(run: dict, kind: str) -> int:
    return sum(event["kind"] == kind for event in run["events"])


def test_one_cluster_runs_the_agents_and_the_other_accepts_stands_by_and_takes_over(clusters):
    east, west = clusters
    east.up()
    west.up()
    with west.client() as client:
        accepted = [client.submit(f"slow:{number}")["run_id"] for number in range(4)]
        assert client.health()["ready"]

    ended = wait_until_over(west, accepted)

    assert {run["status"] for run in ended} == {"completed"}
    assert not any(kinds(run, "run_resumed") for run in ended)

    with east.client() as client:
        under_way = [client.submit(f"slow:{number}")["run_id"] for number in range(4)]
    while not all(kinds(run, "run_started") for run in runs_of(west, under_way)):
        time.sleep(0.1)
    while not hosts_of(west):
        time.sleep(0.1)
    kill(east)

    ended = wait_until_over(west, under_way)

    assert {run["status"] for run in ended} == {"completed"}
    assert {kinds(run, "run_resumed") for run in ended} <= {0, 1}
    assert any(kinds(run, "run_resumed") for run in ended)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_that_is_stopped_keeps_the_model_calls_under_way_and_the_other_runs_everything_else_meanwhile(clusters):
    east, west = clusters
    east.up()
    west.up()
    with west.client() as client:
        under_way = [client.submit(f"slower:{number}")["run_id"] for number in range(4)]
    while model_calls_of(east) < len(under_way) or not hosts_of(west):
        time.sleep(0.1)
    with west.client() as client:
        behind = client.submit("slower:0")["run_id"]

    os.killpg(east.process.pid, signal.SIGINT)
    with west.client() as client:
        after = client.submit("slow:after")["run_id"]
    east.process.communicate(timeout=2 * GRACE)
    assert east.process.returncode == 0
    *ended, meanwhile = wait_until_over(west, [*under_way, behind, after])
    assert {run["status"] for run in (*ended, meanwhile)} == {"completed"}
    assert [kinds(run, "run_resumed") for run in ended] == [0] * len(ended)
    assert [kinds(run, "model_replied") for run in ended] == [1] * len(ended)
    assert meanwhile["started_at"] < min(run["finished_at"] for run in ended)
