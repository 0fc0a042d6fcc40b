"""The process that Hatchet rings: `python -m owlclaw_ray.adapters.hatchet.worker`.

It is a process of its own because the SDK's worker blocks its thread and takes the process's signals. Its options come as a line of
JSON on standard input, so that the token is in no argument and no variable; that input's end is the end of whoever started it,
and its own. A ring is one HTTP request to the runtime, which decides what is due. If that fails, the engine tries again, and if
that fails too, the runtime fires without it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import httpx
from hatchet_sdk import Context, Hatchet, Worker
from pydantic import BaseModel

from owlclaw_ray.adapters.hatchet.options import RING, HatchetOptions, client_config

SLOTS = 20
_REQUEST_SECONDS = 10.0
_RETRIES = 3


class Ring(BaseModel):
    """The input of the workflow."""

    schedule_id: str


async def ring(client: httpx.AsyncClient, schedule_id: str) -> dict[str, Any]:
    """Have the runtime fire what is due of the schedule; return its answer. Raises httpx.HTTPError unless it is a good one."""
    response = await client.post(f"/v1/schedules/{schedule_id}/ring")
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def worker_of(options: HatchetOptions, health_port: int) -> Worker:
    """Return a worker that knows one workflow, not started yet."""
    hatchet = Hatchet(config=client_config(options, health_port))

    async def lifespan() -> AsyncGenerator[httpx.AsyncClient, None]:
        async with httpx.AsyncClient(base_url=options.runtime_url, timeout=_REQUEST_SECONDS) as client:
            yield client

    @hatchet.task(
        name=RING,
        input_validator=Ring,
        schedule_timeout=timedelta(hours=24),
        execution_timeout=timedelta(seconds=3 * _REQUEST_SECONDS),
        retries=_RETRIES,
        backoff_factor=2.0,
        backoff_max_seconds=30,
    )
    async def ring_for(given: Ring, context: Context) -> dict[str, Any]:
        return await ring(context.lifespan, given.schedule_id)

    return hatchet.worker("owlclaw", slots=SLOTS, workflows=[ring_for], lifespan=lifespan)


def end_with(pipe: int) -> None:
    """Kill this process's group when the pipe ends. The group is of this process and its children alone."""
    while os.read(pipe, 1):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Work until it is told to end, by a signal or by the end of standard input."""
    options = HatchetOptions.of_json(sys.stdin.buffer.readline())
    health_port = int(sys.argv[1])
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    threading.Thread(target=end_with, args=(sys.stdin.fileno(),), daemon=True).start()
    worker_of(options, health_port).start()


if __name__ == "__main__":
    main()
