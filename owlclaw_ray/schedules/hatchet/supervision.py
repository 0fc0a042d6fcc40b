"""Keeps the worker process alive: starts it, checks its health, and restarts it with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum

import httpx
import msgspec
from msgspec import Struct

from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.schedules.hatchet.options import HatchetOptions
from owlclaw_ray.schedules.hatchet.worker_pipe import Ring, answer_rings

_STDERR = 2
"""The SDK logs to standard output."""

logger = logging.getLogger(__name__)


class WorkerHealth(Enum):
    """The state of a worker, by its health endpoint."""

    WELL = "well"
    TROUBLED = "troubled"
    """It answers, without a connection to the engine. The SDK reconnects by itself, for a while."""
    SILENT = "silent"
    """It does not answer."""


class SupervisionTimeouts(Struct, frozen=True):
    """When a worker is restarted, in seconds."""

    look: float = 5.0
    starting: float = 120.0
    """Without an answer since its start."""
    silent: float = 15.0
    """Without an answer since its last one."""
    troubled: float = 300.0
    pause: float = 1.0
    """Before the first restart; it doubles with each worker that never was healthy."""
    longest_pause: float = 60.0


class WorkerSupervisor:
    """Runs one worker process at a time."""

    def __init__(
        self,
        options: HatchetOptions,
        ring: Ring,
        clock: Clock,
        *,
        command: Sequence[str],
        patience: SupervisionTimeouts | None = None,
        look: Callable[[int], Awaitable[WorkerHealth]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`ring` handles the worker's rings. `command` starts the worker, without its last argument, the health port; `look` probes
        that port. `environment` is the worker's; None: this process's own.
        """
        self._environment = environment
        self._options, self._ring = options, ring
        self._clock, self._wait_limit = clock, patience or SupervisionTimeouts()
        self._command, self._look = command, look or probe_worker
        self._task: asyncio.Task[None] | None = None
        self.process: Process | None = None
        self.health_port = 0

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._supervise())

    async def stop(self) -> None:
        """End the worker and its children."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _supervise(self) -> None:
        patience = self._wait_limit
        pause = patience.pause
        while True:
            got_well = await self._run_once()
            pause = patience.pause if got_well else min(2 * pause, patience.longest_pause)
            await self._clock.sleep(pause)

    async def _run_once(self) -> bool:
        """Run a worker to its end; return whether it ever was healthy."""
        try:
            self.process, answering = await self._launch()
        except OSError:
            logger.exception("the worker for Hatchet cannot be started; it is retried")
            return False
        over = asyncio.create_task(self.process.wait())
        try:
            got_well, why = await self._watch(over)
            logger.warning("the worker for Hatchet %s; it is restarted", why)
            return got_well
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()
            over.cancel()
            answering.cancel()

    async def _launch(self) -> tuple[Process, asyncio.Task[None]]:
        """Return the worker's process, and the task that answers its rings."""
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self.health_port = listening.getsockname()[1]
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    str(self.health_port),
                    stdin=theirs.fileno(),
                    stdout=_STDERR,
                    start_new_session=True,
                    env=self._environment,
                )
            except BaseException:
                ours.close()
                raise
        return process, asyncio.create_task(self._answer(ours))

    async def _answer(self, line: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=line)
        try:
            writer.write(msgspec.json.encode(self._options) + b"\n")
            await answer_rings(reader, writer, self._ring)
        finally:
            writer.close()

    async def _watch(self, over: asyncio.Task[int]) -> tuple[bool, str]:
        patience = self._wait_limit
        got_well, well_at = False, self._clock.monotonic()
        answered_at = well_at
        while not over.done():
            sign = await self._look(self.health_port)
            now = self._clock.monotonic()
            if sign is not WorkerHealth.SILENT:
                answered_at = now
            if sign is WorkerHealth.WELL:
                got_well, well_at = True, now
            if now - answered_at > (patience.silent if got_well else patience.starting):
                return got_well, f"has not answered for {now - answered_at:.0f} s"
            if now - well_at > patience.troubled:
                return got_well, f"has not reached the engine for {now - well_at:.0f} s"
            sleep = asyncio.create_task(self._clock.sleep(patience.look))
            try:
                await asyncio.wait({sleep, over}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleep.cancel()
        return got_well, f"ended with code {over.result()}"


async def probe_worker(port: int) -> WorkerHealth:
    """Ask a worker for its health."""
    try:
        async with httpx.AsyncClient(timeout=2.0) as client:
            response = await client.get(f"http://127.0.0.1:{port}/health")
    except httpx.HTTPError:
        return WorkerHealth.SILENT
    return WorkerHealth.WELL if response.status_code == httpx.codes.OK else WorkerHealth.TROUBLED
