"""How long a worker is borne with. Its process is a program that does nothing; its signs are what the test says."""

import asyncio
import socket
import subprocess
import sys
from itertools import pairwise

import msgspec
import psutil
import pytest

from owlclaw_ray.schedules.hatchet.options import HatchetOptions, Tls
from owlclaw_ray.schedules.hatchet.supervision import WorkerHealth, WorkerSupervisor
from owlclaw_ray.testing.clock import ManualClock
from serve.processes import lives

OPTIONS = HatchetOptions("a-token", "a-tenant", "http://127.0.0.1:1", "127.0.0.1:1", Tls("none"), "")
IDLE = ("/bin/sh", "-c", "exec cat > /dev/null")
FAILING = ("/bin/sh", "-c", "exit 3")


class Signs:
    def __init__(self):
        self.sign, self.looks = WorkerHealth.WELL, 0

    async def __call__(self, _port):
        self.looks += 1
        return self.sign


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def signs():
    return Signs()


@pytest.fixture
async def supervisor(clock, signs):
    supervisor = WorkerSupervisor(OPTIONS, not_rung, clock, command=IDLE, look=signs)
    supervisor.start()
    await until(lambda: signs.looks)
    yield supervisor
    await supervisor.stop()


async def not_rung(_schedule_ids):
    raise AssertionError


async def until(happened):
    async with asyncio.timeout(20):
        while not happened():
            await asyncio.sleep(0.001)


async def replaced(supervisor, clock, seconds):
    """Return whether the process is another one after so many seconds."""
    old = supervisor.process
    for _ in range(int(seconds)):
        await clock.advance(1)
    await asyncio.sleep(0)
    if old.returncode is None:
        return False
    await until(lambda: supervisor.process is not old)
    return True


async def test_a_worker_that_is_well_stays(supervisor, clock):
    assert not await replaced(supervisor, clock, 600)


@pytest.mark.parametrize(("sign", "borne"), [(WorkerHealth.SILENT, 14), (WorkerHealth.TROUBLED, 295)])
async def test_a_worker_that_is_not_well_any_more_is_borne_with_for_a_while(supervisor, clock, signs, sign, borne):
    await clock.advance(5)
    signs.sign = sign
    assert not await replaced(supervisor, clock, borne)

    old = supervisor.process
    for _ in range(12):
        await clock.advance(1)
    await until(lambda: old.returncode is not None)

    await until(lambda: clock.sleepers)
    await clock.advance(1)
    await until(lambda: supervisor.process is not old)


async def test_a_worker_that_dies_is_replaced_after_a_second(supervisor, clock):
    old = supervisor.process
    old.kill()
    await until(lambda: old.returncode is not None)
    await until(lambda: clock.sleepers)

    await clock.advance(1)

    await until(lambda: supervisor.process is not old)


async def test_workers_that_never_get_well_are_replaced_with_growing_pauses(clock):
    signs = Signs()
    signs.sign = WorkerHealth.SILENT
    supervisor = WorkerSupervisor(OPTIONS, not_rung, clock, command=FAILING, look=signs)
    supervisor.start()
    begun = []
    for _ in range(8):
        await until(lambda: supervisor.process is not None and supervisor.process not in [each for each, _ in begun])
        begun.append((supervisor.process, clock.monotonic()))
        await until(lambda: begun[-1][0].returncode is not None and clock.sleepers)
        while supervisor.process is begun[-1][0]:
            await clock.advance(1)
            await asyncio.sleep(0.01)
    await supervisor.stop()

    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(begun)]
    assert pauses[:2] < pauses[2:4] < pauses[4:6]
    assert max(pauses) <= 66


async def test_a_worker_that_is_stopped_is_gone_with_its_children(clock, signs, tmp_path):
    note = tmp_path / "child"
    command = ("/bin/sh", "-c", f"sleep 600 & echo $! > {note}.new; mv {note}.new {note}; cat > /dev/null")
    supervisor = WorkerSupervisor(OPTIONS, not_rung, clock, command=command, look=signs)
    supervisor.start()
    await until(lambda: supervisor.process is not None and note.exists())
    child = psutil.Process(int(note.read_text()))

    await supervisor.stop()

    assert supervisor.process.returncode == -9
    await until(lambda: not lives(child))


def test_a_worker_ends_when_whoever_started_it_is_gone():
    command = [sys.executable, "-m", "actors.hatchet_worker", "info", "text", "1"]
    token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4Iiwic2VydmVyX3VybCI6Imh0dHA6Ly94IiwiZ3JwY19icm9hZGNhc3RfYWRkcmVzcyI6IngifQ.c2ln"
    options = HatchetOptions(token, "t", "http://127.0.0.1:1", "127.0.0.1:1", Tls("none"), "")
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(msgspec.json.encode(options) + b"\n")

    with theirs:
        ended = subprocess.run(command, stdin=theirs, capture_output=True, start_new_session=True, check=False)

    assert ended.returncode == -9
    assert token.encode() not in ended.stdout + ended.stderr


def test_options_show_no_token_and_survive_the_pipe():
    assert "a-token" not in repr(OPTIONS)
    assert msgspec.json.decode(msgspec.json.encode(OPTIONS), type=HatchetOptions) == OPTIONS
