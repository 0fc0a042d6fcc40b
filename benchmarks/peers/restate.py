"""Restate: a virtual object per agent, every model call and tool call a durable step, submitted over its HTTP ingress.

    python -m benchmarks.peers.restate FOLDER SERVER PARTITIONS ASGI_SERVER PORT PORT PORT PORT

runs Restate's server, SERVER, and in processes of their own the service, behind `hypercorn` (which Restate's documentation recommends,
with these settings) or `granian`, a worker a core.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from restate import ObjectContext, VirtualObject
from restate import app as restate_app

from benchmarks.peers.job import Conversation, ask_model, log_decision

READY_SECONDS = 120.0
APP = "benchmarks.peers.restate:app"
agent = VirtualObject("agent")


@agent.handler()
async def run(ctx: ObjectContext, payload: dict[str, int]) -> str:
    """One run."""
    first = await ctx.run_typed("model", ask_model, conversation=[])
    conversation: Conversation = [payload, dict(first)]
    for call in first["calls"]:
        conversation.append(await ctx.run_typed(call["name"], log_decision, **call["arguments"]))
    return (await ctx.run_typed("model", ask_model, conversation=conversation))["text"]


app = restate_app(services=[agent])

_SERVER = """
listen-mode = "tcp"
bind-ip = "127.0.0.1"
bind-port = {node}
advertised-host = "127.0.0.1"
default-num-partitions = {partitions}
disable-telemetry = true
log-filter = "warn"
[ingress]
bind-port = {ingress}
[admin]
bind-port = {admin}
disable-web-ui = true
"""
_HYPERCORN = """
bind = "127.0.0.1:{service}"
h2_max_concurrent_streams = 2147483647
keep_alive_max_requests = 2147483647
keep_alive_timeout = 2147483647
workers = {workers}
"""


def main(folder: Path, server: str, partitions: str, asgi_server: str, free_ports: Sequence[str]) -> None:
    """Start both, register the service, say where the ingress is, and wait to be ended."""
    ports = dict(zip(("node", "ingress", "admin", "service"), free_ports, strict=True))
    (folder / "restate.toml").write_text(_SERVER.format(partitions=partitions, **ports))
    (folder / "hypercorn.toml").write_text(_HYPERCORN.format(workers=os.cpu_count() or 1, **ports))
    subprocess.Popen([server, "--no-logo", "--config-file", "restate.toml", "--base-dir", "data"], cwd=folder)
    subprocess.Popen(service_command(asgi_server, ports["service"]), cwd=folder)
    register(ports["admin"], f"http://127.0.0.1:{ports['service']}")
    print(f"ready http://127.0.0.1:{ports['ingress']}", flush=True)
    signal.pause()


def service_command(asgi_server: str, port: str) -> list[str]:
    """Return what serves `app` over HTTP/2, a worker a core."""
    if asgi_server == "hypercorn":
        return [sys.executable, "-m", "hypercorn", APP, "--config", "hypercorn.toml"]
    workers = str(os.cpu_count() or 1)
    options = ["--interface", "asgi", "--http", "2", "--host", "127.0.0.1", "--port", port, "--workers", workers]
    return [sys.executable, "-m", "granian", *options, "--no-ws", APP]


def register(admin_port: str, service: str) -> None:
    """Tell Restate where the service is, as soon as both answer; raises TimeoutError if they never do."""
    body, head = json.dumps({"uri": service}), {"Content-Type": "application/json"}
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            admin = http.client.HTTPConnection("127.0.0.1", int(admin_port), timeout=10)
            admin.request("POST", "/deployments", body, head)
            if admin.getresponse().status < 300:
                return
        time.sleep(0.2)
    raise TimeoutError(f"the service was not registered within {READY_SECONDS:.0f} s")


if __name__ == "__main__":
    folder, server, partitions, asgi_server, *ports = sys.argv[1:]
    main(Path(folder), server, partitions, asgi_server, ports)
