"""Ray and Serve without OwlClaw, in a process of their own, under the flags that OwlClaw sets: what baselines are made of.

Ray reads its flags when it is imported, so none of this module's functions may be used where it has been.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.environment import ray_environment
from serve.front import Front
from serve.loopback import free_ports

_SERVED_SECONDS = 60.0


def serve(application: Callable[[], Any]) -> None:
    """Start Ray and Serve, run the application, say where it is, and stop everything with SIGTERM; see `benchmarks.child`."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    scratch = Path(tempfile.mkdtemp(prefix="owl-", dir="/tmp"))
    slots = 2 * (os.cpu_count() or 1)
    [port, inner_port] = free_ports(2)
    front = Front("127.0.0.1", port, scratch, probe="/-/healthz")
    os.environ.update(ray_environment(1, alone=True) | front.environment)  # noqa: TID251 - as owlclaw up

    import ray
    from ray import serve as ray_serve

    try:
        ray.init(
            address="local",
            num_cpus=os.cpu_count(),
            resources={"tool_slots": slots},
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(scratch / "ray"),
        )
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())  # ray.init puts its own there
        front.start()
        logging_config = {"log_level": "WARNING", "enable_access_log": False}
        ray_serve.start(
            http_options={"host": "127.0.0.1", "port": inner_port, "access_log": False, "location": "HeadOnly"},
            logging_config=logging_config,
        )
        ray_serve.run(application(), route_prefix="/", logging_config=logging_config)
        if not stopping.is_set():
            front.wait_until_served(_SERVED_SECONDS)
            print(f"ready {front.url}", flush=True)
        stopping.wait()
    finally:
        front.stop()
        if ray.is_initialized():
            ray_serve.shutdown()  # type: ignore[no-untyped-call]
            ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)
