"""Many callers' commands in few transactions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ports.store import Command, CommandStore, Outcome

logger = logging.getLogger(__name__)


class CommitObserver(Protocol):
    """Is told of every transaction after its callers were answered; nobody waits for it."""

    def committed(self, commands: Sequence[Command], outcomes: Sequence[Outcome], seconds: float) -> None:
        """Take note. `seconds` is how long the transaction took."""
        ...


class _Request(Struct, frozen=True):
    commands: Sequence[Command]
    answer: asyncio.Future[Sequence[Outcome]]


class GroupCommit:
    """A CommandStore for many callers at once, over one that takes a batch at a time.

    One transaction runs at a time; what arrives meanwhile goes into the next one, whole requests in the order of their
    coming, up to `max_batch` commands (a larger request goes alone). If the last transaction was shared, the next one waits
    up to `linger` seconds for company; a request that comes alone waits for nobody.
    """

    def __init__(
        self,
        store: CommandStore,
        *,
        max_batch: int = 512,
        linger: float = 0.002,
        observer: CommitObserver | None = None,
    ) -> None:
        self._store, self._max_batch, self._linger = store, max_batch, linger
        self._waiting: deque[_Request] = deque()
        self._waiting_commands = 0
        self._full = asyncio.Event()
        self._shared = False
        self._observer = observer
        self._committer: asyncio.Task[None] | None = None
        self._closed = False

    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """As CommandStore.apply. A caller that is cancelled while it waits does not take its commands back."""
        if self._closed:
            raise StoreUnavailableError("the store is closing")
        if not commands:
            return ()
        answer: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(commands, answer))
        self._waiting_commands += len(commands)
        if self._waiting_commands >= self._max_batch:
            self._full.set()
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        return await answer

    async def close(self) -> None:
        """Commit what was asked for so far, and take no more. The store itself stays open."""
        self._closed = True
        self._full.set()
        if self._committer is not None:
            await self._committer

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._gather_company()
                await self._commit(self._next_batch())
        finally:
            self._committer = None

    async def _gather_company(self) -> None:
        if not self._shared or self._full.is_set() or self._linger <= 0:
            return
        try:
            async with asyncio.timeout(self._linger):
                await self._full.wait()
        except TimeoutError:
            return

    def _next_batch(self) -> list[_Request]:
        batch = [self._waiting.popleft()]
        size = len(batch[0].commands)
        while self._waiting and size + len(self._waiting[0].commands) <= self._max_batch:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].commands)
        self._shared = len(batch) > 1
        self._waiting_commands -= size
        if self._waiting_commands < self._max_batch and not self._closed:
            self._full.clear()
        return batch

    async def _commit(self, batch: Sequence[_Request]) -> None:
        commands = [command for request in batch for command in request.commands]
        began = asyncio.get_running_loop().time()
        try:
            outcomes = await self._store.apply(commands)
        except Exception as error:  # noqa: BLE001 - whatever it is, the callers get it
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
            return
        at = 0
        for request in batch:
            if not request.answer.done():
                request.answer.set_result(outcomes[at : at + len(request.commands)])
            at += len(request.commands)
        if self._observer is not None:
            self._observe(self._observer, commands, outcomes, asyncio.get_running_loop().time() - began)

    def _observe(
        self, observer: CommitObserver, commands: Sequence[Command], outcomes: Sequence[Outcome], seconds: float
    ) -> None:
        try:
            observer.committed(commands, outcomes, seconds)
        except Exception:
            logger.exception("what was committed could not be observed")
