"""The runtime as an application of Ray Serve: built from a configuration file, served by Serve's own proxy, drained when it is deleted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from actors import cluster
from owlclaw_ray.errors import ConfigurationError, Problem, RuntimeUnavailableError
from serve import declarative
from serve.declarative import application
from serve.loopback import free_ports
from tests.docs.snippets import ROOT
from tests.e2e.conftest import _environment

CONFIG = ROOT / "deploy" / "serve" / "config.yaml"
_SCENARIO = """
import json, os, sys, time
from actors.environment import ray_environment
os.environ.update(ray_environment(1, alone=True))
import ray
from ray import serve as ray_serve
from actors.plan import ToolSlots
from actors.remote import named
from actors.tool_task import slot_resources
from owlclaw_ray.client import SyncClient
from serve.declarative import application

config, store, port, scratch = sys.argv[1:]
args = {"config": config, "variables": {"OWLCLAW_STORE_URL": store, "OWLCLAW_SHUTDOWN__GRACE_SECONDS": 4}}
ray.init(
    address="local", num_cpus=2, resources=slot_resources(ToolSlots(2)), include_dashboard=False, log_to_driver=False, _temp_dir=scratch
)
http = {"host": "127.0.0.1", "port": int(port), "location": "HeadOnly"}
ray_serve.start(http_options=http, logging_config={"log_level": "WARNING", "enable_access_log": False})
client = SyncClient("http://127.0.0.1:" + port, timeout=60, attempts=10)

def only(word, namespace):
    [name] = [name for name in named(namespace)[0] if word in name]
    return ray.get_actor(name, namespace=namespace)

def keeper():
    return only("keeper", "owlclaw")._actor_id.hex()

def over(run_id):
    while (run := client.run(run_id, events=True))["status"] not in ("completed", "failed", "cancelled"):
        time.sleep(0.1)
    return {"status": run["status"], "resumed": sum(event["kind"] == "run_resumed" for event in run["events"])}

def until_started(run_id):
    while not any(event["kind"] == "run_started" for event in client.run(run_id, events=True)["events"]):
        time.sleep(0.05)

told = {}
ray_serve.run(application(args), name="owlclaw", route_prefix="/")
told["quick"] = over(client.submit("quick")["run_id"])

before = keeper()
killed = {name for name in named("serve")[0] if "steward" in name}
ray.kill(only("steward", "serve"))
while not any("steward" in name for name in named("serve")[0] - killed):
    time.sleep(0.1)
while ray_serve.status().applications["owlclaw"].status != "RUNNING":
    time.sleep(0.1)
told["taken over"] = keeper() == before

brief, patient = client.submit("brief")["run_id"], client.submit("patient")["run_id"]
until_started(brief)
until_started(patient)
ray_serve.delete("owlclaw")
told["left"] = sorted(named("owlclaw")[0])
print(json.dumps(told), flush=True)
input()
ray_serve.run(application(args), name="owlclaw", route_prefix="/")
print(json.dumps({"brief": over(brief), "patient": over(patient)}), flush=True)
ray_serve.shutdown()
client.close()
ray.shutdown()
os._exit(0)  # Ray's exit handlers may wait for processes that have ended
"""


def define(folder: Path, name: str, *turns: dict[str, object]) -> None:
    agent = folder / "agents" / name
    agent.mkdir(parents=True)
    (agent / "SOUL.md").write_text("You are calm.")
    (agent / "IDENTITY.md").write_text("# Trial\n\n## My Capabilities\n- look\n")
    (agent / "script.yaml").write_text(yaml.safe_dump({"rules": [{"turns": list(turns)}]}))
    (agent / "agent.yaml").write_text("model: scripted:script.yaml\n")


async def lease(url: str) -> tuple[str, int]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        row = (await connection.execute(text("SELECT cluster, generation FROM cluster_lease"))).one()
    await engine.dispose()
    return row.cluster, row.generation


def test_the_example_is_a_configuration_of_serve_with_arguments_that_the_entry_takes(tmp_path):
    deployed = ServeDeploySchema.model_validate(yaml.safe_load(CONFIG.read_text()))

    [written] = deployed.applications
    assert written.import_path == "serve.declarative:application"
    define(tmp_path, "quick", {"text": "done"})
    (tmp_path / "owlclaw.yaml").write_text("{}")
    built = application({**written.args, "config": str(tmp_path / "owlclaw.yaml")})
    [steward] = built._bound_deployment.init_args
    assert steward._bound_deployment.init_args[0].drain_seconds == 60


@pytest.mark.parametrize(("more", "fixed"), [({}, None), ({"replicas": 2}, 2)])
def test_the_api_has_a_replica_on_each_node_unless_their_number_is_written(tmp_path, more, fixed):
    define(tmp_path, "quick", {"text": "done"})
    (tmp_path / "owlclaw.yaml").write_text("{}")

    built = application(
        {"config": str(tmp_path / "owlclaw.yaml"), "variables": {"OWLCLAW_STORE_URL": "postgresql://h/d"}, **more}
    )

    deployment = built._bound_deployment
    assert (deployment._deployment_config.autoscaling_config is None) == (fixed is not None)
    assert deployment._replica_config.max_replicas_per_node == (1 if fixed is None else None)
    assert fixed in {None, deployment.num_replicas}


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        ({}, r"args\.config"),
        ({"config": "/nowhere/owlclaw.yaml"}, r"args\.config: /nowhere/owlclaw\.yaml is not there"),
        ({"config": "/nowhere"}, r"is no file named owlclaw\.yaml"),
        ({"config": "/nowhere/owlclaw.yaml", "replica": 2}, r"args\.replica"),
    ],
)
def test_arguments_that_are_wrong_are_named(args, wrong):
    with pytest.raises(ConfigurationError, match=wrong):
        application(args)


@pytest.mark.parametrize(
    ("address", "required"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("10.1.2.3", True), ("", True)],
)
def test_keys_are_required_unless_serve_is_known_to_listen_on_loopback_alone(tmp_path, monkeypatch, address, required):
    define(tmp_path, "quick", {"text": "done"})
    (tmp_path / "owlclaw.yaml").write_text("{}")
    asked = []
    monkeypatch.setattr(declarative, "_serves_at", lambda: address)
    monkeypatch.setattr(declarative, "ingress", lambda *_, **options: asked.append(options))

    application({"config": str(tmp_path / "owlclaw.yaml")})

    assert [each["keys_required"] for each in asked] == [required]


class Kept(dict):
    """Ray's internal KV; `made` notes, in order, what a runtime would be made of."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.made = []
        monkeypatch.setattr(cluster, "_internal_kv_get", lambda key, namespace: self.get(key))
        monkeypatch.setattr(cluster, "_internal_kv_put", lambda key, value, **_: self.update({key: value}))
        monkeypatch.setattr(cluster, "entrust", lambda _: None)
        monkeypatch.setattr(cluster, "make_root", lambda *_: self.made.append("root"))
        monkeypatch.setattr(cluster.Cluster, "_stop_previous", lambda _: self.made.append("stop"))
        for wait in ("wait_for_store", "wait_for_agents"):
            monkeypatch.setattr(cluster.Cluster, wait, lambda _: [])


class Undeleted(declarative.Steward):
    def __del__(self):
        """Do nothing: Steward's own is awaited by Serve."""


async def started(application):
    """Return the Steward of an application of which Serve has made no replica, once its start is over."""
    [bound] = application._bound_deployment.init_args
    steward = Undeleted(*bound._bound_deployment.init_args)
    await asyncio.wait([steward._starting])
    return steward


async def test_nothing_is_made_on_machines_that_lack_shared_files_and_what_runs_there_is_taken_over_unasked(
    tmp_path, monkeypatch
):
    define(tmp_path, "quick", {"text": "done"})
    (tmp_path / "owlclaw.yaml").write_text("{memory: {home: files}}")
    kept, asked = Kept(monkeypatch), []
    unshared = [Problem("data_dir", "/data is not the same folder on all nodes (b)", "share it")]
    answers = iter([RuntimeUnavailableError("a node did not say"), unshared, []])

    def check(files, nodes):
        asked.append((files.shared, nodes))
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(declarative, "check_files", check)
    monkeypatch.setattr(declarative, "living_nodes", lambda: ("a", "b"))
    monkeypatch.setattr(declarative, "check_nodes", lambda _: 2)
    monkeypatch.setattr(declarative, "_PAUSE", 0.0)
    monkeypatch.setattr(declarative.Steward, "_check_alone", lambda _: None)
    context = SimpleNamespace(app_name="owlclaw")
    monkeypatch.setattr(declarative.ray_serve, "get_replica_context", lambda: context)
    monkeypatch.setattr(declarative, "log_here", lambda _: None)
    args = {
        "config": str(tmp_path / "owlclaw.yaml"),
        "variables": {"OWLCLAW_STORE_URL": "postgresql://h/d", "OWLCLAW_DATA_DIR": str(tmp_path / "data")},
    }

    refused = await started(application(args))
    made = list(kept.made)
    first = await started(application(args))
    again = await started(application(args))

    with pytest.raises(ConfigurationError, match="is not the same folder on all nodes"):
        refused._starting.result()
    assert made == ["stop"]
    assert [each._starting.exception() for each in (first, again)] == [None, None]
    assert kept.made == ["stop", "stop", "root", "root"]
    assert asked == [(("memories",), ("a", "b"))] * 3


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.ray
@pytest.mark.postgres
def test_serve_runs_it_and_a_deletion_drains_it_so_that_the_next_start_goes_on_where_it_was(tmp_path, postgres_url):
    define(tmp_path, "quick", {"text": "done"})
    define(tmp_path, "brief", {"text": "done", "latency": 2.0})
    define(tmp_path, "patient", {"text": "done", "latency": 8.0})
    (tmp_path / "owlclaw.yaml").write_text(yaml.safe_dump({"actors": {"warm": 1}}))
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as scratch:
        process = subprocess.Popen(
            [sys.executable, "-c", _SCENARIO, str(tmp_path / "owlclaw.yaml"), postgres_url, str(port), scratch],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        told = next((line for line in process.stdout if line.startswith("{")), "")
        assert told, process.wait()
        first = json.loads(told)
        holder, generation = asyncio.run(lease(postgres_url))
        process.stdin.write("\n")
        process.stdin.flush()
        second = json.loads(next(line for line in process.stdout if line.startswith("{")))
        process.communicate()
    assert first == {"quick": {"status": "completed", "resumed": 0}, "taken over": True, "left": []}
    assert (holder, generation) == ("", 1)
    assert second["brief"] == {"status": "completed", "resumed": 0}
    assert second["patient"] == {"status": "completed", "resumed": 1}
    assert process.returncode == 0
