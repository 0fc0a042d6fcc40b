"""The worker process, for real: the SDK's worker against the double, ringing an HTTP server."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from owlclaw_ray.adapters.hatchet.options import RING
from owlclaw_ray.adapters.hatchet.supervision import Sign, WorkerSupervisor, look_at
from owlclaw_ray.adapters.system_clock import SystemClock
from tests.adapters.hatchet.world import START, options_for
from tests.hatchet_engine.engine import HatchetEngine
from tests.hatchet_engine.records import RunState

SECRET_PART = "c2lnbmF0dXJlLW9mLXRoZS1kb3VibGU"


class Rung(ThreadingHTTPServer):
    """Notes what it is rung for; says no to the first so many rings."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Ring)
        self.paths, self.refuse = [], 0
        self.changed = threading.Condition()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.paths) >= count, 60), self.paths


class _Ring(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        with self.server.changed:
            self.server.paths.append(self.path)
            refused, self.server.refuse = self.server.refuse > 0, max(0, self.server.refuse - 1)
            self.server.changed.notify_all()
        body = b'{"schedule_id": "sch_1", "at": null}'
        self.send_response(503 if refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def rung():
    with Rung() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def engine():
    with HatchetEngine(lambda: START) as engine:
        yield engine


@pytest.fixture
async def supervisor(engine, rung):
    supervisor = WorkerSupervisor(options_for(engine, runtime_url=rung.url), SystemClock())
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
    assert rung.paths == ["/v1/schedules/sch_1/ring"]
    assert "sch_1" in records.outputs[0]

    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 2)
    rung.refuse = 1
    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 3)
    assert len(rung.paths) == 4
    assert [task.retry for task in records.finished] == [0, 0, 1]

    old = supervisor.process.pid
    engine.fail_calls("Heartbeat", grpc.StatusCode.UNAVAILABLE)
    engine.go_down()
    engine.come_back()
    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 4)
    assert supervisor.process.pid == old

    supervisor.process.kill()
    engine.ring_again(first)
    await _until(records, lambda: len(records.finished) == 5)
    assert supervisor.process.pid != old
    assert await look_at(supervisor.health_port) in {Sign.WELL, Sign.TROUBLED}

    written = capfd.readouterr()
    assert "owlclaw-ring" in written.out + written.err
    assert SECRET_PART not in written.out + written.err
    assert all(SECRET_PART not in text for text in _command_lines(supervisor.process.pid))


@pytest.mark.timeout(500)
@pytest.mark.property
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(failures=st.integers(0, 6), name=st.from_regex("sch_[a-z0-9]{8}", fullmatch=True))
async def test_property_17_a_ring_that_fails_is_tried_again_as_often_as_declared_and_no_more(
    engine, rung, supervisor, failures, name
):
    records = engine.records
    await _until(records, lambda: any(each.listening for each in records.workers.values()))
    (declared,) = records.workflows[RING].tasks
    before = len(records.finished)
    rung.paths, rung.refuse = [], failures
    alarm(engine, name)
    records.ring()
    await _until(records, lambda: len(records.finished) > before)

    retries = min(failures, declared.retries)
    assert rung.paths == [f"/v1/schedules/{name}/ring"] * (retries + 1)
    assert records.finished[-1].retry == retries
    assert records.finished[-1].run.state is (RunState.SUCCEEDED if failures == retries else RunState.FAILED)


async def _until(records, happened):
    import asyncio

    await asyncio.to_thread(records.wait_until, happened, 150)


def _command_lines(pid):
    import psutil

    process = psutil.Process(pid)
    return [" ".join(each.cmdline()) + str(each.environ()) for each in (process, *process.children(recursive=True))]
