"""Everything that a tenant has, as lines of JSON: read page by page, so that neither memory nor a transaction grows with it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version

import orjson

from owlclaw_ray.access.tenants import Tenants
from owlclaw_ray.definitions.api import NamedDefinitions
from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.artifact import StoredArtifact
from owlclaw_ray.domain.json import JsonObject
from owlclaw_ray.domain.tenant import TenantStatus
from owlclaw_ray.errors import AccessConflictError, NotFoundError
from owlclaw_ray.ids import AgentId, TenantId
from owlclaw_ray.kernel.clock import Clock
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.store.api import QueryStore
from owlclaw_ray.store.tenant_rows import TenantRowPage
from owlclaw_ray.tools.artifact_home import ArtifactHome

FORMAT = "owlclaw-tenant-export"
FORMAT_VERSION = 1
TABLES = (
    "tenants",
    "agents",
    "blobs",
    "tasks",
    "approvals",
    "callbacks",
    "webhook_deliveries",
    "idempotency_keys",
    "budgets",
    "budget_reservations",
    "secrets",
    "access_keys",
    "usage_of_tenants",
    "usage_of_agents",
    "usage_of_tools",
    "ledger",
    "ledger_heads",
)
"""Whose rows are written as they are in the store, in this order."""
FAMILIES = (("runs", "journal"), ("schedules", "ticks"))
"""Tables whose rows are followed by those of another one that belong to them."""
INSTEAD = ("memories", "memory_parts", "artifacts", "artifact_parts", "focus_terms")
"""Tables that are not written: memories and artifacts are, wherever they are kept, and the words of focuses are in the runs."""
_ROWS = 50
_PART_BYTES = 512 * 1024
_ARTIFACTS = 1_000_000


class TenantExport:
    """Exports tenants. Values of secrets, and hashes of keys, are in no export."""

    def __init__(
        self,
        *,
        tenants: Tenants,
        store: QueryStore,
        memories: MemoryFolders,
        artifacts: ArtifactHome,
        definitions: NamedDefinitions,
        clock: Clock,
    ) -> None:
        self._tenants, self._store, self._memories, self._artifacts = tenants, store, memories, artifacts
        self._definitions, self._clock = definitions, clock

    async def begin(self, tenant: TenantId) -> AsyncIterator[bytes]:
        """Return the lines, each with its end: what is exported first, everything of the tenant, and last how many lines of each kind.

        What changes meanwhile is in them as it was before or after. Of a deleted tenant there is its ledger. Raises NotFoundError, and
        AccessConflictError while the tenant is being deleted; while lines are read, StoreUnavailableError, OSError or RetryableError:
        then the last line is missing.
        """
        if tenant != "default":
            found = await self._tenants.tenant(tenant)
            if found.status is TenantStatus.DELETING:
                raise AccessConflictError(f"tenant {tenant!r} is being deleted: a part of it is gone")
        return self._lines(tenant)

    async def _lines(self, tenant: TenantId) -> AsyncIterator[bytes]:
        counts: Counter[str] = Counter()
        head = {"format": FORMAT, "format_version": FORMAT_VERSION, "version": version("owlclaw-ray"), "tenant": tenant}
        yield _line({"type": "export", **head, "at": self._clock.now().isoformat()})
        async for of, line in self._everything(tenant):
            counts[of] += 1
            yield _line(line)
        yield _line({"type": "end", "counts": dict(sorted(counts.items())), "lines": counts.total() + 2})

    async def _everything(self, tenant: TenantId) -> AsyncIterator[tuple[str, JsonObject]]:
        agents = {AgentRef(tenant, AgentId(name)) for name in await self._definitions.names(tenant)}
        agents |= set(await asyncio.to_thread(self._memories.agents_of, tenant))
        for table in TABLES:
            async for rows, _ in self._pages(tenant, table):
                for row in rows:
                    yield table, _row(table, row)
        for table, of_these in FAMILIES:
            async for rows, keys in self._pages(tenant, table):
                for row in rows:
                    yield table, _row(table, row)
                async for belonging, _ in self._pages(tenant, of_these, tuple(keys)):
                    for row in belonging:
                        yield of_these, _row(of_these, row)
        for table in ("agents", "memories", "artifacts"):
            async for rows, _ in self._pages(tenant, table):
                agents |= {AgentRef(tenant, AgentId(row["agent"].partition("/")[2])) for row in rows}
        for agent in sorted(agents, key=lambda each: each.agent_id):
            async for found in self._of_agent(agent):
                yield found

    async def _pages(
        self, tenant: TenantId, table: str, parents: tuple[str, ...] | None = None
    ) -> AsyncIterator[tuple[Sequence[JsonObject], Sequence[str]]]:
        after: tuple[str | int, ...] | None = None
        while True:
            page = await self._store.read(TenantRowPage(tenant, table, after, _ROWS, parents))
            yield page.rows, page.keys
            after = page.after
            if after is None:
                return

    async def _of_agent(self, agent: AgentRef) -> AsyncIterator[tuple[str, JsonObject]]:
        """Yield the agent's memories and artifacts."""
        documents: tuple[tuple[str, Callable[[AgentRef], bytes]], ...] = (
            ("MEMORY.md", self._memories.text),
            ("MEMORY.archive.md", self._memories.archive_text),
        )
        for name, read in documents:
            text = await asyncio.to_thread(read, agent)
            if text:
                yield "memory", {"type": "memory", "agent": agent.agent_id, "document": name, **_content(text)}
        for artifact in await asyncio.to_thread(self._artifacts.listing, agent, _ARTIFACTS):
            try:
                async for line in self._artifact(agent, artifact):
                    yield str(line["type"]), line
            except NotFoundError:
                gone = {"type": "artifact_gone", "agent": agent.agent_id, "artifact_id": artifact.artifact_id}
                yield "artifact_gone", gone

    async def _artifact(self, agent: AgentRef, artifact: StoredArtifact) -> AsyncIterator[JsonObject]:
        reader = await asyncio.to_thread(self._artifacts.open, agent, artifact.artifact_id)
        which = {"agent": agent.agent_id, "artifact_id": artifact.artifact_id}
        about = {"media_type": reader.media_type, "size_bytes": reader.size_bytes}
        yield {"type": "artifact", **which, **about, "stored_at": artifact.stored_at.isoformat()}
        for start in range(0, reader.size_bytes, _PART_BYTES):
            part = await asyncio.to_thread(reader.read, start, start + _PART_BYTES)
            yield {"type": "artifact_part", **which, "start": start, "base64": b64encode(part).decode()}


def _row(table: str, row: JsonObject) -> JsonObject:
    return {"type": "row", "table": table, "row": row}


def _content(text: bytes) -> JsonObject:
    try:
        return {"text": text.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(text).decode()}


def _line(said: JsonObject) -> bytes:
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)
