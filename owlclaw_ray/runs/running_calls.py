"""The tool calls of a run that are being executed: which have taken long, for how long, and what their servers say of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from msgspec import Struct, to_builtins

from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tool import CallProgress
from owlclaw_ray.domain.tool_call import ToolInvocation
from owlclaw_ray.errors import RuntimeUnavailableError
from owlclaw_ray.ids import ToolCallId
from owlclaw_ray.kernel.clock import Clock

FIRST_LOOK, MOST_BETWEEN = 3.0, 30.0
"""Calls are told of after so many seconds, then after twice as many, and so on: a call of a minute four times."""

ProgressOf: TypeAlias = Callable[[Collection[str]], Awaitable[Mapping[str, CallProgress]]]
"""Returns what is known of calls by their idempotency keys; raises RuntimeUnavailableError."""


async def unknown(keys: Collection[str]) -> Mapping[str, CallProgress]:
    """Know nothing of any call."""
    del keys
    return {}


class _Running(Struct, frozen=True):
    tool: str
    key: str
    since: float


class RunningCalls:
    """Calls between their beginning and their end."""

    def __init__(self, clock: Clock, progress_of: ProgressOf) -> None:
        self._clock, self._progress_of = clock, progress_of
        self._running: dict[ToolCallId, _Running] = {}
        self._progress: Mapping[str, CallProgress] = {}

    @contextmanager
    def running(self, invocation: ToolInvocation) -> Iterator[None]:
        """Have the call run for as long as the block does."""
        call = _Running(invocation.tool, invocation.idempotency_key, self._clock.monotonic())
        self._running[invocation.call_id] = call
        try:
            yield
        finally:
            del self._running[invocation.call_id]

    def told(self) -> list[JsonObject]:
        """Return what there is to say of the calls that run, in the order in which they began."""
        now = self._clock.monotonic()
        return [
            {
                "call_id": call_id,
                "tool": call.tool,
                "seconds": round(now - call.since, 3),
                **to_builtins(self._progress.get(call.key, CallProgress())),
            }
            for call_id, call in self._running.items()
        ]

    @contextmanager
    def watched(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call `tell` from time to time while calls run in the block, with the latest of their progress known."""
        watching: list[asyncio.Task[None]] = []
        timer = self._clock.call_later(FIRST_LOOK, lambda: watching.append(asyncio.create_task(self._watch(tell))))
        try:
            yield
        finally:
            timer.cancel()
            for task in watching:
                task.cancel()

    async def _watch(self, tell: Callable[[], None]) -> None:
        pause = FIRST_LOOK
        while True:
            if self._running:
                try:
                    self._progress = await self._progress_of([call.key for call in self._running.values()])
                except RuntimeUnavailableError:
                    self._progress = {}
                tell()
            await self._clock.sleep(pause)
            pause = min(2 * pause, MOST_BETWEEN)
