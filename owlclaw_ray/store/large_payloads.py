"""The payloads that claims leave in the store because they are large: read when their runs are executed, as many as there is room for.

A host claims the runs of a thousand agents in one message. With their payloads it would have no bound; see ADR 26.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from msgspec.structs import replace

from owlclaw_ray.domain.run import Run
from owlclaw_ray.errors import TerminalError
from owlclaw_ray.kernel.batcher import BatchCapacity, Bound
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.commands import RunClaimed
from owlclaw_ray.store.durable_store import until_available
from owlclaw_ray.store.queries import RunById

EXECUTED = Bound(1_000, 32 * 1024 * 1024)
"""What runs with large payloads may take together, in number and in characters of these. A run takes several times as much: its
prompt, the request that a model gets.
"""


class LargePayloads:
    """Gives runs with their payloads, and bounds how many large ones are executed at once in this process."""

    def __init__(self, store: QueryStore, clock: Clock, most: Bound = EXECUTED) -> None:
        self._store, self._clock = store, clock
        self._room = BatchCapacity(most)

    def whole(self, claimed: RunClaimed) -> AbstractAsyncContextManager[Run]:
        """Give the run as it is to be executed. One with a large payload waits until there is room for it, and takes it up to the end
        of the block.
        """
        return self._in_its_place(claimed) if claimed.payload_left else nullcontext(claimed.run)

    @asynccontextmanager
    async def _in_its_place(self, claimed: RunClaimed) -> AsyncIterator[Run]:
        await self._room.wait()
        with self._room.taken({None: Bound(1, claimed.payload_left)}):
            yield await self._read(claimed.run)

    async def _read(self, run: Run) -> Run:
        found = await until_available(self._clock, lambda: self._store.read(RunById(run.agent.tenant, run.run_id)))
        if found is None:
            raise TerminalError(f"the store has no run {run.run_id} any more")
        return replace(run, trigger=replace(run.trigger, content=found.trigger.content))
