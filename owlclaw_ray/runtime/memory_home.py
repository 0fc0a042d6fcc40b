"""The home of memories that the settings name, for whoever needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import assert_never

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import MemoryHomeKind
from owlclaw_ray.domain.retention import Kept
from owlclaw_ray.errors import StoreUnavailableError
from owlclaw_ray.ids import DEFAULT_TENANT, RandomIds, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.kernel.file_threads import in_file_thread
from owlclaw_ray.memory.documents import ACTIVE, MemoryHome
from owlclaw_ray.memory.file_home import FileHome
from owlclaw_ray.memory.stored_home import MemoryStore, StoredHome
from owlclaw_ray.store.api import QueryFunction, QueryStore
from owlclaw_ray.store.queries import MemoryOfAgent, TenantById


def memory_home(
    kind: MemoryHomeKind, store: MemoryStore, data_dir: Path, clock: Clock, patience: float | None = None
) -> MemoryHome:
    """Return the home. Who has an agent's documents locked is waited for as long as `patience`, in seconds; None: however long."""
    match kind:
        case MemoryHomeKind.FILES:
            return FileHome(data_dir, patience)
        case MemoryHomeKind.DATABASE:
            return StoredHome(store, data_dir, clock, RandomIds(), patience)
        case unknown:
            assert_never(unknown)


def memory_retention(read: QueryFunction, general: timedelta | None) -> Callable[[TenantId], timedelta | None]:
    """Return what says how long a tenant's memories are kept; `general` is for those that say nothing of their own; None: for ever.

    It raises what `read` does: RetryableError.
    """

    def of(tenant: TenantId) -> timedelta | None:
        found = None if tenant == DEFAULT_TENANT else read(TenantById(tenant))
        return general if found is None else found.retention.keep(Kept.MEMORIES, general)

    return of


def has_memories(kind: MemoryHomeKind, store: QueryStore, data_dir: Path) -> Callable[[AgentRef], Awaitable[bool]]:
    """Return what tells whether an agent may have memories, at little cost."""

    async def in_files(agent: AgentRef) -> bool:
        return await in_file_thread((data_dir / "agents" / agent.folder / ACTIVE).exists)

    async def in_store(agent: AgentRef) -> bool:
        try:
            return ACTIVE in (await store.read(MemoryOfAgent(agent, {}))).documents
        except StoreUnavailableError:
            return True

    return in_files if kind is MemoryHomeKind.FILES else in_store
