"""The whole way of a ring: store, reconciler, engine, worker process, Scheduler, store. Only the engine is a double."""

from __future__ import annotations

import threading

import psutil
import pytest
import yaml

from owlclaw_ray.kernel.system_clock import SystemClock
from serve.processes import command_line, title_of
from tests.e2e.conftest import environment_of
from tests.hatchet_engine.engine import HatchetEngine

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

SECONDS = 200.0


@pytest.fixture
def engine():
    """The double, ringing in the time of the day."""
    over = threading.Event()
    with HatchetEngine(SystemClock().now) as engine:

        def ring():
            while not over.wait(0.2):
                engine.records.ring()

        ringing = threading.Thread(target=ring)
        ringing.start()
        yield engine
        over.set()
        ringing.join()


def test_a_schedule_fires_because_hatchet_rings_and_the_token_is_written_nowhere(installation, engine, monkeypatch):
    path = installation.folder / "owlclaw.yaml"
    hatchet = {"tls": "none", "reconcile_seconds": 5, "grace_seconds": 60}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"hatchet": hatchet}))
    monkeypatch.setenv("OWLCLAW_HATCHET__TOKEN", engine.token)
    installation.define("clerk", {"turns": [{"text": "done"}]})
    records = engine.records
    installation.up()
    records.wait_until(lambda: any(each.listening for each in records.workers.values()), SECONDS)

    with installation.client() as client:
        schedule = client.create_schedule("clerk", "look", delay=20)
        records.wait_until(lambda: engine.alarms, SECONDS)
        records.wait_until(lambda: records.finished, SECONDS)
        (tick,) = client.ticks(schedule["schedule_id"])["ticks"]
        run = client.run(tick["run_id"])
    children = psutil.Process(installation.process.pid).children(recursive=True)
    (worker,) = [each for each in children if "actors.hatchet_worker" in command_line(each)]
    token = engine.token
    told = [
        title_of(each)
        for each in children
        if token in str(command_line(each)) or token.encode() in environment_of(each)
    ]
    data = installation.folder / ".owlclaw"
    written = [each for folder in (data, (data / "logs").resolve()) for each in folder.rglob("*") if each.is_file()]

    assert told == []
    assert run["trigger"]["kind"] == "schedule_once"
    assert schedule["schedule_id"] in records.outputs[0]
    assert len(written) > 5
    assert [each for each in written if engine.token.encode() in each.read_bytes()] == []
    assert installation.interrupt() == 0
    assert not worker.is_running()
