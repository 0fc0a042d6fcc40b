"""Calls that end at a deadline, whatever they do.

In the main thread an interval timer interrupts the call: it stops sleeps, sockets, subprocesses and regular expressions, and
it is a BaseException, so that a handler's `except Exception` does not swallow it; a bare `except` gets it again a second later.
Code that holds the interpreter without returning to it (a long call into C) cannot be interrupted from inside: the host
kills the process. In any other thread, where there are no signals, the call runs in a thread of its own that is left behind.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_REPEAT_SECONDS = 1.0
_LOOP_SLACK_SECONDS = 0.25
_SOONEST, _LATEST = 1e-6, 1e8
"""Seconds that a timer can be set to."""


class DeadlineReachedError(Exception):
    """The call did not end in time."""


class _Interrupt(BaseException):
    """Raised inside the call when its time is over."""


def call_within(seconds: float, function: Callable[[], Any]) -> Any:
    """Return what the function returns, or raise what it raises, or DeadlineReachedError after that many seconds."""
    seconds = min(max(seconds, _SOONEST), _LATEST)
    if threading.current_thread() is threading.main_thread():
        try:
            with _alarm(seconds):
                return function()
        except _Interrupt:
            raise DeadlineReachedError from None
    result: list[Any] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(function())
        except BaseException as error:  # noqa: BLE001 (it is raised again in the caller's thread)
            failure.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="owlclaw-tool", daemon=True)
    thread.start()
    thread.join(seconds)
    if failure:
        raise failure[0]
    if not result:
        raise DeadlineReachedError
    return result[0]


def run_within(seconds: float, start: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine on an event loop of its own, as `call_within`. A loop that it blocks is stopped a quarter second later.

    The loop ends with the call, its remaining tasks are cancelled: nothing bound to it can be kept for the next call.
    """

    async def limited() -> Any:
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await start()
        except TimeoutError as error:
            if scope.expired():
                raise DeadlineReachedError from error
            raise

    def run() -> Any:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            return runner.run(limited())

    return call_within(seconds + _LOOP_SLACK_SECONDS, run)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise _Interrupt in this thread after that many seconds; whatever timer ran before goes on afterwards."""
    armed = True

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        if armed:
            raise _Interrupt

    started = time.monotonic()
    handler_before = signal.signal(signal.SIGALRM, interrupt)
    delay_before, interval_before = signal.setitimer(signal.ITIMER_REAL, seconds, _REPEAT_SECONDS)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler_before)
        if delay_before:
            remaining = max(_SOONEST, delay_before - (time.monotonic() - started))
            signal.setitimer(signal.ITIMER_REAL, remaining, interval_before)
