"""Two processes with one agent's index, each of which has it open."""

import subprocess
import sys
import threading

import pytest

from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.embedding import EmbeddingWait
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.memory.lance.damage import IndexUnusableError
from owlclaw_ray.memory.lock import FileLock
from tests.memory.lance.conftest import TRADER, LetterEmbedder, memory

REINDEXING = """
import sys
from pathlib import Path
from tests.memory.lance.conftest import TRADER, LetterEmbedder
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.kernel.system_clock import SystemClock
embedder = LetterEmbedder()
embedder.broken = True
store = LanceMemory(Path(sys.argv[1]), FixedEmbedder(embedder), SystemClock())
assert store.reindex(TRADER) == 3
store.settle()
"""


def test_a_table_that_another_process_made_anew_is_told_from_the_one_before(tmp_path, clock):
    store = LanceMemory(tmp_path, FixedEmbedder(LetterEmbedder()), clock)
    for number in range(3):
        store.remember(TRADER, memory(number, f"fact number{number}"))
    store.settle()
    before = store._index(TRADER)._table.version
    assert store.recall(TRADER, "number1", 5).memories[0].parts.cosine is not None

    subprocess.run([sys.executable, "-c", REINDEXING, str(tmp_path)], check=True, timeout=60)

    after = store._index(TRADER)._table.version
    assert (after[-1], after != before) == (before[-1], True), "they differ in nothing but their making"
    found = store.recall(TRADER, "number2", 5)
    assert [each.parts.cosine is not None for each in found.memories] == [True] * 3


class HeldAtTheFirst(LetterEmbedder):
    """Is held up with its first documents until it is let go."""

    def __init__(self, id_):
        super().__init__(id_)
        self.begun, self.let_go = threading.Event(), threading.Event()

    def embed_documents(self, texts, patience=EmbeddingWait.LONG):
        self.begun.set()
        assert self.let_go.wait(30)
        return super().embed_documents(texts, patience)


@pytest.fixture
def held():
    return HeldAtTheFirst("new")


@pytest.fixture
def at_work(tmp_path, clock, held):
    """A worker that is busy embedding 20 memories with a new model, for which there was another."""
    old = LanceMemory(tmp_path, FixedEmbedder(LetterEmbedder("old")), clock)
    for number in range(20):
        old.remember(TRADER, memory(number, f"fact number{number}"))
    old.settle()
    store = LanceMemory(tmp_path, FixedEmbedder(held), clock)
    store.refresh(TRADER)
    assert held.begun.wait(30)
    yield store
    held.let_go.set()
    store.settle()


def test_of_several_workers_one_embeds_an_agents_memories_anew(tmp_path, clock, at_work, held):
    idle = LetterEmbedder("new")
    other = LanceMemory(tmp_path, FixedEmbedder(idle), clock)

    other.catch_up(TRADER, lambda: True)
    found = other.recall(TRADER, "number7", 1)
    other.settle()

    assert idle.documents == []
    assert [each.memory.content for each in found.memories] == ["fact number7"]
    held.let_go.set()
    at_work.settle()
    assert sorted(held.documents) == sorted(f"fact number{number}" for number in range(20))
    assert other.recall(TRADER, "number8", 1).memories[0].parts.cosine is not None
    assert idle.documents == []


def test_what_is_gone_leaves_the_index_while_another_worker_embeds(tmp_path, clock, at_work, held):
    other = LanceMemory(tmp_path, FixedEmbedder(LetterEmbedder("new")), clock)
    other.recall(TRADER, "number7", 1)
    assert "mem_7" in other.indexed(TRADER)

    other.files.delete(TRADER, "mem_7")
    other.refresh(TRADER)
    other.settle()

    assert other.indexed(TRADER) == {f"mem_{number}" for number in range(20) if number != 7}


def test_what_somebody_else_kept_from_being_embedded_is_found_by_words_and_embedded_later(
    tmp_path, clock, held, monkeypatch
):
    monkeypatch.setattr("owlclaw_ray.memory.lance.background._AGAIN_SECONDS", 0.0)
    held.let_go.set()
    store = LanceMemory(tmp_path, FixedEmbedder(held), clock)
    store.remember(TRADER, memory("a", "likes green tea"))
    store.settle()
    held.begun.clear()

    with FileLock(store.files.folder(TRADER) / ".embedding-new.lock"):
        store.remember(TRADER, memory("b", "the harbour closes at six"))
        store.settle()
        assert store.indexed(TRADER) == {"mem_a", "mem_b"}
        assert not held.begun.is_set()

    assert held.begun.wait(30)


def test_a_lock_that_cannot_be_had_at_all_is_told_and_does_not_hinder_a_recall(tmp_path, clock, caplog):
    store = LanceMemory(tmp_path, FixedEmbedder(LetterEmbedder("new")), clock)
    (store.files.folder(TRADER) / ".embedding-new.lock").mkdir(parents=True)
    store.remember(TRADER, memory("a", "likes green tea"))

    with pytest.raises(IndexUnusableError, match=r"nothing can be embedded: .*Is a directory"):
        store.catch_up(TRADER, lambda: True)

    assert [each.memory.content for each in store.recall(TRADER, "tea", 5).memories] == ["likes green tea"]
    assert "nothing can be embedded" in caplog.text


def test_a_recall_waits_a_little_for_who_embeds_what_was_just_remembered(tmp_path, clock):
    held = HeldAtTheFirst("new")

    class Asking(LetterEmbedder):
        def embed_queries(self, texts):
            held.let_go.set()
            return super().embed_queries(texts)

    asking = Asking("new")
    held.let_go.set()
    writer, reader = (LanceMemory(tmp_path, FixedEmbedder(each), clock) for each in (held, asking))
    writer.remember(TRADER, memory("a", "likes green tea"))
    writer.settle()
    held.let_go.clear()
    held.begun.clear()
    writer.remember(TRADER, memory("b", "the harbour closes at six"))
    assert held.begun.wait(30)

    found = reader.recall(TRADER, "zzz", 5)

    assert {each.memory.memory_id: each.parts.cosine is not None for each in found.memories} == {
        "mem_a": True,
        "mem_b": True,
    }
    assert asking.documents == []


def test_what_somebody_waits_for_is_embedded_with_little_patience(tmp_path, clock):
    patience_of = {}

    class Patient(LetterEmbedder):
        def embed_documents(self, texts, patience=EmbeddingWait.LONG):
            patience_of.update(dict.fromkeys(texts, patience))
            return super().embed_documents(texts, patience)

    store = LanceMemory(tmp_path, FixedEmbedder(Patient()), clock)
    store.remember(TRADER, memory("a", "likes green tea"))
    store.settle()
    store._background.stop()
    store.remember(TRADER, memory("b", "the harbour closes at six"))
    store.recall(TRADER, "tea", 5)

    assert patience_of == {"likes green tea": EmbeddingWait.LONG, "the harbour closes at six": EmbeddingWait.SHORT}


def test_what_was_deleted_while_a_recall_waited_is_not_put_back(tmp_path, clock):
    class Deleting(LetterEmbedder):
        """While it embeds the first question, another worker deletes a memory."""

        def embed_queries(self, texts):
            writer.files.delete(TRADER, "mem_a")
            writer.refresh(TRADER)
            writer.settle()
            return super().embed_queries(texts)

    writer, reader = (LanceMemory(tmp_path, FixedEmbedder(each), clock) for each in (LetterEmbedder(), Deleting()))
    writer.remember(TRADER, memory("a", "likes green tea"))
    writer.remember(TRADER, memory("b", "the harbour closes at six"))
    writer.settle()

    reader.recall(TRADER, "tea", 5)

    assert reader.indexed(TRADER) == {"mem_b"}


def test_what_was_deleted_while_a_recall_embedded_it_leaves_the_index(tmp_path, clock):
    class Deleting(LetterEmbedder):
        def embed_documents(self, texts, patience=EmbeddingWait.LONG):
            if patience is EmbeddingWait.SHORT:
                store.files.delete(TRADER, "mem_b")
            return super().embed_documents(texts, patience)

    store = LanceMemory(tmp_path, FixedEmbedder(Deleting()), clock)
    store.remember(TRADER, memory("a", "likes green tea"))
    store.settle()
    store._background.stop()
    store.remember(TRADER, memory("b", "the harbour closes at six"))

    store.recall(TRADER, "tea", 5)

    assert store.indexed(TRADER) == {"mem_a"}
