"""A Ray cluster of several nodes, with PostgreSQL, served by one `owlclaw up`; and one node killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from threading import Event

import httpx
import psutil
import pytest
import yaml
from ray._common.utils import get_ray_address_file, reset_ray_address
from ray.cluster_utils import Cluster

from actors.environment import node_environment
from actors.plan import ToolSlots
from actors.tool_task import slot_resources
from owlclaw_ray.client import SyncClient
from owlclaw_ray.ids import DEFAULT_TENANT
from owlclaw_ray.store.queries import LedgerBreaks
from owlclaw_ray.store.sql.factory import open_store
from serve.loopback import free_ports
from serve.processes import title_of
from tests.conftest import SCRATCH

pytestmark = [pytest.mark.ray, pytest.mark.postgres]

APP = """
from pathlib import Path

from owlclaw_ray import OwlClaw, ToolContext

app = OwlClaw("trial")


@app.handler("act")
def act(what: str, context: ToolContext) -> str:
    with (Path(__file__).parent / "effects").open("a") as log:
        log.write(f"{context.run_id} {context.call_id}\\n")
    return f"did {what}"
"""
SCRIPT = [
    {"tool_calls": [{"name": "trial.act", "arguments": {"what": "first"}}]},
    {"tool_calls": [{"name": "log_decision", "arguments": {"reasoning": "because"}}], "latency": 1.0},
    {"tool_calls": [{"name": "trial.act", "arguments": {"what": "second"}}]},
    {"text": "done"},
]


ABSENT = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"


def pause() -> None:
    """Leave the machine, which has three nodes to start, to them."""
    Event().wait(0.25)


@dataclass
class Fleet:
    """Nodes on this machine, a database, and a folder with an application."""

    cluster: Cluster
    folder: Path
    store_url: str
    port: int
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def command(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start an owlclaw command in the application's folder, attached to the cluster."""
        own = {"OWLCLAW_RAY__ADDRESS": self.cluster.address, "OWLCLAW_HTTP__PORT": str(self.port), **variables}
        process = subprocess.Popen(
            [sys.executable, "-m", "serve.cli", *arguments],
            cwd=self.folder,
            env=os.environ | own,  # noqa: TID251 - the cluster's variables are needed too
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def up(self) -> None:
        """Start the runtime and return when it is ready."""
        process = self.command("up", OWLCLAW_STORE_URL=self.store_url)
        said = []
        for line in process.stdout:
            said.append(line)
            if "ready in" in line:
                return
        raise AssertionError("".join(said))

    def asked_while_it_starts(self) -> set[int]:
        """Start the runtime as `up` does; return the statuses of what somebody was answered who asked all the time."""
        with ThreadPoolExecutor(1) as pool:
            starting, statuses = pool.submit(self.up), set()
            while not starting.done():
                with suppress(httpx.TransportError):
                    statuses.add(httpx.get(f"http://127.0.0.1:{self.port}/v1/runs", timeout=30).status_code)
                Event().wait(0.02)
            starting.result()
        return statuses

    def said(self, *arguments: str) -> str:
        """Run an owlclaw command to its end, which must be a good one, and return what it printed."""
        process = self.command(*arguments, RAY_ADDRESS=self.cluster.address)
        text, _ = process.communicate(timeout=150)
        self.started.remove(process)
        assert process.returncode == 0, text
        return text

    def down(self) -> None:
        """End whatever was started, as SIGTERM does."""
        for process in self.started:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=90)
        self.started.clear()

    def processes(self, title: str) -> list[psutil.Process]:
        """Return the Ray processes with that title on the cluster's nodes."""
        found = []
        for node in self.cluster.list_all_nodes():
            [raylet] = node.all_processes["raylet"]
            children = psutil.Process(raylet.process.pid).children(recursive=True)
            found += [each for each in children if title_of(each).startswith(f"ray::{title}")]
        return found


OFFERS = {"num_cpus": 1, "resources": slot_resources(ToolSlots(2)), "include_dashboard": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    Path(get_ray_address_file(None)).parent.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(ABSENT, node_environment(2, json_logs=False)[ABSENT])
        made = Cluster(initialize_head=True, head_node_args={"temp_dir": str(SCRATCH / "fleet"), **OFFERS})
        for _ in range(2):
            made.add_node(**OFFERS)
    yield made
    made.shutdown()
    reset_ray_address()


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, cluster: Cluster) -> Iterator[Fleet]:
    (tmp_path / "trial_app.py").write_text(APP)
    (tmp_path / "effects").touch()
    agent = tmp_path / "agents" / "crowd"
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You are calm.")
    (agent / "IDENTITY.md").write_text("# Trial\n\n## My Capabilities\n- act\n")
    (agent / "script.yaml").write_text(yaml.safe_dump({"rules": [{"turns": SCRIPT}]}))
    (agent / "agent.yaml").write_text(yaml.safe_dump({"model": "scripted:script.yaml", "isolation": "shared"}))
    placement = {"warm": 1, "max": 2, "agents_per_actor": 14}
    (tmp_path / "owlclaw.yaml").write_text(yaml.safe_dump({"app": "trial_app:app", "actors": placement}))
    [port] = free_ports(1)
    made = Fleet(cluster, tmp_path, postgres_url, port)
    yield made
    made.down()


MAKE_PARTS = """
import ray
from actors.remote import make

class Part:
    async def node(self):
        return ray.get_runtime_context().get_node_id()

ray.init(address="{address}", log_to_driver=False)
nodes = [each["NodeID"] for each in ray.nodes() if each["Alive"]] * 2
parts = [make(Part, node_id=node, movable=True) for node in nodes]
for wanted, node in zip(nodes, ray.get([each.node.remote() for each in parts])):
    print(wanted, node)
"""


@pytest.mark.timeout(400)
def test_a_part_that_may_move_begins_on_the_node_that_it_is_made_for(cluster):
    program = MAKE_PARTS.format(address=cluster.address)

    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=False)

    assert made.returncode == 0, made.stderr
    pairs = [line.split() for line in made.stdout.splitlines()]
    assert len(pairs) == 6
    assert all(where == wanted for wanted, where in pairs), pairs


@pytest.mark.long
def test_a_node_is_drained_in_the_middle_of_many_runs_which_go_on_elsewhere_once_and_repeat_nothing(fleet):
    fleet.up()
    with SyncClient(f"http://127.0.0.1:{fleet.port}", timeout=100) as client:

        def named(node):
            [found] = [each for each in client.nodes()["nodes"] if each["node_id"] == node["node_id"]]
            return found

        def at_work():
            return next((each for each in client.nodes()["nodes"] if not each["head"] and running(each)), None)

        accepted = submit(client, 80)
        while (node := at_work()) is None:
            pass
        said = fleet.said("drain", node["name"])
        drained = named(node)
        accepted += submit(client, 40)
        for each in accepted:
            for _ in client.events(each["run_id"]):
                pass
        runs = [client.run(each["run_id"], events=True) for each in accepted]
        still = named(node)
        taken_back = fleet.said("drain", node["name"], "--undo")
        while not (back := named(node))["report"]["load"]["hosts"]:
            pass
        here = fleet.said("drain", "--here"), fleet.said("drain", "--here", "--undo")
    fleet.down()

    assert said.endswith("drained\n")
    for each in (drained, still):
        assert (each["state"], each["report"]["load"]["agents"]) == ("draining", 0)
    assert "runs agents again" in taken_back
    assert back["state"] == "active"
    assert [text.splitlines()[-1] for text in here] == ["drained", "this machine runs agents again"]
    assert {run["status"] for run in runs} == {"completed"}
    kinds = [[event["kind"] for event in run["events"]] for run in runs]
    assert max(each.count("run_resumed") for each in kinds) == 1
    assert {each.count("model_replied") for each in kinds} == {len(SCRIPT)}
    assert not [event for run in runs for event in run["events"] if (event["data"].get("error") or {})]
    effects = (fleet.folder / "effects").read_text().splitlines()
    assert len(effects) == len(set(effects)) == 2 * len(runs)


def submit(client, number):
    """Trigger forty agents in turns, so many times, and return what was accepted."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda each: client.submit(f"crowd:{each % 40}"), range(number)))


def running(node):
    """Return how many agents are at work on a node, none if it does not answer."""
    return 0 if node["report"] is None else node["report"]["load"]["running"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_agents_move_to_a_node_that_joins_late_and_run_there_once(fleet):
    fleet.up()
    with SyncClient(f"http://127.0.0.1:{fleet.port}", timeout=100) as client:
        accepted = submit(client, 40)
        for each in accepted:
            for _ in client.events(each["run_id"]):
                pass
        late = fleet.cluster.add_node(**OFFERS)

        def found():
            return next((each for each in client.nodes()["nodes"] if each["node_id"] == late.node_id), None)

        while (node := found()) is None or not node["report"] or not node["report"]["load"]["hosts"]:
            pause()
        accepted += submit(client, 80)
        while not running(found()):
            pass
        for each in accepted:
            for _ in client.events(each["run_id"]):
                pass
        runs = [client.run(each["run_id"]) for each in accepted]
        joined = found()
    fleet.down()
    fleet.cluster.remove_node(late)

    assert joined["state"] == "active"
    assert joined["report"]["load"]["agents"] > 0
    assert {run["status"] for run in runs} == {"completed"}
    effects = (fleet.folder / "effects").read_text().splitlines()
    assert len(effects) == len(set(effects)) == 2 * len(runs)


@pytest.mark.timeout(600)
def test_a_node_is_killed_in_the_middle_of_many_runs_and_none_is_lost_or_repeated_and_all_ledgers_hold(fleet):
    answered = fleet.asked_while_it_starts()
    with SyncClient(f"http://127.0.0.1:{fleet.port}", timeout=100) as client:
        accepted = submit(client, 40)
        keepers = len(fleet.processes("KeeperActor"))
        while len(fleet.processes("ServeReplica:owlclaw:ingress")) < 3:
            pause()  # each node gets a replica of the API once it has a Keeper
        before = client.nodes()
        while not all(node["report"] and node["report"]["load"]["store_seconds"] for node in before["nodes"]):
            pause()  # the parts of the other nodes are still being made
            before = client.nodes()
        victim = next(iter(fleet.cluster.worker_nodes))
        accepted += submit(client, 80)
        while not any(running(node) for node in client.nodes()["nodes"] if node["node_id"] == victim.node_id):
            pass

        fleet.cluster.remove_node(victim, allow_graceful=False)

        for each in accepted:
            for _ in client.events(each["run_id"]):
                pass
        runs = [client.run(each["run_id"], events=True) for each in accepted]
        after, readiness = client.nodes(), client.health()
        told = [after]
        while "lost" not in {node["state"] for node in after["nodes"]}:
            pause()
            after = client.nodes()
            told.append(after)
        numbers = client.metrics()
        checked, _ = fleet.command("doctor", "--cluster").communicate(timeout=90)
    fleet.down()

    effects = (fleet.folder / "effects").read_text().splitlines()
    errors = [
        event["data"]["error"]
        for run in runs
        for event in run["events"]
        if event["kind"] == "tool_finished" and event["data"].get("error")
    ]
    assert answered == {200, 503}
    assert keepers == 3
    check_nodes(before["nodes"], after["nodes"])
    assert all([node["state"] for node in each["nodes"]].count("active") == 2 for each in told)
    assert before["lease"]["held"]
    assert readiness["standby"] is False
    assert numbers.count("owlclaw_node_up{") == 2
    assert "owlclaw_cluster_lease_held 1.0" in numbers
    assert "lease: this cluster" in checked
    assert "was lost" in checked
    [failed] = [line for line in checked.splitlines() if line.startswith("FAIL")]
    assert "no node asks for Ray's token" in failed
    assert {run["status"] for run in runs} == {"completed"}
    assert any(event["kind"] == "run_resumed" for run in runs for event in run["events"])
    assert len(effects) == len(set(effects))
    assert {error["type"] for error in errors} <= {"uncertain", "timeout"}, (
        errors
    )  # the latter on a machine that is busy
    assert len(effects) + len(errors) >= 2 * len(runs)
    by_agent = sorted(runs, key=lambda run: (run["agent"], run["started_at"]))
    for _, of_one in groupby(by_agent, key=lambda run: run["agent"]):
        assert all(a["finished_at"] <= b["started_at"] for a, b in pairwise(of_one))
    assert asyncio.run(problems_of_the_ledger(fleet.store_url)) == []


def check_nodes(before, after):
    """Three nodes have everything; of the one that was killed it is told that it was lost."""
    assert [node["state"] for node in before] == ["active"] * 3
    assert [node["head"] for node in before].count(True) == 1
    for node in before:
        assert {slots["name"]: slots["total"] for slots in node["slots"]} == slot_resources(ToolSlots(2))
        assert {"root", "keeper", "gateway"} <= {*node["parts"]}
        assert (node["report"]["load"]["store_problem"], node["report"]["load"]["store_seconds"] > 0) == ("", True)
        assert abs(node["clock"]["skew"]) <= node["clock"]["uncertainty"] + 0.01
        assert node["report"]["data_dir"]["total"] > 0
        assert node["report"]["ray_dir"]["total"] > 0
    assert len({node["report"]["application"] for node in before} - {""}) == 1
    assert len({node["report"]["folder_mark"] for node in before} - {""}) == 1
    assert sum(node["report"]["load"]["agents"] for node in before) > 0
    parts = [part for node in before for part in node["parts"]]
    assert (parts.count("directory"), parts.count("scheduler")) == (1, 1)
    [lost] = [node for node in after if node["state"] == "lost"]
    assert lost["node_id"] in {node["node_id"] for node in before}
    assert [node["state"] for node in after if node != lost] == ["active"] * 2


async def problems_of_the_ledger(store_url):
    store = await open_store(store_url, writer="reader")
    try:
        return await store.read(LedgerBreaks(DEFAULT_TENANT))
    finally:
        await store.close()


def test_sqlite_is_refused_on_more_than_one_node(fleet):
    process = fleet.command("up", OWLCLAW_STORE_URL="")

    said, _ = process.communicate(timeout=90)

    assert process.returncode == 1
    assert "store_url" in said
    assert "postgresql://" in said
