"""Ending `owlclaw up`: in steps that each have a deadline, or at once."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct

_POLL_SECONDS = 0.05
_LOOK_SECONDS = 1.0
_ONE_WISH_SECONDS = 0.5
"""A second signal within that time belongs to the first: `timeout` and some terminals send two."""

logger = logging.getLogger(__name__)


class StopStep(Struct, frozen=True):
    """Something to do before the end."""

    name: str
    act: Callable[[], object]
    seconds: float
    """How long it may take."""


def run_stop_steps(steps: Sequence[StopStep]) -> list[str]:
    """Do one after the other, each in a thread of its own, and return the names of those that did not end in time.

    What a step raises is logged. A step that was given up may go on; only the end of the process ends it.
    """

    def act(step: StopStep) -> None:
        try:
            step.act()
        except Exception:
            logger.exception("%s failed", step.name)

    late = []
    for step in steps:
        thread = threading.Thread(target=act, args=(step,), name=step.name, daemon=True)
        thread.start()
        end = time.monotonic() + step.seconds
        while thread.is_alive() and time.monotonic() < end:
            thread.join(_POLL_SECONDS)  # not longer at once: signals are handled in between
        if thread.is_alive():
            late.append(step.name)
    return late


class SignalEvent:
    """An event that a signal handler may set: unlike threading.Event it has no lock, which the thread that the handler interrupts
    could hold.
    """

    def __init__(self) -> None:
        self._set = False
        self._woken, self._wake = os.pipe()
        for descriptor in (self._woken, self._wake):
            weakref.finalize(self, os.close, descriptor)

    def is_set(self) -> bool:
        """Return whether it is set. It stays so."""
        return self._set

    def set(self) -> None:
        """Set it, and wake all waiting threads."""
        if not self._set:
            self._set = True
            os.write(self._wake, b"!")  # never read, so that it wakes all

    def wait(self) -> None:
        """Return when it is set."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        while not self._set:
            poll.poll(_LOOK_SECONDS * 1_000)  # a signal just before has its handler run only after


class StopSignals:
    """What SIGINT and SIGTERM do: the first asks for the stop, which may take its time, the second does not wait for it."""

    def __init__(self, at_once: Callable[[], None]) -> None:
        self._at_once, self._interrupts, self._asked_at = at_once, True, 0.0
        self.asked = SignalEvent()

    def install(self) -> None:
        """Handle the signals from now on, replacing handlers that Ray installed."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    @contextmanager
    def signals_deferred(self) -> Iterator[None]:
        """In the block the first signal is only recorded; otherwise it interrupts the start."""
        self._interrupts = False
        try:
            yield
        finally:
            self._interrupts = True
            self.install()
        self.check()

    def only_note(self) -> None:
        """Only record signals from now on."""
        self._interrupts = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if the stop was asked for."""
        if self.asked.is_set():
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.asked.is_set():
            self._asked_at = now
            self.asked.set()
            if self._interrupts:
                raise KeyboardInterrupt
        elif now - self._asked_at >= _ONE_WISH_SECONDS:
            self._at_once()
