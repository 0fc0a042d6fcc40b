"""The worker process, for real: the SDK's worker against the double, ringing this process."""

import json
import sys
import threading
import time
from datetime import timedelta

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.hatchet.options import RING
from owlclaw_ray.schedules.hatchet.supervision import WorkerHealth, WorkerSupervisor, probe_worker
from tests.hatchet_engine.engine import HatchetEngine
from tests.hatchet_engine.records import RunState
from tests.properties import examples
from tests.schedules.hatchet.world import START, options_for

WORKER = (sys.executable, "-m", "actors.hatchet_worker", "info", "json")
SECRET_PART = "c2lnbmF0dXJlLW9mLXRoZS1kb3VibGU"


class Rung:
    """Notes what it is rung for; says no to the first so many rings."""

    def __init__(self):
        self.schedules, self.refuse = [], 0

    async def __call__(self, schedule_ids):
        (schedule_id,) = schedule_ids
        self.schedules.append(schedule_id)
        if self.refuse:
            self.refuse -= 1
            raise RuntimeUnavailableError("the runtime stops")
        return [Alarm(schedule_id, START)]


@pytest.fixture
def rung():
    return Rung()


@pytest.fixture
def engine():
    """Its time goes on, and is always late enough for tasks that wait to be tried again."""
    ahead, over, began = [timedelta()], threading.Event(), time.monotonic()

    def now():
        return START + timedelta(seconds=time.monotonic() - began) + ahead[0]

    with HatchetEngine(now) as engine:

        def go_on():
            while not over.wait(0.01):
                with engine.records.changed:
                    waiting = [each.not_before for each in engine.records.queue if each.not_before is not None]
                    ahead[0] += max([timedelta(), *(each - now() for each in waiting)])
                    engine.records.ring()

        going_on = threading.Thread(target=go_on)
        going_on.start()
        yield engine
        over.set()
        going_on.join()


@pytest.fixture
async def supervisor(engine, rung):
    supervisor = WorkerSupervisor(options_for(engine), rung, SystemClock(), command=WORKER)
    supervisor.start()
    yield supervisor
    await supervisor.stop()


def alarm(engine, name="sch_1"):
    return engine.records.schedule(RING, START, {"schedule_id": name}, {"owlclaw": "default", "schedule_id": name})


@pytest.mark.timeout(500)
async def test_a_worker_is_rung_survives_an_outage_and_failures_and_is_replaced_when_it_dies(
    engine, rung, supervisor, capfd
):
    records = engine.records
    await _until(records, lambda: any(each.listening for each in records.workers.values()))
    (declared,) = records.workflows[RING].tasks
    assert (declared.schedule_timeout, declared.retries) == ("24h", 3)

    first = alarm(engine)
    engine.records.ring()
    await _until(records, lambda: len(records.finished) == 1)
    assert rung.schedules == ["sch_1"]
    assert json.loads(records.outputs[0]) == {"schedule_id": "sch_1", "at": START.isoformat()}

    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 2)
    rung.refuse = 1
    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 3)
    assert len(rung.schedules) == 4
    assert [task.retry for task in records.finished] == [0, 0, 1]

    old = supervisor.process.pid
    engine.fail_calls("Heartbeat", grpc.StatusCode.UNAVAILABLE)
    engine.go_down()
    engine.come_back()
    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 4)
    assert supervisor.process.pid == old

    supervisor.process.kill()
    await _until(records, lambda: not any(each.listening for each in records.workers.values()))
    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 5)
    assert supervisor.process.pid != old
    assert await probe_worker(supervisor.health_port) in {WorkerHealth.WELL, WorkerHealth.TROUBLED}

    written = "".join(capfd.readouterr())
    lines = [json.loads(line) for line in written.splitlines()]
    assert {"heartbeat", "interrupted"} & {word for line in lines for word in line["event"].split()}
    assert {line["level"] for line in lines} <= {"warning", "error"}
    assert len({line["event"] for line in lines}) == len(lines)
    assert "Traceback" not in written
    assert SECRET_PART not in written
    assert all(SECRET_PART not in text for text in _command_lines(supervisor.process.pid))


@pytest.mark.timeout(20 * settings.default.max_examples)
@pytest.mark.property
@settings(examples, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(failures=st.integers(0, 6), name=st.from_regex("sch_[a-z0-9]{8}", fullmatch=True))
async def test_property_17_a_ring_that_fails_is_tried_again_as_often_as_declared_and_no_more(
    engine, rung, supervisor, failures, name
):
    records = engine.records
    await _until(records, lambda: any(each.listening for each in records.workers.values()))
    (declared,) = records.workflows[RING].tasks
    assert declared.retries == 3
    before = len(records.finished)
    rung.schedules, rung.refuse = [], failures
    alarm(engine, name)
    records.ring()
    await _until(records, lambda: len(records.finished) > before)

    retries = min(failures, declared.retries)
    assert rung.schedules == [name] * (retries + 1)
    assert records.finished[-1].retry == retries
    assert records.finished[-1].run.state is (RunState.SUCCEEDED if failures == retries else RunState.FAILED)


async def _until(records, happened):
    import asyncio

    await asyncio.to_thread(records.wait_until, happened, 150)


def _command_lines(pid):
    import psutil

    process = psutil.Process(pid)
    return [" ".join(each.cmdline()) + str(each.environ()) for each in (process, *process.children(recursive=True))]
