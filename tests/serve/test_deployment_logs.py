"""Where the server process logs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from serve.loopback import free_ports

_A_REPLICA = """
import logging, os, sys
from actors.environment import ray_environment
os.environ.update(ray_environment(1, alone=True, json_logs=True))
import ray
from fastapi import FastAPI
from ray import serve as ray_serve
from actors.logs import LogPlan
from serve.deployment import log_here, serve_logging

def api():
    log_here(LogPlan("info", "json"))
    logging.getLogger("serve.error_boundary").info("from the server process")
    sys.stderr.write("printed by a library\\n")
    return FastAPI()

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[1])
http = {"host": "127.0.0.1", "port": int(sys.argv[2]), "location": "HeadOnly"}
ray_serve.start(http_options=http, logging_config=serve_logging("json"))
deployment = ray_serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0})(ray_serve.ingress(api)())
ray_serve.run(deployment.bind(), name="x", route_prefix="/")
ray_serve.shutdown()
ray.shutdown()
"""


@pytest.mark.ray
def test_what_the_server_process_logs_is_in_the_file_of_its_own_process():
    """Serve would have it go to a logger of its own, which drops it."""
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="owl-", dir="/tmp") as folder:
        command = [sys.executable, "-c", _A_REPLICA, folder, str(port)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert ended.returncode == 0, ended.stderr[-4_000:]
        logs = next(Path(folder).glob("session_2*")) / "logs"
        lines = [line for path in logs.glob("worker-*.*") for line in path.read_text().splitlines()]

    told = [json.loads(line) for line in lines if line.startswith("{")]
    assert {"from the server process", "printed by a library"} <= {each.get("event") for each in told}
