"""Indexing after the answer: what was remembered is put into the index in batches, by a thread that ends when all is done."""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from owlclaw_ray.domain.agent import AgentRef

logger = logging.getLogger(__name__)

_BATCH_SECONDS = 0.25
"""How long memories are gathered for one write to the index."""
_MAX_BATCH = 64
_CLEANUP_DELAY_SECONDS = 1.25
"""After so long without work, files that are no longer read are removed from indexes that were tidied."""
_AGAIN_SECONDS = 2.0
"""When it is checked whether the process that was embedding has finished."""
_THREAD_EXIT_SECONDS = 0.05
"""What threads of LanceDB get to let go of their last results: one that does it while Python ends would abort the process
(https://github.com/lance-format/lance/issues/4152).
"""
_LIVING: weakref.WeakSet[BackgroundIndexing] = weakref.WeakSet()


class Indexing(Protocol):
    """What is done for one agent after another."""

    def catch_up(self, agent: AgentRef, go_on: Callable[[], bool]) -> bool:
        """Make the agent's index hold all its memories, while `go_on` says so; return False if another process does the same."""
        ...

    def tidy(self, agent: AgentRef) -> bool:
        """Tidy the agent's index if that is due; return whether it was."""
        ...

    def clear(self, agent: AgentRef) -> None:
        """Remove what tidying left behind."""
        ...


class BackgroundIndexing:
    """Does the indexing of agents that are noted. What is not done when the process ends is done at the next recall."""

    def __init__(self, indexing: Indexing) -> None:
        self._indexing = indexing
        self._changed = threading.Condition()
        self._pending: dict[AgentRef, int] = {}
        self._tidied: set[AgentRef] = set()
        self._deferred: set[AgentRef] = set()
        self._thread: threading.Thread | None = None
        self._urgent = 0
        self._stopped = False
        _LIVING.add(self)

    def note(self, agent: AgentRef) -> None:
        """Index the agent's memories soon."""
        with self._changed:
            if self._stopped:
                return
            self._pending[agent] = self._pending.get(agent, 0) + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="memory-indexing", daemon=True)
                self._thread.start()
            elif sum(self._pending.values()) >= _MAX_BATCH:
                self._changed.notify_all()

    def settle(self) -> None:
        """Return when nothing is left to do for what was noted so far."""
        with self._changed:
            self._urgent += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None)
            self._urgent -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Leave what is not done to the next recall, and return when the thread has ended."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, timeout=5)

    def _run(self) -> None:
        try:
            while agent := self._next():
                self._work(agent)
        except BaseException:
            with self._changed:
                self._end()
            raise

    def _next(self) -> AgentRef | None:
        """Return whose turn it is, when enough has been gathered. None when all is done: then this thread is none any more, and
        what comes starts another.
        """
        with self._changed:
            if not self._pending and self._tidied:
                self._changed.wait_for(
                    lambda: self._pending or self._urgent or self._stopped, timeout=_CLEANUP_DELAY_SECONDS
                )
            if not self._stopped and self._pending:
                self._changed.wait_for(
                    lambda: self._urgent or self._stopped or sum(self._pending.values()) >= _MAX_BATCH,
                    timeout=_BATCH_SECONDS,
                )
            if self._stopped or not (self._pending or self._tidied):
                self._end()
                return None
            return next(iter(self._pending)) if self._pending else self._tidied.pop()

    def _end(self) -> None:
        self._thread = None
        self._changed.notify_all()

    def _defer(self, agent: AgentRef) -> None:
        """Note the agent again after a while, which `settle` does not wait for."""
        with self._changed:
            if self._stopped or agent in self._deferred:
                return
            self._deferred.add(agent)
        timer = threading.Timer(_AGAIN_SECONDS, self._note_again, [agent])
        timer.daemon = True
        timer.start()

    def _note_again(self, agent: AgentRef) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._urgent)
            self._deferred.discard(agent)
        self.note(agent)

    def _work(self, agent: AgentRef) -> None:
        with self._changed:
            is_clearing = self._pending.pop(agent, 0) == 0
        try:
            if is_clearing:
                self._indexing.clear(agent)
                return
            if not self._indexing.catch_up(agent, lambda: not self._stopped):
                self._defer(agent)
                return
            with self._changed:
                is_idle = not self._pending and not self._stopped
            if is_idle and self._indexing.tidy(agent):
                self._tidied.add(agent)
        except Exception as error:  # noqa: BLE001 - no caller waits for it, and the next recall does the same work
            logger.warning("the memories of %s are not indexed yet: %s", agent, error)


@atexit.register
def _stop_all() -> None:
    living = list(_LIVING)
    for each in living:
        each.stop()
    if living:
        threading.Event().wait(_THREAD_EXIT_SECONDS)
