"""The ingress of a cluster has a replica on each node, whose number changes; behind Serve's own proxy, and behind its HAProxy."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

import pytest

from actors.environment import HA_PROXY
from serve.loopback import free_ports
from tests.e2e.conftest import _environment

_SCENARIO = """
import json, os, sys, time, urllib.request
from actors.environment import node_environment, ray_environment
scratch, host, *ports = sys.argv[1:]
port, stats, metrics = map(int, ports)
paths = {"CONFIG_FILE_LOC": "haproxy.cfg", "SOCKET_PATH": "haproxy.sock", "SERVER_STATE_BASE": "", "SERVER_STATE_FILE": "state"}
os.environ.update(node_environment(1, json_logs=False) | ray_environment(1, alone=True))  # all nodes are on this machine
os.environ.update({f"RAY_SERVE_HAPROXY_{name}": os.path.join(scratch, path) for name, path in paths.items()})
os.environ.update(RAY_SERVE_HAPROXY_STATS_PORT=str(stats), RAY_SERVE_HAPROXY_METRICS_PORT=str(metrics))
for name in [each for each in os.environ if each.startswith(("RAY_AUTH", "RAY_health"))]:
    del os.environ[name]  # a busy machine is no dead one
import ray
from fastapi import FastAPI
from ray import serve as ray_serve
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from actors.remote import KEEPER, full_name, here
from serve.ingress_replicas import one_for_each_node

offers = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
cluster = Cluster(initialize_head=True, head_node_args={"temp_dir": scratch + "/ray", **offers})
ray.init(address=cluster.address, namespace="trial", log_to_driver=False)

class Keeper:
    def ready(self):
        return True

def keep(node_id):
    where = NodeAffinitySchedulingStrategy(node_id, soft=False)
    made = ray.remote(Keeper).options(name=full_name(KEEPER, node_id), num_cpus=0, scheduling_strategy=where).remote()
    ray.get(made.ready.remote())
    return made

def api():
    from actors.remote import here
    api, node = FastAPI(), here()

    @api.get("/")
    def where() -> str:
        return node

    return api

def ask():
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        return json.loads(answer.read())

def replicas():
    [deployment] = ray_serve.status().applications["owlclaw"].deployments.values()
    return deployment.replica_states.get("RUNNING", 0), deployment.status

def until(condition):
    while not condition():
        time.sleep(0.1)

told = {}
ray_serve.start(http_options={"host": host, "port": port, "location": "HeadOnly"}, logging_config={"enable_access_log": False})
keepers = [keep(here())]
deployment = ray_serve.deployment(
    name="ingress", ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1000, health_check_period_s=2.0, **one_for_each_node("trial")
)(ray_serve.ingress(api)())
ray_serve.run(deployment.bind(), name="owlclaw", route_prefix="/")
told["alone"] = len({ask() for _ in range(20)})
node = cluster.add_node(**offers)
until(lambda: sum(each["Alive"] for each in ray.nodes()) == 2)
told["before its keeper"] = replicas()[0]
[joined] = [each["NodeID"] for each in ray.nodes() if each["NodeID"] != here()]
keepers.append(keep(joined))
until(lambda: replicas() == (2, "HEALTHY"))
until(lambda: ask() == joined)
answers = [ask() for _ in range(60)]
told["both"] = {answers.count(here()) > 0, answers.count(joined) > 0, set(answers) == {here(), joined}} == {True}
cluster.remove_node(node, allow_graceful=False)
until(lambda: replicas()[0] == 1)
told["left"] = {ask() for _ in range(60)} == {here()}
until(lambda: replicas() == (1, "HEALTHY"))
print(json.dumps(told), flush=True)
ray_serve.shutdown()
ray.shutdown()
cluster.shutdown()
os._exit(0)  # Ray's exit handlers may wait for processes that have ended
"""


@pytest.mark.ray
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("host", "variables"), [("127.0.0.1", {}), pytest.param("0.0.0.0", HA_PROXY, id="haproxy", marks=pytest.mark.long)]
)
def test_a_node_that_joins_serves_requests_once_it_has_a_keeper_and_one_that_leaves_gets_none(host, variables):
    ports = map(str, free_ports(3))
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as scratch:
        ended = subprocess.run(
            [sys.executable, "-c", _SCENARIO, scratch, host, *ports],
            capture_output=True,
            text=True,
            env=_environment() | variables,
            check=False,
            timeout=280,
        )
    told = next((line for line in ended.stdout.splitlines() if line.startswith("{")), "")

    assert told, ended.stderr
    assert json.loads(told) == {"alone": 1, "before its keeper": 1, "both": True, "left": True}
