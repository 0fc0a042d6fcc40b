"""How long `owlclaw up` takes to accept triggers, against a bare ray.init and ray_serve.run of an empty ASGI application.

Both run in fresh processes, alternately, under the same environment. The ratio is what counts.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.processes import clean_environment, stop
from benchmarks.question import Answer, Figure, Say, Size
from benchmarks.system import STOP_SECONDS, running_system

TITLE = "Seconds from `owlclaw up` to the first answer of /readyz."
ROUNDS = {Size.SMOKE: 1, Size.FULL: 3}

BARE = """
import os, shutil, tempfile
from pathlib import Path
from actors.environment import ray_environment
from serve.loopback import free_ports, haproxy_environment
scratch = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
os.environ.update(ray_environment(4, alone=True) | haproxy_environment(scratch))
import ray
from fastapi import FastAPI
from ray import serve as ray_serve
ray.init(address="local", num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False,
         logging_level="ERROR", _temp_dir=str(scratch / "ray"))
ray_serve.start(http_options={"host": "127.0.0.1", "port": free_ports(1)[0], "access_log": False})
app = ray_serve.deployment(ray_serve.ingress(FastAPI())()).bind()
ray_serve.run(app, route_prefix="/")
print("ready", flush=True)
ray_serve.shutdown()
ray.shutdown()
shutil.rmtree(scratch, ignore_errors=True)
"""


def answer(size: Size, say: Say) -> Answer:
    """Start both, alternately, and compare the medians."""
    bare, ours = [], []
    for number in range(ROUNDS[size]):
        say(f"round {number + 1}: a bare Serve application, then owlclaw up")
        bare.append(_bare_seconds())
        ours.append(_our_seconds())
    figure = Figure(
        "seconds to ready",
        statistics.median(ours),
        "s",
        baseline=statistics.median(bare),
        baseline_is="ray.init and ray_serve.run of an empty FastAPI application, same flags",
    )
    return Answer("startup", (figure,), details={"bare_seconds": bare, "owlclaw_seconds": ours})


def _bare_seconds() -> float:
    """Return the seconds from the start of a process to a Serve application that answers."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "bare.py"
        script.write_text(BARE)
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(b"ready"):
                    seconds = time.monotonic() - started
                    process.communicate(timeout=STOP_SECONDS)
                    return seconds
        finally:
            stop(process, STOP_SECONDS)
    raise RuntimeError("the bare application did not start")


def _our_seconds() -> float:
    with running_system({"bench": {"model": "scripted:tool_once"}}) as system:
        return system.seconds_to_ready
