"""What the tests against a real engine need: HATCHET_CLIENT_TOKEN, and for some of them commands in HATCHET_KILL and HATCHET_START.

The one ends the engine at once, the other begins to start it again; how long it is down is up to the test.

HATCHET_CLIENT_TLS_STRATEGY and HATCHET_CLIENT_HOST_PORT are as the SDK reads them. Nothing here is timed closely.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from datetime import timedelta
from uuid import uuid4

import pytest

from owlclaw_ray.configuration.hatchet import HatchetSettings
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.hatchet.alarms import HatchetAlarms
from owlclaw_ray.schedules.hatchet.options import HatchetOptions, Tls
from owlclaw_ray.schedules.hatchet.supervision import WorkerHealth, WorkerSupervisor, probe_worker

WORKER = (sys.executable, "-m", "actors.hatchet_worker", "info", "text")
TOKEN = os.environ.get("HATCHET_CLIENT_TOKEN", "")
NEEDS_TOKEN = pytest.mark.skipif(
    not TOKEN, reason="HATCHET_CLIENT_TOKEN is not set: there is no engine to test against"
)


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/hatchet_real/" in str(item.path):
            item.add_marker(NEEDS_TOKEN)
            item.add_marker(pytest.mark.timeout(7_200))


class Rings:
    """Notes when it was rung for what, and rings on for `schedule_firer`, if there is one.

    The first so many rings of a schedule in `broken` fail."""

    def __init__(self):
        self.rings, self.broken, self.schedule_firer = [], Counter(), None

    async def __call__(self, schedule_ids):
        (schedule_id,) = schedule_ids
        self.rings.append((schedule_id, SystemClock().now()))
        if self.broken[schedule_id]:
            self.broken[schedule_id] -= 1
            raise RuntimeUnavailableError("told to fail")
        return [Alarm(schedule_id, None)] if self.schedule_firer is None else await self.schedule_firer(schedule_ids)

    def of(self, name):
        return [at for schedule, at in self.rings if schedule == name]


@pytest.fixture
def rings():
    return Rings()


@pytest.fixture
def options():
    settings = HatchetSettings(token=TOKEN, tls=os.environ.get("HATCHET_CLIENT_TLS_STRATEGY", "tls"))
    return HatchetOptions(
        token=TOKEN,
        tenant_id=settings.claims["sub"],
        api_url=os.environ.get("HATCHET_CLIENT_SERVER_URL", settings.claims["server_url"]),
        grpc_address=os.environ.get("HATCHET_CLIENT_HOST_PORT", settings.claims["grpc_broadcast_address"]),
        tls=Tls(settings.tls),
        namespace=f"test-{uuid4().hex[:8]}",
    )


@pytest.fixture
async def worker(options, rings):
    """A supervised worker that is well. Its workflow is registered then."""
    supervisor = WorkerSupervisor(options, rings, SystemClock(), command=WORKER)
    supervisor.start()
    async with asyncio.timeout(180):
        while supervisor.health_port == 0 or await probe_worker(supervisor.health_port) is not WorkerHealth.WELL:
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


async def run_command(variable):
    """Run the command of a variable, while everything else goes on; without one the test is skipped."""
    command = os.environ.get(variable)
    if not command:
        pytest.skip(f"{variable} is not set: a command that does that to the engine")
    process = await asyncio.create_subprocess_shell(command)
    assert await process.wait() == 0


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
