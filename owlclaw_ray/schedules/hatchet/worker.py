"""The worker process that Hatchet calls when an alarm rings.

It is a separate process because the SDK's worker blocks its thread and takes over the process's signals. Its standard input is the
connection to its parent: it receives its options there, so that the token is in no argument and no variable, sends rings there, and
ends with it. The runtime decides what is due. If a ring fails, the engine retries it, and if that fails too, the runtime fires
without it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from datetime import timedelta
from typing import Any

from hatchet_sdk import Context, Hatchet, Worker
from pydantic import BaseModel

from owlclaw_ray.schedules.hatchet.options import RING, client_config
from owlclaw_ray.schedules.hatchet.worker_pipe import ANSWER_SECONDS, WorkerPipe

SLOTS = 20
_RETRIES = 3


class AlarmInput(BaseModel):
    """The input of the workflow."""

    schedule_id: str


def worker_of(line: WorkerPipe, health_port: int) -> Worker:
    """Return a worker with one workflow, not started yet."""
    hatchet = Hatchet(config=client_config(line.options, health_port))

    @hatchet.task(
        name=RING,
        input_validator=AlarmInput,
        schedule_timeout=timedelta(hours=24),
        execution_timeout=timedelta(seconds=3 * ANSWER_SECONDS),
        retries=_RETRIES,
        backoff_factor=2.0,
        backoff_max_seconds=30,
    )
    async def ring_for(given: AlarmInput, _: Context) -> dict[str, Any]:
        return await line.ring(given.schedule_id)

    return hatchet.worker("owlclaw", slots=SLOTS, workflows=[ring_for])


def end_with(line: WorkerPipe) -> None:
    """Kill this process's group when the connection ends. The group has only this process and its children."""
    try:
        line.listen()
    finally:
        os.killpg(os.getpgid(0), signal.SIGKILL)


def work(health_port: int) -> None:
    """Work until a signal or the end of the connection."""
    end = socket.socket(fileno=sys.stdin.fileno())
    line = WorkerPipe(end, end.makefile("rb"))
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    threading.Thread(target=end_with, args=(line,), daemon=True).start()
    worker_of(line, health_port).start()
