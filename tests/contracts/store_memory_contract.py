"""What every Store promises about the documents of memories, as tests."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import StoredDocument
from owlclaw_ray.ids import AgentId, TenantId
from owlclaw_ray.store.api import Store
from owlclaw_ray.store.commands import ChangeMemories, DocumentChange, MemoriesChanged, MemoriesStored
from owlclaw_ray.store.queries import AgentMemory, DocumentText, MemoryOfAgent
from tests.contracts.store_commands import AGENT, NOW, OTHER, one

ACTIVE, ARCHIVE = "MEMORY.md", "MEMORY.archive.md"
LATER = NOW + timedelta(seconds=1)


def change(expected: int, *changes: DocumentChange, name: str = "", agent: AgentRef = AGENT) -> ChangeMemories:
    """Return a change of the version `expected`."""
    return ChangeMemories(agent, expected, name or f"change_{expected}", changes, LATER if expected else NOW)


def written(text: bytes, document: str = ACTIVE, memories: int = 0) -> DocumentChange:
    """Return the change that makes this all that a document says, which is so many memories."""
    return DocumentChange(document, text, memories=memories)


def appended(text: bytes, document: str = ACTIVE, memories: int = 0) -> DocumentChange:
    """Return the change that adds this to a document, which is so many memories."""
    return DocumentChange(document, text, appended=True, memories=memories)


async def text_of(store: Store, document: str = ACTIVE, after: int = 0, agent: AgentRef = AGENT) -> DocumentText | None:
    """Return what a document says, or says since a version."""
    return (await store.read(MemoryOfAgent(agent, {document: after}))).texts.get(document)


class MemoryContract:
    """The documents of an agent's memory change together, and by one writer at a time."""

    async def test_an_agent_without_a_memory_has_none(self, store: Store) -> None:
        assert await store.read(MemoryOfAgent(AGENT, {ACTIVE: 0})) == AgentMemory(0, {}, {})

    async def test_documents_say_what_was_written_and_then_appended(self, store: Store) -> None:
        first = written("一\n".encode(), memories=1)
        assert await one(store, change(0, first, written(b"old\0", ARCHIVE))) == MemoriesStored(1)
        assert await one(store, change(1, appended(b"two\r\n", memories=2))) == MemoriesStored(2)

        found = await store.read(MemoryOfAgent(AGENT, {ACTIVE: 0, ARCHIVE: 0}))

        assert found == AgentMemory(
            2,
            {ACTIVE: StoredDocument(1, 2, 9, LATER, 3), ARCHIVE: StoredDocument(1, 1, 4, NOW, 0)},
            {ACTIVE: DocumentText("一\ntwo\r\n".encode(), True), ARCHIVE: DocumentText(b"old\0", True)},
        )
        assert await store.read(MemoryOfAgent(OTHER, {ACTIVE: 0})) == AgentMemory(0, {}, {})
        assert (await store.read(MemoryOfAgent(AGENT, {}))).texts == {}

    async def test_a_reader_gets_what_was_appended_since_and_all_of_what_was_written_since(self, store: Store) -> None:
        await one(store, change(0, written(b"one")))
        await one(store, change(1, appended(b" two")))

        assert await text_of(store, after=1) == DocumentText(b" two", False)
        assert await text_of(store, after=2) == DocumentText(b"", False)

        await one(store, change(2, written(b"three")))
        await one(store, change(3, appended(b" four")))
        assert await text_of(store, after=2) == DocumentText(b"three four", True)
        assert await text_of(store, after=3) == DocumentText(b" four", False)

    async def test_a_change_of_a_version_that_is_not_there_any_more_changes_nothing(self, store: Store) -> None:
        await one(store, change(0, written(b"one"), written(b"a", ARCHIVE)))

        assert await one(store, change(0, written(b"x"), appended(b"x", ARCHIVE), name="late")) == MemoriesChanged(1)
        assert await one(store, change(7, written(b"x"), name="odd")) == MemoriesChanged(1)
        assert await text_of(store) == DocumentText(b"one", True)
        assert await text_of(store, ARCHIVE) == DocumentText(b"a", True)

    async def test_the_same_change_again_changes_nothing_and_has_the_same_outcome(self, store: Store) -> None:
        await one(store, change(0, written(b"one")))
        twice = change(1, appended(b" two"))

        assert [await one(store, twice), await one(store, twice)] == [MemoriesStored(2), MemoriesStored(2)]
        assert await text_of(store) == DocumentText(b"one two", True)

    async def test_changes_of_one_transaction_come_one_after_the_other(self, store: Store) -> None:
        outcomes = await store.apply(
            [
                change(0, written(b"one")),
                change(1, appended(b" two")),
                change(1, appended(b" lost"), name="late"),
                change(2, written(b"three")),
                change(3, appended(b" four")),
                change(0, written(b"other"), agent=OTHER),
            ]
        )

        assert outcomes == [*map(MemoriesStored, (1, 2)), MemoriesChanged(2), *map(MemoriesStored, (3, 4, 1))]
        assert await text_of(store) == DocumentText(b"three four", True)
        assert await text_of(store, after=3) == DocumentText(b" four", False)
        assert await text_of(store, agent=OTHER) == DocumentText(b"other", True)

    async def test_of_several_who_change_one_version_at_once_one_does(self, store: Store) -> None:
        changes = [change(0, written(str(number).encode()), name=f"change_{number}") for number in range(8)]

        outcomes = await asyncio.gather(*(one(store, each) for each in changes))

        assert sorted(map(repr, outcomes)) == [*[repr(MemoriesChanged(1))] * 7, repr(MemoriesStored(1))]
        first = outcomes.index(MemoriesStored(1))
        assert await text_of(store) == DocumentText(str(first).encode(), True)

    async def test_tenants_with_agents_of_one_name_have_memories_of_their_own(self, store: Store) -> None:
        theirs = AgentRef(TenantId("other"), AgentId(AGENT.agent_id))
        await one(store, change(0, written(b"ours")))
        await one(store, change(0, written(b"theirs"), agent=theirs))

        assert await text_of(store) == DocumentText(b"ours", True)
        assert await text_of(store, agent=theirs) == DocumentText(b"theirs", True)

    async def test_a_large_document_comes_back_whole(self, store: Store) -> None:
        text = bytes(range(256)) * 20_000
        await one(store, change(0, written(text)))

        assert await text_of(store) == DocumentText(text, True)
