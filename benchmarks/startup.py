"""How long `owlclaw up` takes to accept triggers, against a bare ray.init and ray_serve.run of an empty ASGI application.

Both run in fresh processes, alternately, under the same environment. The ratio is what counts.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

from benchmarks.system import running_system

BARE = """
import os, tempfile
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
"""


def bare_seconds() -> float:
    """Return the seconds from the start of a process to a Serve application that answers."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "bare.py"
        script.write_text(BARE)
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready"):
                seconds = time.monotonic() - started
                process.communicate()
                return seconds
    raise RuntimeError("the bare application did not start")


def our_seconds() -> float:
    """Return the seconds from `owlclaw up` to /readyz answering 200."""
    with running_system({"bench": {"model": "scripted:tool_once"}}) as system:
        return system.seconds_to_ready


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    pairs = [(bare_seconds(), our_seconds()) for _ in range(options.rounds)]
    bare, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        orjson.dumps({"bare_s": round(bare, 1), "owlclaw_s": round(ours, 1), "ratio": round(ours / bare, 2)}).decode()
    )


if __name__ == "__main__":
    main()
