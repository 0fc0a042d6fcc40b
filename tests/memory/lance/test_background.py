import subprocess
import sys
import threading

import pytest

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.embedding import EmbeddingWait
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.memory.lance.damage import IndexUnusableError
from owlclaw_ray.memory.lance.table import MemoryTable
from tests.memory.lance.conftest import TRADER, LetterEmbedder, memory, recalled


class HeldEmbedder(LetterEmbedder):
    """Embeds documents when it is let go."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def embed_documents(self, texts, patience=EmbeddingWait.LONG):
        self.begun.set()
        assert self.let_go.wait(30)
        return super().embed_documents(texts, patience)


def test_remember_answers_before_anything_is_embedded(tmp_path, clock):
    embedder = HeldEmbedder()
    store = LanceMemory(tmp_path, FixedEmbedder(embedder), clock)
    stored = store.remember(TRADER, memory("a", "the harbour closes at six"))
    assert embedder.begun.wait(30)
    assert store.files.memories(TRADER) == (stored,)
    assert store.remember(TRADER, memory("b", "likes tea")).memory_id == "mem_b"
    embedder.let_go.set()
    store.settle()
    assert store.indexed(TRADER) == {"mem_a", "mem_b"}
    assert sorted(embedder.documents) == ["likes tea", "the harbour closes at six"]
    assert recalled(store, "harbour", 1) == ["the harbour closes at six"]


def test_memories_go_to_the_index_in_batches(store, monkeypatch):
    batches = []
    real = MemoryTable.add

    def add(self, memories, vectors):
        batches.append(len(memories))
        real(self, memories, vectors)

    monkeypatch.setattr(MemoryTable, "add", add)
    for number in range(50):
        store.remember(TRADER, memory(number, f"fact number{number}"))
    store.settle()
    assert sum(batches) == 50
    assert len(batches) < 10
    assert recalled(store, "number31", 1) == ["fact number31"]


def test_a_recall_finds_what_was_remembered_a_moment_ago(store):
    for number in range(20):
        store.remember(TRADER, memory(number, f"fact number{number}"))
        assert recalled(store, f"number{number}", 1) == [f"fact number{number}"]


def test_agents_that_are_noted_together_are_all_indexed(store):
    agents = [AgentRef.parse(f"trader:{number}") for number in range(5)]
    for agent in agents:
        store.remember(agent, memory("a", f"fact of {agent}"))
    store.settle()
    assert [store.indexed(agent) for agent in agents] == [{"mem_a"}] * 5


def test_an_edit_reaches_the_index_with_the_next_memory(store):
    store.remember(TRADER, memory("a", "the limit is 500 euros"))
    store.settle()
    store.files.edit(TRADER, "mem_a", "the limit is 700 euros")
    store.files.archive(TRADER, ["mem_x"])
    store.remember(TRADER, memory("b", "likes green tea"))
    store.settle()
    assert recalled(store, "700", 1) == ["the limit is 700 euros"]
    assert store.files.delete(TRADER, "mem_a").content == "the limit is 700 euros"
    assert recalled(store, "limit 700", 1) != ["the limit is 700 euros"]
    assert store.indexed(TRADER) == {"mem_b"}


@pytest.mark.parametrize(
    ("first", "second", "query"),
    [
        ("the cafe\u0301 opens at six", "the café opens at six", "café"),
        ("the café opens at six", "the cafe\u0301 opens at six", "café"),
        ("限额是\uff15\uff10\uff10\uff10元", "限额是5000元", "5000"),
    ],
)
def test_a_memory_is_found_by_each_form_in_which_it_was_remembered(store, first, second, query):
    store.remember(TRADER, memory("a", "the harbour closes at ten"))
    for number, content in enumerate((first, second)):
        store.remember(TRADER, memory(number, content))
        store.settle()
    assert recalled(store, query, 1) == [first]
    store.files.archive(TRADER, ["mem_0"])
    assert [each.memory.content for each in store.files.search_archive(TRADER, query, 5).memories] == [first]


def test_a_merged_memory_is_found_by_its_new_tags(store):
    store.remember(TRADER, memory("a", "the customer likes tea", ("drinks",)))
    store.settle()
    store.remember(TRADER, memory("b", "the customer likes tea.", ("orders",)))
    assert recalled(store, "tea", tags=("drinks", "orders")) == ["the customer likes tea"]
    assert store.indexed(TRADER) == {"mem_a"}


def test_reindexing_makes_the_index_anew(store):
    for number in range(3):
        store.remember(TRADER, memory(number, f"fact number{number}"))
    store.settle()
    before = set((store.files.folder(TRADER) / "index").rglob("data/*.lance"))
    assert store.reindex(TRADER) == 3
    store.settle()
    after = set((store.files.folder(TRADER) / "index").rglob("data/*.lance"))
    assert after
    assert not before & after
    assert recalled(store, "number2", 1) == ["fact number2"]


def test_reindexing_says_when_it_cannot(store):
    store.remember(TRADER, memory("a", "likes tea"))
    store.settle()
    index = store.files.folder(TRADER) / "index"
    index.rename(index.with_name("away"))
    index.write_text("a file where the folder should be")
    with pytest.raises(IndexUnusableError, match="unusable"):
        store.reindex(TRADER)


DYING = """
import os, sys
from pathlib import Path
from tests.memory.lance.conftest import TRADER, LetterEmbedder, memory
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.kernel.system_clock import SystemClock
store = LanceMemory(Path(sys.argv[1]), FixedEmbedder(LetterEmbedder()), SystemClock())
store.remember(TRADER, memory("a", "the harbour closes at six"))
os._exit(0) if sys.argv[2] == "at once" else sys.exit(0)
"""


@pytest.mark.parametrize("how", ["at once", "in order"])
def test_what_a_process_did_not_index_the_next_one_does(tmp_path, clock, how):
    subprocess.run([sys.executable, "-c", DYING, str(tmp_path), how], check=True, timeout=60)
    store = LanceMemory(tmp_path, FixedEmbedder(LetterEmbedder()), clock)
    assert recalled(store, "harbour") == ["the harbour closes at six"]
    store.settle()
    assert store.indexed(TRADER) == {"mem_a"}


def test_after_it_was_stopped_memories_are_still_stored_and_found(store):
    store.remember(TRADER, memory("a", "likes tea"))
    store._background.stop()
    store.remember(TRADER, memory("b", "hates rain"))
    assert set(recalled(store, "likes tea hates rain")) == {"likes tea", "hates rain"}
