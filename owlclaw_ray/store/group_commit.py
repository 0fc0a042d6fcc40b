"""Many callers' commands in few transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.webhook import Delivery
from owlclaw_ray.errors import StoreOverloadedError, StoreUnavailableError
from owlclaw_ray.ids import TenantId
from owlclaw_ray.kernel.batcher import WAITING, BatchCapacity, Bound, Loads, Turns
from owlclaw_ray.store.api import CommandStore
from owlclaw_ray.store.commands import (
    Command,
    CommandBlocked,
    EndHandover,
    HoldLease,
    Outcome,
    ReceiveDelivery,
    ReleaseLease,
    SubmitRun,
)

TRANSACTION_BYTES = 8 * 1024 * 1024
_ABOUT_LEASE = (HoldLease, ReleaseLease, EndHandover)

logger = logging.getLogger(__name__)


def unblocked(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """Return the outcomes; raises StoreUnavailableError if one is CommandBlocked: its caller may try again."""
    for outcome in outcomes:
        if isinstance(outcome, CommandBlocked):
            raise StoreUnavailableError(f"rows are locked by another transaction: {outcome.message}")
    return outcomes


class CommitObserver(Protocol):
    """Is told of every transaction after its callers were answered; nobody waits for it."""

    def committed(self, commands: Sequence[Command], outcomes: Sequence[Outcome], seconds: float) -> None:
        """Take note. `seconds` is how long the transaction took."""
        ...


def tenant_of_new_work(command: object) -> TenantId | None:
    """Return whose new work this is, whose sender can be told to try again later: a trigger, or a webhook. None: it is something else,
    or nothing can be made of it.
    """
    match command:
        case SubmitRun(agent=AgentRef(tenant=tenant)) | ReceiveDelivery(delivery=Delivery(tenant=tenant)):
            return tenant
        case _:
            return None


def loads_of(tenants: Sequence[TenantId | None], sizes: Sequence[int]) -> Loads:
    """Return how many commands, with how many bytes, are new work of each tenant, and of None those that are no new work.

    `tenants` says of each command what `tenant_of_new_work` returns for it.
    """
    if len(tenants) == 1:
        return {tenants[0]: Bound(1, sizes[0])}
    loads: dict[TenantId | None, Bound] = {}
    for tenant, size in zip(tenants, sizes, strict=True):
        before = loads.get(tenant)
        loads[tenant] = Bound(1, size) if before is None else Bound(before.items + 1, before.size + size)
    return loads


class _PendingCommit(Struct, frozen=True):
    commands: Sequence[Command]
    size: int
    answer: asyncio.Future[Sequence[Outcome]]


class GroupCommit:
    """A CommandStore for many callers at once, over one that takes a batch at a time.

    One transaction runs at a time; what arrives meanwhile goes into the next one, whole requests, up to `max_batch` commands and
    `max_bytes` (a larger request goes alone). If the last transaction was shared, the next one waits up to `linger` seconds for
    company; a request that comes alone waits for nobody.

    Requests that are all new work of one tenant have their turns beside those of other tenants and beside all other requests;
    those of one tenant, and all others, go in the order of their coming. Requests about the lease of the store wait for the transaction
    that is under way, and for no request: behind a takeover of many agents their answer came after the lease had been given up.

    Beyond `waiting`, commands and their bytes, requests that are all new work are refused, and those of a tenant that has three
    quarters of it, if there is another one. All others are taken: they carry on what was accepted, and whoever makes them waits
    for each before the next.
    """

    def __init__(
        self,
        store: CommandStore,
        *,
        max_batch: int = 512,
        max_bytes: int = TRANSACTION_BYTES,
        linger: float = 0.002,
        waiting: Bound = WAITING,
        observer: CommitObserver | None = None,
    ) -> None:
        self._store, self._most, self._linger = store, Bound(max_batch, max_bytes), linger
        self._waiting: Turns[_PendingCommit] = Turns()
        self._waiting_commands = self._waiting_bytes = 0
        self._room = BatchCapacity(waiting)
        self._full = asyncio.Event()
        self._shared = False
        self._observer = observer
        self._committer: asyncio.Task[None] | None = None
        self._closed = False
        self._alone: set[asyncio.Task[None]] = set()
        """Transactions about the lease."""

    def has_room(self, commands: int, size: int, tenant: TenantId) -> bool:
        """Return whether so many more commands, of so many bytes, that are new work of the tenant may wait."""
        return self._room.has(commands, size, tenant)

    async def apply(self, commands: Sequence[Command], sizes: Sequence[int] = ()) -> Sequence[Outcome]:
        """As CommandStore.apply; also StoreOverloadedError. `sizes`: the bytes of each command, if they are known.

        A caller that is cancelled while it waits does not take its commands back.
        """
        if self._closed:
            raise StoreUnavailableError("the store is closing")
        if not commands:
            return ()
        if all(isinstance(each, _ABOUT_LEASE) for each in commands):
            return await self._apply_alone(commands)
        loads = loads_of([tenant_of_new_work(each) for each in commands], sizes or (0,) * len(commands))
        fits = (each is None or self.has_room(load.items, load.size, each) for each, load in loads.items())
        if None not in loads and not all(fits):
            raise StoreOverloadedError("too much waits to be committed")
        answer: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
        size = sum(sizes)
        self._waiting.add(_PendingCommit(commands, size, answer), next(iter(loads)) if len(loads) == 1 else None)
        self._waiting_commands += len(commands)
        self._waiting_bytes += size
        if self._is_batch_full():
            self._full.set()
        if self._committer is None:
            self._committer = asyncio.create_task(self._commit_all())
        with self._room.taken(loads):
            return await answer

    async def _apply_alone(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        answer: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
        commit = asyncio.create_task(self._commit([_PendingCommit(commands, 0, answer)]))
        self._alone.add(commit)
        commit.add_done_callback(self._alone.discard)
        return await answer

    async def close(self) -> None:
        """Commit what was asked for so far, and take no more. The store itself stays open."""
        self._closed = True
        self._full.set()
        await asyncio.gather(*self._alone)
        if self._committer is not None:
            await self._committer

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._wait_for_more()
                await self._commit(self._next_batch())
        finally:
            self._committer = None

    async def _wait_for_more(self) -> None:
        if not self._shared or self._full.is_set() or self._linger <= 0:
            return
        try:
            async with asyncio.timeout(self._linger):
                await self._full.wait()
        except TimeoutError:
            return

    def _next_batch(self) -> list[_PendingCommit]:
        batch = [self._waiting.take()]
        commands, size = len(batch[0].commands), batch[0].size
        while self._waiting:
            following = self._waiting.first()
            if not self._most.holds(commands + len(following.commands), size + following.size):
                break
            batch.append(self._waiting.take())
            commands += len(following.commands)
            size += following.size
        self._shared = len(batch) > 1
        self._waiting_commands -= commands
        self._waiting_bytes -= size
        if not self._is_batch_full() and not self._closed:
            self._full.clear()
        return batch

    def _is_batch_full(self) -> bool:
        return self._waiting_commands >= self._most.items or self._waiting_bytes >= self._most.size

    async def _commit(self, batch: Sequence[_PendingCommit]) -> None:
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
