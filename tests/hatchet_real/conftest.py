"""What the tests against a real engine need: HATCHET_CLIENT_TOKEN, and for some of them commands in HATCHET_RESTART and HATCHET_KILL.

HATCHET_CLIENT_TLS_STRATEGY and HATCHET_CLIENT_HOST_PORT are as the SDK reads them. Nothing here is timed closely.
"""

import asyncio
import os
import subprocess
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest

from owlclaw_ray.adapters.hatchet.alarms import HatchetAlarms
from owlclaw_ray.adapters.hatchet.options import HatchetOptions, Tls
from owlclaw_ray.adapters.hatchet.supervision import Sign, WorkerSupervisor, look_at
from owlclaw_ray.adapters.system_clock import SystemClock
from owlclaw_ray.configuration.hatchet import HatchetSettings

TOKEN = os.environ.get("HATCHET_CLIENT_TOKEN", "")
NEEDS_TOKEN = pytest.mark.skipif(
    not TOKEN, reason="HATCHET_CLIENT_TOKEN is not set: there is no engine to test against"
)


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/hatchet_real/" in str(item.path):
            item.add_marker(NEEDS_TOKEN)
            item.add_marker(pytest.mark.timeout(7_200))


class Rings(ThreadingHTTPServer):
    """Notes when it was rung for what."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Ring)
        self.rings = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def of(self, name):
        return [at for schedule, at in self.rings if schedule == name]


class _Ring(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        self.server.rings.append((self.path.split("/")[3], SystemClock().now()))
        body = b'{"schedule_id": "x", "at": null}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def rings():
    with Rings() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def options(rings):
    settings = HatchetSettings(token=TOKEN, tls=os.environ.get("HATCHET_CLIENT_TLS_STRATEGY", "tls"))
    return HatchetOptions(
        token=TOKEN,
        tenant_id=settings.claims["sub"],
        api_url=os.environ.get("HATCHET_CLIENT_SERVER_URL", settings.claims["server_url"]),
        grpc_address=os.environ.get("HATCHET_CLIENT_HOST_PORT", settings.claims["grpc_broadcast_address"]),
        tls=Tls(settings.tls),
        namespace=f"test-{uuid4().hex[:8]}",
        runtime_url=rings.url,
    )


@pytest.fixture
async def worker(options):
    """A supervised worker that is well. Its workflow is registered then."""
    supervisor = WorkerSupervisor(options, SystemClock())
    supervisor.start()
    async with asyncio.timeout(180):
        while supervisor.health_port == 0 or await look_at(supervisor.health_port) is not Sign.WELL:
            await asyncio.sleep(0.5)
    yield supervisor
    await supervisor.stop()


@pytest.fixture
async def alarms(options, worker):
    alarms = HatchetAlarms(options)
    yield alarms
    for each in await alarms.alarms():
        await alarms.remove(each.alarm_id)
    alarms.close()


async def until(happened, seconds):
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.2)


def soon(seconds):
    return SystemClock().now() + timedelta(seconds=seconds)


def run_command(variable):
    """Run the command of a variable; without one the test is skipped."""
    command = os.environ.get(variable)
    if not command:
        pytest.skip(f"{variable} is not set: a command that does that to the engine")
    subprocess.run(command, shell=True, check=True)


async def answering(alarms, seconds=180):
    """Wait until the engine answers again."""
    limit = time.monotonic() + seconds
    while True:
        try:
            return await alarms.alarms()
        except Exception:
            if time.monotonic() > limit:
                raise
            await asyncio.sleep(1)
