"""Memories in the database, on the working set: a version for all documents of an agent, and the parts that each was changed by."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, and_, or_, select

from owlclaw_ray.domain.memory import StoredDocument
from owlclaw_ray.domain.quota import MEMORIES, MEMORY_BYTES
from owlclaw_ray.store.commands import ChangeMemories, MemoriesChanged, MemoriesStored, QuotaReached
from owlclaw_ray.store.queries import AgentMemory, DocumentText, MemoryOfAgent
from owlclaw_ray.store.sql.codec import agent_key
from owlclaw_ray.store.sql.command_registry import applies
from owlclaw_ray.store.sql.queries import reads
from owlclaw_ray.store.sql.quotas import bytes_of, count, documents_of, memories_of, reached
from owlclaw_ray.store.sql.row_needs import RowNeeds
from owlclaw_ray.store.sql.schema import memories, memory_parts
from owlclaw_ray.store.sql.working_set import MemoryRow, WorkingSet


def _need_memory(needs: RowNeeds, command: ChangeMemories) -> None:
    needs.memories.add(agent_key(command.agent))
    needs.counts.add(agent_key(command.agent))


@applies(ChangeMemories, needs=_need_memory)
def change_memories(store: WorkingSet, command: ChangeMemories) -> MemoriesStored | MemoriesChanged | QuotaReached:
    """Change the documents, if nobody else changed the memory, and there is room for more of it."""
    key = agent_key(command.agent)
    row = store.memories[key]
    if row.version and row.change_id == command.change_id:
        return MemoriesStored(row.version)
    if row.version != command.expected:
        return MemoriesChanged(row.version)
    version, documents = row.version + 1, documents_of(row.documents)
    stored = dict(documents)
    for change in command.changes:
        before = documents.get(change.document)
        if before is None or not change.appended:
            before = StoredDocument(version, version, 0, command.at, memories=0)
        documents[change.document] = StoredDocument(
            before.begun,
            version,
            before.size + len(change.text),
            command.at,
            (before.memories or 0) + change.memories,
        )
    tenant = command.agent.tenant
    more = {
        MEMORIES: memories_of(documents) - memories_of(stored),
        MEMORY_BYTES: bytes_of(documents) - bytes_of(stored),
    }
    for quota, number in more.items():
        refused = reached(store, tenant, quota, number) if number > 0 else None
        if refused is not None:
            return refused
    for quota, number in more.items():
        count(store, tenant, quota, number)
    for change in command.changes:
        begun = documents[change.document].begun
        store.add_memory_part(key, change.document, version, change.text, replaces=begun == version)
    store.put_memory(MemoryRow(key, version, command.change_id, msgspec.json.encode(documents).decode()))
    return MemoriesStored(version)


@reads(MemoryOfAgent)
def _read_memory(connection: Connection, query: MemoryOfAgent) -> AgentMemory:
    """One statement, so that the parts are those of the version."""
    wanted = [
        (memory_parts.c.document == name) & (memory_parts.c.version > after) for name, after in query.after.items()
    ]
    parts = and_(memory_parts.c.agent == memories.c.agent, or_(*wanted)) if wanted else memory_parts.c.version < 0
    found = (
        select(memories.c.version, memories.c.documents, memory_parts.c.document, memory_parts.c.content)
        .select_from(memories.outerjoin(memory_parts, parts))
        .where(memories.c.agent == agent_key(query.agent))
        .order_by(memory_parts.c.document, memory_parts.c.version)
    )
    rows = connection.execute(found).all()
    if not rows:
        return AgentMemory(0, {}, {})
    documents = documents_of(rows[0].documents)
    texts: dict[str, list[bytes]] = {name: [] for name in query.after if name in documents}
    for row in rows:
        if row.document is not None:
            texts[row.document].append(row.content)
    return AgentMemory(
        rows[0].version,
        documents,
        {
            name: DocumentText(b"".join(each), whole=documents[name].begun > query.after[name])
            for name, each in texts.items()
        },
    )
