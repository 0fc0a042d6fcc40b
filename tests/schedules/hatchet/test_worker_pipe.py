"""Both ends of the line between the worker and whoever started it, in one process."""

import asyncio
import socket
import threading
from datetime import UTC, datetime

import msgspec
import pytest

from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.schedules.api import Alarm
from owlclaw_ray.schedules.hatchet.options import HatchetOptions, Tls
from owlclaw_ray.schedules.hatchet.worker_pipe import WorkerPipe, answer_rings

OPTIONS = HatchetOptions("a-token", "a-tenant", "http://127.0.0.1:1", "127.0.0.1:1", Tls("none"), "")
AT = datetime(2026, 11, 22, tzinfo=UTC)


class Runtime:
    """Answers rings in the order in which `let_go` says."""

    def __init__(self):
        self.rung, self.broken = [], None
        self.held = {}

    async def __call__(self, schedule_ids):
        (schedule_id,) = schedule_ids
        self.rung.append(schedule_id)
        if self.broken is not None:
            raise self.broken
        if schedule_id in self.held:
            await self.held[schedule_id].wait()
        return [Alarm(schedule_id, AT if schedule_id == "sch_1" else None)]


@pytest.fixture
def runtime():
    return Runtime()


@pytest.fixture
async def line(runtime):
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    writer.write(msgspec.json.encode(OPTIONS) + b"\n")
    answering = asyncio.create_task(answer_rings(reader, writer, runtime))
    with theirs, theirs.makefile("rb") as lines:
        line = await asyncio.to_thread(WorkerPipe, theirs, lines)
        listening = threading.Thread(target=line.listen)
        listening.start()
        yield line
        theirs.shutdown(socket.SHUT_RDWR)
        await answering
        writer.close()
        await asyncio.to_thread(listening.join)


async def test_the_worker_hears_its_options_and_what_the_runtime_says_of_each_ring(line, runtime):
    runtime.held["sch_1"] = asyncio.Event()
    first = asyncio.create_task(line.ring("sch_1"))
    second = await line.ring("sch_2")
    runtime.held["sch_1"].set()

    assert line.options == OPTIONS
    assert second == {"schedule_id": "sch_2", "at": None}
    assert await first == {"schedule_id": "sch_1", "at": AT.isoformat()}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (RuntimeUnavailableError("the runtime stops"), "the runtime stops"),
        (ZeroDivisionError("secret"), "ZeroDivisionError"),
    ],
)
async def test_a_ring_that_fails_fails_for_the_worker_too_and_the_next_one_is_heard(line, runtime, broken, said):
    runtime.broken = broken
    with pytest.raises(RuntimeUnavailableError) as caught:
        await line.ring("sch_2")
    runtime.broken = None

    assert str(caught.value) == said
    assert await line.ring("sch_2") == {"schedule_id": "sch_2", "at": None}


async def test_an_answer_that_does_not_come_in_time_is_not_waited_for_and_does_no_harm_later(
    line, runtime, monkeypatch
):
    runtime.held["sch_2"] = asyncio.Event()
    with monkeypatch.context() as patched:
        patched.setattr("owlclaw_ray.schedules.hatchet.worker_pipe.ANSWER_SECONDS", 0.01)
        with pytest.raises(TimeoutError):
            await line.ring("sch_2")
    runtime.held.pop("sch_2").set()

    assert await line.ring("sch_1") == {"schedule_id": "sch_1", "at": AT.isoformat()}


def test_a_line_that_ends_before_the_options_makes_no_worker():
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, theirs.makefile("rb") as lines, pytest.raises(ValueError, match=r"truncated"):
        WorkerPipe(theirs, lines)
