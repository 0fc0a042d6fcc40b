"""The Store over a database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from typing_extensions import override

from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import RunId, ScheduleId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.system_clock import SystemClock
from owlclaw_ray.ledger.redaction import Redactor, TenantRedactors
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import Command, Outcome
from owlclaw_ray.store.queries import Query
from owlclaw_ray.store.sql import (
    access,
    artifacts,
    concurrency_limits,
    memories,
    queries,
    queue_lengths,
    row_security,
    run_ends,
    run_search,
    secrets,
    tenant_rows,
    usage,
)
from owlclaw_ray.store.sql.batch import Applier
from owlclaw_ray.store.sql.databases import Database
from owlclaw_ray.store.sql.failures import FAILURES, FailureAction, explain, failure_of

_ANSWERED_IN = (
    access,
    artifacts,
    concurrency_limits,
    memories,
    queries,
    queue_lengths,
    row_security,
    run_ends,
    run_search,
    secrets,
    tenant_rows,
    usage,
)
"""The modules that register the answers to queries, see queries.reads."""
_RACES = 5
_WRITABLE_SECONDS = 1.0
"""For how long after a commit the store counts as one that can be written."""
_LOCKED_SECONDS = 5.0
"""For how long batches wait only briefly for locks after one has waited in vain: by then the server has ended a session that is gone."""
Heard: TypeAlias = Callable[[Iterable[RunId], Iterable[ScheduleId]], None]
_T = TypeVar("_T")


class SqlStore(Store):
    """A Store on a database whose schema is up to date. Many may use one PostgreSQL database; one writes at a time here."""

    def __init__(
        self,
        database: Database,
        writer: str,
        redactors: TenantRedactors | None = None,
        restored_guards: tuple[str, ...] = (),
        cluster: str = "",
        *,
        clock: Clock | None = None,
    ) -> None:
        self.restored_guards = restored_guards
        """What the database had lost of the ledger's guards when it was opened."""
        self._database, self._clock = database, clock or SystemClock()
        self._applier = Applier(
            database.dialect, database.engine_dialect, writer, redactors or TenantRedactors(Redactor), cluster
        )
        self._heard: Heard | None = None
        self._turn, self._probing = asyncio.Lock(), asyncio.Lock()
        self._writable_until = self._locked_until = 0.0

    @override
    async def apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        """Commit them in one transaction, whose number of statements does not grow with the commands.

        A command that cannot be applied has the outcome CommandFailed, one whose rows another transaction keeps locked
        CommandBlocked, and the others stand. For such rows a batch waits at length once; for a few seconds after that, all wait briefly.
        """
        if not commands:
            return ()
        async with self._turn:
            outcomes = await self._apply(commands)
            news = self._applier.committed()
            self._note_commit()
        if self._heard is not None:
            self._heard(*news)
        return outcomes

    def tell(self, heard: Heard) -> None:
        """Call `heard` after every commit with the runs whose journals grew by it, or were given up with the run's end, and
        the schedules that it made or changed.
        """
        self._heard = heard

    def serve_node(self, node_id: str, generation: int) -> None:
        """From now on activate agents and claim runs only while the node is active and holds its row as this generation, see JoinNode."""
        self._applier.serve_node(node_id, generation)

    async def _apply(self, commands: Sequence[Command]) -> Sequence[Outcome]:
        locked = self._clock.monotonic() < self._locked_until
        apply, races = self._applier.together_waiting_briefly if locked else self._applier.together, 0
        while True:
            try:
                return await self._database.write(apply, commands)
            except Exception as error:
                failure = failure_of(error)
                if failure in (FailureAction.COMMAND, FailureAction.LOCKED) and apply != self._applier.one_by_one:
                    if failure is FailureAction.LOCKED and not locked:
                        self._locked_until = self._clock.monotonic() + _LOCKED_SECONDS
                    apply = self._applier.one_by_one
                    continue
                if failure is FailureAction.LOST_RACE and races < _RACES:
                    races += 1
                    continue
                self._writable_until = 0.0
                raise StoreUnavailableError(f"the store did not commit: {explain(error)}") from error

    @override
    async def check_writable(self) -> None:
        """Find out by a commit of its own where there was no other."""
        async with self._probing:
            if self._clock.monotonic() < self._writable_until:
                return
            try:
                await self._database.write(self._applier.probe)
            except FAILURES as error:
                raise StoreUnavailableError(f"the store cannot be written: {explain(error)}") from error
            self._note_commit()

    def _note_commit(self) -> None:
        self._writable_until = self._clock.monotonic() + _WRITABLE_SECONDS

    @override
    async def read(self, query: Query[_T]) -> _T:
        try:
            return await self._database.read(queries.answer, query, tenant=row_security.tenant_of(query))
        except FAILURES as error:
            raise StoreUnavailableError(f"the store cannot be read: {explain(error)}") from error

    @override
    async def close(self) -> None:
        await self._database.close()
