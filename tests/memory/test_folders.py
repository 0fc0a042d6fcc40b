import os
import threading
import unicodedata
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from owlclaw_ray.domain.agent import AgentRef
from owlclaw_ray.domain.memory import Memory
from owlclaw_ray.errors import NotFoundError
from owlclaw_ray.ids import AgentId, MemoryId, TenantId
from owlclaw_ray.memory import folders as module
from owlclaw_ray.memory.folders import MemoryFolders
from owlclaw_ray.testing.clock import ManualClock

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRADER = AgentRef.parse("trader")


def memory(number, content=None, tags=()):
    return Memory(MemoryId(f"mem_{number}"), content or f"fact {number}", tuple(tags), NOW, f"run_{number}")


@pytest.fixture
def folders(tmp_path):
    return MemoryFolders(tmp_path, ManualClock(NOW))


def store(folders, agent, *memories):
    with folders.file(agent) as file:
        for each in memories:
            file.append(each)


def test_an_agent_without_memories_has_none_and_no_folder(folders, tmp_path):
    assert folders.memories(TRADER) == folders.archived(TRADER) == ()
    assert folders.stats(TRADER).active == 0
    with pytest.raises(NotFoundError):
        folders.delete(TRADER, MemoryId("mem_1"))
    assert not (tmp_path / "agents" / "default" / "trader" / "MEMORY.md").exists()


def test_the_archive_is_searched_on_request_by_words_and_tags(folders):
    store(
        folders, TRADER, memory(1, "likes green tea", ["a"]), memory(2, "客户喜欢绿茶", ["b"]), memory(3, "tea is out")
    )
    folders.archive(TRADER, [MemoryId("mem_1"), MemoryId("mem_2")])
    assert [one.memory.memory_id for one in folders.search_archive(TRADER, "which tea", 5).memories] == ["mem_1"]
    assert [one.memory.memory_id for one in folders.search_archive(TRADER, "喜欢什么茶", 5).memories] == ["mem_2"]
    assert folders.search_archive(TRADER, "tea", 5, ["b"]).memories == ()
    assert [one.memory_id for one in folders.memories(TRADER)] == ["mem_3"]


def test_stats_say_how_much_there_is_and_what_is_wrong(folders, tmp_path):
    store(folders, TRADER, memory(1), memory(2), memory(3))
    folders.archive(TRADER, [MemoryId("mem_1")])
    file = folders.folder(TRADER) / "MEMORY.md"
    file.write_text(file.read_text() + "\n## mem_9 · soon\n\nx\n")
    stats = folders.stats(TRADER)
    assert (stats.active, stats.archived, stats.oldest, stats.newest) == (3, 1, NOW, NOW)
    assert stats.file_bytes == file.stat().st_size
    assert stats.archive_bytes == file.with_name("MEMORY.archive.md").stat().st_size
    assert [problem.where for problem in stats.problems] == ["MEMORY.md:21"]


def test_files_that_were_read_are_forgotten_when_there_are_too_many(folders, monkeypatch):
    monkeypatch.setattr(module, "_OPEN_AGENTS", 3)
    for number in range(6):
        store(folders, AgentRef.parse(f"trader:{number}"), memory(number))
    assert len(folders._open) == 3
    monkeypatch.setattr(module, "_OPEN_MEMORIES", 1)
    assert [one.memory_id for one in folders.memories(AgentRef.parse("trader:0"))] == ["mem_0"]
    assert len(folders._open) == 1


def test_threads_that_write_at_once_lose_nothing(folders):
    def write(name):
        for number in range(25):
            store(folders, TRADER, memory(f"{name}{number}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders.memories(TRADER)) == 75


tenants = st.sampled_from(
    [
        *(".", "..", "../..", "", "a/b", "a%2Fb", "a%2fb", "default", "Default", "x.", "x..", "x", "X", "租户"),
        *("x" * 300, "X" * 300, "x" * 301, "%~", "\u00e9", "e\u0301", "\u00c9", "ß", "ss", "\u2126", "Ω", "ω"),
    ]
) | st.text(max_size=60).filter(lambda text: not any("\ud800" <= character <= "\udfff" for character in text))


agents = st.builds(
    AgentRef,
    tenants.map(TenantId),
    st.sampled_from(["trader", "trader:..", "trader:AAPL", "trader:aapl", "trader:" + "键" * 128]).map(AgentId),
)


def as_one_file_system_sees(path):
    """Return what stands for a path where neither case, nor how a letter is composed, nor dots at the end count."""
    parts = (unicodedata.normalize("NFD", unicodedata.normalize("NFKC", part).casefold()) for part in path.parts)
    return tuple(part.rstrip(". ") or part for part in parts)


@pytest.mark.property
@given(st.lists(agents, min_size=2, max_size=6, unique=True))
def test_property_no_two_agents_share_a_folder_and_none_leaves_the_data_folder(agents):
    root = Path("/data")
    folders = MemoryFolders(root, ManualClock(NOW))
    paths = [folders.folder(agent) for agent in agents]
    assert len({as_one_file_system_sees(Path(os.path.normpath(path))) for path in paths}) == len(agents)
    for path in paths:
        assert Path(os.path.normpath(path)).parent.parent == root / "agents"
        assert all(0 < len(part.encode()) <= 255 for part in path.parts)
    for agent, path in zip(agents, paths, strict=True):
        for name, part in ((agent.tenant, path.parts[-2]), (agent.agent_id, path.parts[-1])):
            assert unquote(part) == (name or "%") or "%~" in part


def test_a_name_in_small_letters_stays_readable_as_a_folder():
    assert AgentRef.parse("trader:aapl-2_x.y").folder == "default/trader%3Aaapl-2_x.y"
    assert AgentRef.parse("trader:AAPL").folder == "default/trader%3A%41%41%50%4C"


@pytest.mark.parametrize("tenant", [".", "..", "../..", "", "a/b", "租户" * 80, "x" * 300])
def test_agents_and_tenants_with_the_same_contents_do_not_see_each_other(folders, tmp_path, tenant):
    agents = [
        AgentRef(TenantId(name), AgentId(agent)) for name in ("default", tenant) for agent in ("trader", "trader:x")
    ]
    for number, agent in enumerate(agents):
        store(folders, agent, memory(1, f"the secret of number {number}"))
    again = MemoryFolders(tmp_path, ManualClock(NOW))
    for number, agent in enumerate(agents):
        assert [one.content for one in again.memories(agent)] == [f"the secret of number {number}"]
        assert again.archive(agent, [MemoryId("mem_1")])
        found = again.search_archive(agent, "secret", 9).memories
        assert [one.memory.content for one in found] == [f"the secret of number {number}"]
