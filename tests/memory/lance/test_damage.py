import random
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.errors import ToolTimeoutError
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.memory.lance.damage import IndexUnusableError, index_errors
from owlclaw_ray.memory.lance.table import MemoryTable
from owlclaw_ray.memory.lexical import words
from tests.memory.lance.conftest import NOW, TRADER, LetterEmbedder, memory, recalled
from tests.properties import examples

QUERY, BEST = "number3", "客户 number3"


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("healthy")
    store = LanceMemory(folder, FixedEmbedder(LetterEmbedder()), StoppedClock())
    for number in range(9):
        store.remember(TRADER, memory(number, f"客户 number{number}"))
    store.settle()
    store._index(TRADER)._table.optimize()
    store.remember(TRADER, memory("last", "客户 not optimized"))
    store.settle()
    return folder


class StoppedClock:
    """A clock for a fixture that outlives one test's."""

    def now(self):
        return NOW

    def monotonic(self):
        return 0.0

    async def sleep(self, seconds):
        raise AssertionError


def damage(path, how):
    data = path.read_bytes()
    match how:
        case "deleted":
            path.unlink()
        case "cut":
            path.write_bytes(data[: len(data) // 2])
        case "garbled":
            path.write_bytes(random.Random(7).randbytes(len(data)))


@pytest.mark.parametrize("how", ["deleted", "garbled"])
@pytest.mark.parametrize("when", ["before it is opened", "while it is open"])
@pytest.mark.parametrize("kind", ["*.manifest", "data/*.lance", "metadata.lance", "part_0_*.lance"])
def test_a_damaged_index_is_made_again(healthy, tmp_path, how, when, kind):
    folder = shutil.copytree(healthy, tmp_path / "copy")
    store = LanceMemory(folder, FixedEmbedder(LetterEmbedder()), StoppedClock())
    if when == "while it is open":
        recalled(store, "customer")
    files = sorted((folder / "agents" / TRADER.folder / "index").glob(f"**/{kind}"))
    assert files
    for path in files:
        damage(path, how)
    assert recalled(store, QUERY)[0] == BEST
    store.remember(TRADER, memory("new", "freshly added"))
    assert recalled(store, "freshly")[0] == "freshly added"
    assert len(recalled(store, QUERY, 100)) == 11


def test_damage_that_the_search_is_the_first_to_see_does_not_make_it_find_nothing(tmp_path, monkeypatch):
    store = LanceMemory(tmp_path, FixedEmbedder(None), StoppedClock())
    store.remember(TRADER, memory("a", "likes green teas"))
    recalled(store, "green")
    damaged = [ValueError("bad page"), ValueError("bad page")]
    real = MemoryTable.search

    def search(self, query, vector, tags):
        if damaged:
            raise damaged.pop()
        return real(self, query, vector, tags)

    monkeypatch.setattr(MemoryTable, "search", search)

    assert recalled(store, "tea") == ["likes green teas"], "stemmed, as only the index does"
    assert not damaged
    assert store.indexed(TRADER) == {"mem_a"}


def test_an_index_folder_that_vanishes_is_made_again(store, tmp_path):
    store.remember(TRADER, memory("a", "likes tea"))
    store.settle()
    shutil.rmtree(tmp_path / "agents" / TRADER.folder / "index")
    assert recalled(store, "tea") == ["likes tea"]


def test_a_memory_that_was_stored_but_not_indexed_is_recalled(store, tmp_path, clock):
    store.remember(TRADER, memory("a", "likes tea"))
    store.settle()
    index = tmp_path / "agents" / TRADER.folder / "index"
    shutil.copytree(index, tmp_path / "before")
    store.remember(TRADER, memory("b", "hates rain"))
    store.settle()
    shutil.rmtree(index)
    shutil.copytree(tmp_path / "before", index)
    assert recalled(LanceMemory(tmp_path, FixedEmbedder(LetterEmbedder()), clock), "rain", 1) == ["hates rain"]


def test_without_any_usable_index_memory_is_searched_word_by_word(store, tmp_path):
    folder = tmp_path / "agents" / TRADER.folder
    folder.mkdir(parents=True)
    (folder / "index").write_text("a file where the folder should be")
    store.remember(TRADER, memory("a", "客户喜欢绿茶", ("饮料",)))
    assert store.remember(TRADER, memory("b", "the harbour closes at six")).memory_id == "mem_b"
    found = store.recall(TRADER, "喜欢什么茶", 5)
    assert [one.memory.content for one in found.memories] == ["客户喜欢绿茶"]
    assert found.degraded
    assert "the memory index is unusable" in found.reason
    (folder / "index").unlink()
    assert recalled(store, "harbour", 1) == ["the harbour closes at six"]


texts = st.text(min_size=1, max_size=40).filter(str.strip)


@pytest.mark.property
@examples
@given(contents=st.lists(texts, max_size=6), query=texts, tags=st.lists(st.text(min_size=1, max_size=9), max_size=2))
def test_property_20_without_a_usable_index_recall_is_never_an_error(tmp_path_factory, contents, query, tags):
    store = LanceMemory(tmp_path_factory.mktemp("unusable"), FixedEmbedder(None), StoppedClock())
    folder = store.files.folder(TRADER)
    folder.mkdir(parents=True)
    (folder / "index").write_text("a file where the folder should be")
    for number, content in enumerate(contents):
        store.remember(TRADER, memory(number, content))

    found = store.recall(TRADER, query, 10, tags)
    itself = [store.recall(TRADER, content, 10) for content in contents if words(content)]

    assert {one.memory.content for one in found.memories} <= set(contents)
    assert found.degraded is bool(contents and not tags)
    for content, each in zip(filter(words, contents), itself, strict=True):
        assert each.degraded
        assert content in [one.memory.content for one in each.memories]


def test_a_failing_embedder_degrades_recall_to_words_until_it_works_again(tmp_path, clock, embedder):
    store = LanceMemory(tmp_path, FixedEmbedder(embedder), clock)
    embedder.broken = True
    store.remember(TRADER, memory("a", "likes tea"))
    found = store.recall(TRADER, "tea", 5)
    assert [one.memory.content for one in found.memories] == ["likes tea"]
    assert found.degraded
    assert "the provider does not answer" in found.reason
    embedder.broken = False
    assert recalled(store, "tea") == ["likes tea"]
    assert set(embedder.documents) == {"likes tea"}


def test_another_embedder_gets_its_own_vectors(tmp_path, clock, embedder):
    LanceMemory(tmp_path, FixedEmbedder(embedder), clock).remember(TRADER, memory("a", "likes tea"))
    other = LetterEmbedder("other/model:v2", 8)
    store = LanceMemory(tmp_path, FixedEmbedder(other), clock)
    assert recalled(store, "tea") == ["likes tea"]
    assert other.documents == ["likes tea"]
    assert recalled(store, "tea") == ["likes tea"]
    assert other.documents == ["likes tea"]


@pytest.mark.parametrize(("memories", "embedded"), [(16, 16), (17, 0)], ids=["few", "many"])
def test_while_somebody_waits_few_memories_are_embedded_and_many_are_left_for_later(
    tmp_path, clock, memories, embedded, monkeypatch
):
    words_only = LanceMemory(tmp_path, FixedEmbedder(None), clock)
    for number in range(memories):
        words_only.remember(TRADER, memory(number, f"fact number{number}"))
    later = LetterEmbedder()
    store = LanceMemory(tmp_path, FixedEmbedder(later), clock)
    monkeypatch.setattr(store._background, "note", lambda agent: None)

    assert recalled(store, "number7", 1) == ["fact number7"]
    assert len(later.documents) == embedded

    store.catch_up(TRADER, lambda: True)
    assert len(later.documents) == memories


def test_a_deadline_that_strikes_inside_the_index_is_no_damage():
    for deadline in (ToolTimeoutError("late"), TimeoutError("late"), KeyboardInterrupt()):
        with pytest.raises(type(deadline)), index_errors():
            raise deadline
    with pytest.raises(IndexUnusableError, match="ValueError: bad page"), index_errors():
        raise ValueError("bad page")


WRITER = """
import sys
from pathlib import Path
from tests.memory.lance.conftest import TRADER, LetterEmbedder, memory
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory
from owlclaw_ray.kernel.system_clock import SystemClock
store = LanceMemory(Path(sys.argv[1]), FixedEmbedder(LetterEmbedder()), SystemClock())
for number in range(8):
    store.remember(TRADER, memory(f"{sys.argv[2]}{number}", f"fact {sys.argv[2]}{number}"))
    assert not store.recall(TRADER, "fact", 20).degraded
"""


def test_processes_that_write_and_read_at_once_agree_in_the_end(tmp_path, clock):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    store = LanceMemory(tmp_path, FixedEmbedder(LetterEmbedder()), clock)
    assert len(recalled(store, "fact", 50)) == 16
