"""Watching over actors of this node that may live without doing anything: Ray restarts only the dead."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
from ray.actor import ActorHandle

from actors.remote import ProcessLocation, here, registered, whereabouts
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.deadline import deadline

CHECK_INTERVAL = 3.0
_AGAIN_SECONDS = 1.0
_TIMEOUT_SECONDS = 2.0
"""Seconds that an actor may take for a sign of life: with two looks that it misses, a hung one is replaced within ten seconds."""
_BUSY_TIMEOUT_SECONDS = 7.0
"""The same where processes wait for each other's turns at the processor."""
_BUSY_LOAD = 2.0
_MAX_MISSED_CHECKS = 2
"""How often in a row it may give none before it is killed."""
_MAX_MISSED_CHECKS_AT_START = 8
"""The same for a process that was never heard from: one of a busy machine may take a minute to begin."""

Find = Callable[[ActorHandle[Any]], Awaitable[ProcessLocation | None]]

logger = logging.getLogger(__name__)


def _load() -> float:
    return psutil.getloadavg()[0] / (os.cpu_count() or 1)


def is_busy() -> bool:
    """Return whether processes of this machine wait for each other's turns at the processor."""
    return _load() > _BUSY_LOAD


class LivenessMonitor:
    """Knows the processes of this node behind names, and kills those that a stopped process or a blocked loop keeps from answering.

    `answer` is asked of the actor itself, `register` of Ray, which knows a process before it can answer.
    """

    def __init__(
        self,
        clock: Clock,
        node_id: str = "",
        answer: Find = whereabouts,
        register: Find = registered,
        load: Callable[[], float] = _load,
    ) -> None:
        """`load` is how many processes want to run, for each processor."""
        self._clock, self._node_id = clock, node_id or here()
        self._answer, self._register, self._load = answer, register, load
        self._heard: dict[str, psutil.Process] = {}
        self._missed: Counter[str] = Counter()

    @property
    def pause(self) -> float:
        """The seconds until the next looks: few where a part has just missed its first one."""
        return _AGAIN_SECONDS if 1 in self._missed.values() else CHECK_INTERVAL

    async def look(self, name: str, actor: ActorHandle[Any]) -> None:
        """Ask for a sign of life; kill the process that gave none too often in a row. The dead are Ray's own concern."""
        try:
            async with deadline(self._clock, _BUSY_TIMEOUT_SECONDS if self._load() > _BUSY_LOAD else _TIMEOUT_SECONDS):
                self._note(name, await self._answer(actor))
        except RuntimeUnavailableError:
            self._missed[name] = 0
        except TimeoutError:
            self._missed[name] += 1
            await self._judge(name, actor)
        else:
            self._missed[name] = 0

    async def wait_until_alive(self, name: str, actor: ActorHandle[Any], seconds: float) -> None:
        """Return at the first sign of life; raises RuntimeUnavailableError if none comes within that many seconds."""
        try:
            async with deadline(self._clock, seconds):
                self._note(name, await self._answer(actor))
        except TimeoutError as error:
            raise RuntimeUnavailableError(f"{name} gave no sign of life within {seconds:g} s") from error

    async def end(self, name: str, actor: ActorHandle[Any]) -> None:
        """Kill the actor's process, however stuck it is; harmless for a dead one."""
        process = await self._process_of(actor) or self._heard.get(name)
        self._heard.pop(name, None)
        del self._missed[name]
        if process is not None:
            _kill(process)

    def end_now(self, name: str) -> None:
        """Kill the process that answered by that name, without asking Ray for it; harmless for a dead one."""
        process = self._heard.pop(name, None)
        del self._missed[name]
        if process is not None:
            _kill(process)

    async def _judge(self, name: str, actor: ActorHandle[Any]) -> None:
        process = await self._process_of(actor)
        if process is None:
            return
        most = _MAX_MISSED_CHECKS if process == self._heard.get(name) else _MAX_MISSED_CHECKS_AT_START
        if self._missed[name] >= most:
            logger.warning("the %s has not answered %d times in a row; it is killed", name, self._missed[name])
            self._missed[name] = 0
            _kill(process)

    async def _process_of(self, actor: ActorHandle[Any]) -> psutil.Process | None:
        return self._here(await self._register(actor))

    def _note(self, name: str, where: ProcessLocation | None) -> None:
        known = self._heard.get(name)
        if where is not None and (known is None or known.pid != where.pid):
            process = self._here(where)
            if process is not None:
                self._heard[name] = process

    def _here(self, where: ProcessLocation | None) -> psutil.Process | None:
        if where is None or where.node_id != self._node_id:
            return None
        try:
            return psutil.Process(where.pid)
        except psutil.NoSuchProcess:
            return None


def _kill(process: psutil.Process) -> None:
    """Kill a process; psutil makes sure that its number does not belong to another one by now."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
